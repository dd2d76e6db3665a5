// SPDX-License-Identifier: MIT
// Which seeds a simulation runs: some from 1 on, or what the environment says. AIRDMA_SIM_SEEDS is
// how many, AIRDMA_SIM_FIRST the first of them, AIRDMA_SIM_SEED one alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace airdma::sim {

inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

/// Calls `run` with each seed. It returns what went wrong, and the first failure ends it all.
/// Returns how many seeds were run.
template <class Run>
std::uint64_t for_each_seed(std::uint64_t usual, Run run) {
  const std::uint64_t one = from_environment("AIRDMA_SIM_SEED", 0);
  const std::uint64_t first = one != 0 ? one : from_environment("AIRDMA_SIM_FIRST", 1);
  const std::uint64_t count = one != 0 ? 1 : from_environment("AIRDMA_SIM_SEEDS", usual);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string failure = run(first + i);
    EXPECT_EQ(failure, "") << "again with AIRDMA_SIM_SEED=" << first + i;
    if (!failure.empty()) return i + 1;
  }
  return count;
}

}  // namespace airdma::sim
