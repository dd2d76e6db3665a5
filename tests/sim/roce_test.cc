// SPDX-License-Identifier: MIT
// RoCEv2 connections in a seeded world.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/sim/roce_world.h"

namespace airdma::sim {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

class RoceSeeds : public testing::TestWithParam<Trouble> {};

TEST_P(RoceSeeds, HoldWhatIsPromised) {
  constexpr std::uint64_t kSeeds = 100;
  std::uint64_t first = from_environment("AIRDMA_SIM_FIRST", 1);
  std::uint64_t count = from_environment("AIRDMA_SIM_SEEDS", kSeeds);
  if (const std::uint64_t one = from_environment("AIRDMA_SIM_SEED", 0)) {
    first = one;
    count = 1;
  }
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::string failure = RoceWorld(seed, GetParam()).run();
    ASSERT_EQ(failure, "") << "again with AIRDMA_SIM_SEED=" << seed;
  }
}

std::string trouble_name(const testing::TestParamInfo<Trouble>& trouble) {
  constexpr const char* kNames[] = {"Calm",    "Loss", "Storm",   "Outage",
                                    "Silence", "Fail", "Withdraw"};
  return kNames[static_cast<std::size_t>(trouble.param)];
}

INSTANTIATE_TEST_SUITE_P(Troubles, RoceSeeds,
                         testing::Values(Trouble::kCalm, Trouble::kLoss, Trouble::kStorm,
                                         Trouble::kOutage, Trouble::kSilence, Trouble::kFail,
                                         Trouble::kWithdraw),
                         trouble_name);

}  // namespace
}  // namespace airdma::sim
