// SPDX-License-Identifier: MIT
#include "runtime/watch_policy.h"

#include <gtest/gtest.h>

namespace airdma::runtime {
namespace {

using std::chrono::microseconds;

class WatchPolicyTest : public testing::Test {
 protected:
  /// A wait whose event comes after `length`; whether it began with a look.
  bool wait(Duration length) {
    const bool looks = policy_.begin(now_);
    if (looks) {
      const bool found = length < WatchPolicy::kWatch;
      policy_.looked(found, now_ + std::min(length, WatchPolicy::kWatch));
    }
    now_ += length;
    policy_.ended(now_);
    return looks;
  }

  WatchPolicy policy_;
  Time now_{};
};

TEST_F(WatchPolicyTest, LooksAtOnceWhereMessagesComeFast) {
  EXPECT_FALSE(wait(microseconds(10)));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(wait(microseconds(10)));
}

TEST_F(WatchPolicyTest, LooksEverMoreSeldomWhereTheyDoNot) {
  int looks = 0;
  for (int i = 0; i < 2000; ++i) looks += wait(std::chrono::milliseconds(1)) ? 1 : 0;
  EXPECT_LE(looks, 2000 / WatchPolicy::kMostSkipped + 8);
  EXPECT_GE(looks, 8);
}

TEST_F(WatchPolicyTest, ComesBackAfterOneShortSleep) {
  for (int i = 0; i < 2000; ++i) wait(std::chrono::milliseconds(1));
  int without = 0;
  while (!wait(microseconds(20))) ++without;
  EXPECT_LE(without, 1);
}

TEST_F(WatchPolicyTest, ALookThatOthersHeldUpDoesNotPay) {
  EXPECT_FALSE(wait(microseconds(10)));
  ASSERT_TRUE(policy_.begin(now_));
  policy_.looked(true, now_ + WatchPolicy::kShortSleep);
  policy_.ended(now_ + WatchPolicy::kShortSleep);
  EXPECT_FALSE(policy_.begin(now_));
}

}  // namespace
}  // namespace airdma::runtime
