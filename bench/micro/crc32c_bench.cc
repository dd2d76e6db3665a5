// SPDX-License-Identifier: MIT
// CRC32C kernels beside isa-l's, and the copy that computes on the way beside the two steps it
// replaces. Buffers are hot: sizes are those of headers, of an Ethernet segment and of large FPDUs.
#include <benchmark/benchmark.h>
#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "wire/crc32c.h"

namespace airdma {
namespace {

std::vector<std::byte> sample(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 167 >> 3);
  return data;
}

std::uint32_t isal_crc32c(std::span<std::byte> bytes) {
  auto* start = reinterpret_cast<unsigned char*>(bytes.data());
  return ~crc32_iscsi(start, static_cast<int>(bytes.size()), 0xffffffff);
}

/// Times `step(from, to)` over a buffer of the size that the benchmark was given.
template <class Step>
void over_buffer(benchmark::State& bench, Step step) {
  const auto bytes = static_cast<std::size_t>(bench.range(0));
  std::vector<std::byte> from = sample(bytes);
  std::vector<std::byte> to(bytes);
  for ([[maybe_unused]] auto unused : bench) {
    benchmark::DoNotOptimize(step(from, to));
    benchmark::ClobberMemory();
  }
  bench.SetBytesProcessed(static_cast<std::int64_t>(bench.iterations()) * bench.range(0));
}

template <class Step>
void enlist(const std::string& name, Step step) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [step](benchmark::State& bench) { over_buffer(bench, step); })
      ->Arg(64)
      ->Arg(1436)
      ->Arg(4096)
      ->Arg(65536);
}

bool enlist_all() {
  using Buffer = std::vector<std::byte>;
  enlist("crc32c/isa-l", [](Buffer& from, Buffer&) { return isal_crc32c(from); });
  enlist("copy/memcpy_no_crc",
         [](Buffer& from, Buffer& to) { return std::memcpy(to.data(), from.data(), from.size()); });
  enlist("copy/memcpy_then_isa-l", [](Buffer& from, Buffer& to) {
    std::memcpy(to.data(), from.data(), from.size());
    return isal_crc32c(to);
  });
  for (const wire::Crc32cVariant& variant : wire::crc32c_variants()) {
    if (!variant.supported()) continue;
    enlist(std::string("crc32c/") + variant.name,
           [&variant](Buffer& from, Buffer&) { return variant.extend(0, from); });
    enlist(std::string("copy/") + variant.name,
           [&variant](Buffer& from, Buffer& to) { return variant.copy(0, to.data(), from); });
  }
  return true;
}

[[maybe_unused]] const bool enlisted = enlist_all();

}  // namespace
}  // namespace airdma
