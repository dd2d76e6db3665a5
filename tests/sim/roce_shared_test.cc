// SPDX-License-Identifier: MIT
// Shared receive queues, of one queue pair and of XRC domains, in a seeded world.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/sim/roce_shared_world.h"
#include "tests/sim/seeds.h"

namespace airdma::sim {
namespace {

using model::QpType;
using Kind = std::tuple<QpType, Weather>;

class SharedSeeds : public testing::TestWithParam<Kind> {};

TEST_P(SharedSeeds, HoldWhatIsPromised) {
  for_each_seed(100, [](std::uint64_t seed) {
    return SharedWorld(seed, std::get<0>(GetParam()), std::get<1>(GetParam())).run();
  });
}

std::string kind_name(const testing::TestParamInfo<Kind>& kind) {
  constexpr const char* kWeathers[] = {"Calm", "Storm", "Fail"};
  const char* type = "Xrc";
  switch (std::get<0>(kind.param)) {
    case QpType::kRc:
      type = "Rc";
      break;
    case QpType::kUc:
      type = "Uc";
      break;
    case QpType::kUd:
      type = "Ud";
      break;
    case QpType::kRawPacket:
    case QpType::kXrcSend:
    case QpType::kXrcReceive:
      break;
  }
  return std::string(type) + kWeathers[static_cast<std::size_t>(std::get<1>(kind.param))];
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SharedSeeds,
    testing::Combine(testing::Values(QpType::kRc, QpType::kUc, QpType::kUd, QpType::kXrcReceive),
                     testing::Values(Weather::kCalm, Weather::kStorm, Weather::kFail)),
    kind_name);

}  // namespace
}  // namespace airdma::sim
