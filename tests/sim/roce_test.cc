// SPDX-License-Identifier: MIT
// RoCEv2 connections in a seeded world.
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/roce_world.h"
#include "tests/sim/seeds.h"

namespace airdma::sim {
namespace {

class RoceSeeds : public testing::TestWithParam<Trouble> {};

TEST_P(RoceSeeds, HoldWhatIsPromised) {
  for_each_seed(100, [](std::uint64_t seed) { return RoceWorld(seed, GetParam()).run(); });
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
