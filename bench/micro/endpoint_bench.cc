// SPDX-License-Identifier: MIT
// Two iWARP endpoints in one thread, joined by a buffer instead of a socket: what the protocol
// costs when the kernel costs nothing.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>

#include "tests/sim/endpoint_pair.h"

namespace airdma {
namespace {

constexpr Stag kSource{0x2222};
constexpr std::uint64_t kBase = 0x10000;

iwarp::StreamParams params(bool crc, std::size_t max_ulpdu) {
  iwarp::StreamParams params;
  params.crc = crc;
  params.max_ulpdu = max_ulpdu;
  return params;
}

/// 64-byte SENDs, `batch` per turn of the two endpoints, each with its two completions.
void send_64(benchmark::State& bench) {
  constexpr std::uint32_t kBytes = 64;
  const auto batch = static_cast<std::uint32_t>(bench.range(0));
  sim::EndpointPair pair(params(true, 65000));
  const sim::Buffer from(pair.a.table, kSource, kBase, kBytes);
  const sim::Buffer to(pair.b.table, sim::kKey, kBase, kBytes);
  const sim::Post post{.sges = {{kBase, kBytes, kSource}}};
  for ([[maybe_unused]] auto unused : bench) {
    for (std::uint32_t i = 0; i < batch; ++i) {
      pair.b.post_receive(i, {{kBase, kBytes, sim::kKey}});
      pair.a.post(post);
    }
    pair.run();
    if (pair.a.completions.size() != batch || pair.b.completions.size() != batch) {
      bench.SkipWithError("completions are missing");
      break;
    }
    pair.a.completions.clear();
    pair.b.completions.clear();
  }
  bench.SetItemsProcessed(static_cast<std::int64_t>(bench.iterations()) * batch);
}
BENCHMARK(send_64)->Arg(1)->Arg(16)->Arg(64);

/// WRITEs of 1 MiB. Arguments: bytes of ULPDU per FPDU, CRC on or off.
void write_1m(benchmark::State& bench) {
  constexpr std::uint32_t kBytes = 1 << 20;
  sim::EndpointPair pair(params(bench.range(1) != 0, static_cast<std::size_t>(bench.range(0))));
  const sim::Buffer from(pair.a.table, kSource, kBase, kBytes);
  const sim::Buffer to(pair.b.table, sim::kKey, kBase, kBytes);
  const sim::Post post{.opcode = model::SendOpcode::kWrite,
                       .sges = {{kBase, kBytes, kSource}},
                       .remote_addr = kBase};
  for ([[maybe_unused]] auto unused : bench) {
    pair.a.post(post);
    pair.run();
    if (pair.a.completions.size() != 1) {
      bench.SkipWithError("a completion is missing");
      break;
    }
    pair.a.completions.clear();
  }
  bench.SetBytesProcessed(static_cast<std::int64_t>(bench.iterations()) * kBytes);
}
BENCHMARK(write_1m)
    ->ArgNames({"ulpdu", "crc"})
    ->Args({65000, 1})
    ->Args({65000, 0})
    ->Args({1440, 1})
    ->Args({1440, 0});

}  // namespace
}  // namespace airdma
