// SPDX-License-Identifier: MIT
// What the guard adds to a copy between the program's memory and ours.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/guarded_copy.h"

namespace airdma {
namespace {

void plain(benchmark::State& bench) {
  const std::vector<std::byte> from(static_cast<std::size_t>(bench.range(0)));
  std::vector<std::byte> to(from.size());
  for ([[maybe_unused]] auto unused : bench) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(plain)->Arg(8)->Arg(64)->Arg(4096)->Arg(65536);

void guarded(benchmark::State& bench) {
  const std::vector<std::byte> from(static_cast<std::size_t>(bench.range(0)));
  std::vector<std::byte> to(from.size());
  for ([[maybe_unused]] auto unused : bench) {
    benchmark::DoNotOptimize(copy_to_program(to.data(), from));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(guarded)->Arg(8)->Arg(64)->Arg(4096)->Arg(65536);

}  // namespace
}  // namespace airdma
