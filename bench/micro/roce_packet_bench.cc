// SPDX-License-Identifier: MIT
// What each RoCEv2 packet costs before anything is done with it: CRC32 kernels beside isa-l's, the
// ICRC as a sender and a receiver compute it, reading and writing headers. Buffers are hot.
#include <benchmark/benchmark.h>
#include <isa-l/crc.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/crc32.h"
#include "wire/icrc.h"
#include "wire/roce_packet.h"

namespace airdma {
namespace {

/// A WRITE of one packet with so much payload, pad and ICRC left off.
std::vector<std::byte> write_only(std::size_t payload_bytes) {
  wire::RocePacket packet;
  packet.info = &wire::roce_info(wire::Service::kRc, wire::PacketCode::kWriteOnly);
  std::vector<std::byte> bytes(packet.info->header_bytes + payload_bytes);
  (void)wire::emit_roce_headers(bytes, packet);
  for (std::size_t i = packet.info->header_bytes; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 167 >> 3);
  }
  return bytes;
}

wire::IcrcFlow v4_flow() {
  wire::IpAddress address{};
  address[10] = address[11] = std::byte{0xff};
  return {address, address, 50000};
}

void make_flow(benchmark::State& bench) {
  for ([[maybe_unused]] auto unused : bench) benchmark::DoNotOptimize(v4_flow());
}
BENCHMARK(make_flow);

void icrc_of_packet(benchmark::State& bench) {
  const auto packet = write_only(static_cast<std::size_t>(bench.range(0)));
  const wire::IcrcFlow flow = v4_flow();
  for ([[maybe_unused]] auto unused : bench) {
    benchmark::DoNotOptimize(
        wire::icrc_headers(flow.start(packet.size() + wire::kIcrcBytes, 3), packet));
    benchmark::ClobberMemory();
  }
  bench.SetBytesProcessed(static_cast<std::int64_t>(bench.iterations()) * bench.range(0));
}
BENCHMARK(icrc_of_packet)->Arg(0)->Arg(64)->Arg(1024)->Arg(4096);

/// The step that only packets with an identification other than zero need.
void find_identification(benchmark::State& bench) {
  std::uint32_t received = 1;
  for ([[maybe_unused]] auto unused : bench) {
    benchmark::DoNotOptimize(wire::find_hidden_v4(received++, 0, 1056));
  }
}
BENCHMARK(find_identification);

void parse(benchmark::State& bench) {
  const auto packet = write_only(1024);
  for ([[maybe_unused]] auto unused : bench) {
    benchmark::DoNotOptimize(wire::parse_roce_packet(packet));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(parse);

void emit(benchmark::State& bench) {
  const auto bytes = write_only(1024);
  const wire::RocePacket packet = *wire::parse_roce_packet(bytes);
  std::array<std::byte, wire::kMaxRoceHeaderBytes> out;
  for ([[maybe_unused]] auto unused : bench) {
    benchmark::DoNotOptimize(wire::emit_roce_headers(out, packet));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(emit);

template <class Step>
void enlist(const std::string& name, Step step) {
  const auto over_buffer = [step](benchmark::State& bench) {
    const auto from = write_only(static_cast<std::size_t>(bench.range(0)));
    std::vector<std::byte> to(from.size());
    for ([[maybe_unused]] auto unused : bench) {
      benchmark::DoNotOptimize(step(Bytes(from), to.data()));
      benchmark::ClobberMemory();
    }
    bench.SetBytesProcessed(static_cast<std::int64_t>(bench.iterations() * from.size()));
  };
  benchmark::RegisterBenchmark(name.c_str(), over_buffer)
      ->Arg(64)
      ->Arg(1024)
      ->Arg(4096)
      ->Arg(65536);
}

bool enlist_kernels() {
  enlist("crc32/isa-l", [](Bytes from, std::byte*) {
    return crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(from.data()), from.size());
  });
  for (const wire::Crc32Variant& variant : wire::crc32_variants()) {
    if (!variant.supported()) continue;
    enlist(std::string("crc32/") + variant.name,
           [&variant](Bytes from, std::byte*) { return variant.extend(0, from); });
    enlist(std::string("copy/") + variant.name,
           [&variant](Bytes from, std::byte* to) { return variant.copy(0, to, from); });
  }
  return true;
}

[[maybe_unused]] const bool enlisted = enlist_kernels();

}  // namespace
}  // namespace airdma
