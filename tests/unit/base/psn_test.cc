// SPDX-License-Identifier: MIT
#include "base/psn.h"

#include <gtest/gtest.h>

namespace airdma {
namespace {

constexpr Psn kLast{0xffffff};

TEST(Psn, HasTwentyFourBits) {
  EXPECT_EQ(Psn{0x1000007}, Psn{7});
  EXPECT_EQ(Psn{0xff000000}.value(), 0u);
}

TEST(Psn, WrapsBothWays) {
  EXPECT_EQ(kLast.next(), Psn{0});
  EXPECT_EQ(Psn{0}.previous(), kLast);
  EXPECT_EQ(Psn{5}.next(0x1000000), Psn{5});
  EXPECT_EQ(Psn{5}.previous(6), kLast);
}

TEST(Psn, MeasuresTheShortWayRound) {
  EXPECT_EQ(Psn{3}.distance_to(Psn{10}), 7);
  EXPECT_EQ(Psn{10}.distance_to(Psn{3}), -7);
  EXPECT_EQ(kLast.distance_to(Psn{1}), 2);
  EXPECT_EQ(Psn{1}.distance_to(kLast), -2);
  EXPECT_EQ(Psn{9}.distance_to(Psn{9}), 0);
  EXPECT_EQ(Psn{0}.distance_to(Psn{0x7fffff}), 0x7fffff);
  EXPECT_EQ(Psn{0}.distance_to(Psn{0x800000}), -0x800000);  // half way counts as behind
  EXPECT_EQ(Psn{0x800000}.distance_to(Psn{0}), -0x800000);
}

TEST(Psn, ComesBackByItsDistance) {
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const Psn a{i * 0x9e3779b9};
    const Psn b{i * 0x85ebca6b + 77};
    EXPECT_EQ(a.next(static_cast<std::uint32_t>(a.distance_to(b))), b);
  }
}

}  // namespace
}  // namespace airdma
