// SPDX-License-Identifier: MIT
#include "runtime/post_burst.h"

#include <gtest/gtest.h>

namespace airdma::runtime {
namespace {

// Posts `count` times between two polls; how many of them would rather wait.
int waiting(PostBurst& burst, std::atomic<bool>& bursts, std::uint64_t polls, int count) {
  int waits = 0;
  for (int i = 0; i < count; ++i) waits += burst.expects_more(polls, bursts) ? 1 : 0;
  return waits;
}

int waiting(PostBurst& burst, std::uint64_t polls, int count) {
  std::atomic<bool> bursts{false};  // nothing is known of other queue pairs
  return waiting(burst, bursts, polls, count);
}

TEST(PostBurst, LonePostsNeverWait) {
  PostBurst burst;
  for (std::uint64_t polls = 0; polls < 100; ++polls) EXPECT_EQ(waiting(burst, polls, 1), 0);
}

TEST(PostBurst, LearnsThatTheProgramPostsManyAtATime) {
  PostBurst burst;
  EXPECT_EQ(waiting(burst, 1, 64), 60);
  EXPECT_EQ(waiting(burst, 2, 64), 64);
  EXPECT_EQ(waiting(burst, 3, 1), 1);  // one wrong guess
  EXPECT_EQ(waiting(burst, 4, 1), 0);
}

TEST(PostBurst, ExpectsOfAQueuePairWhatOthersOfItsQueueDid) {
  std::atomic<bool> bursts{false};
  PostBurst one;
  PostBurst other;
  EXPECT_EQ(waiting(one, bursts, 1, 64), 60);
  EXPECT_EQ(waiting(other, bursts, 1, 64), 64);  // its first
}

TEST(PostBurst, ExpectsNoMoreWhenTheOthersHaveStopped) {
  std::atomic<bool> bursts{false};
  PostBurst one;
  PostBurst other;
  (void)waiting(one, bursts, 1, 64);
  (void)waiting(one, bursts, 2, 1);
  (void)waiting(one, bursts, 3, 1);
  EXPECT_EQ(waiting(other, bursts, 3, 1), 0);
}

TEST(PostBurst, HoldsABoundedNumber) {
  PostBurst burst;
  for (std::uint32_t i = 1; i < PostBurst::kMostHeld; ++i) EXPECT_TRUE(burst.hold(1));
  EXPECT_FALSE(burst.hold(1));
  EXPECT_TRUE(burst.holds());
  burst.release();
  EXPECT_FALSE(burst.holds());
  EXPECT_FALSE(burst.hold(PostBurst::kMostHeld));
}

TEST(PostBurst, TrustsNoProgramThatLetsItsPostsWait) {
  PostBurst burst;
  (void)waiting(burst, 1, 10);
  burst.forced(1);
  EXPECT_EQ(waiting(burst, 1, 10), 10);  // it may have been about to poll
  burst.forced(1);
  EXPECT_EQ(waiting(burst, 1, 500), 0);
  EXPECT_EQ(waiting(burst, 2, 500), 0);
  (void)waiting(burst, 3, 24);
  EXPECT_GT(waiting(burst, 4, 10), 0);  // not for ever
}

}  // namespace
}  // namespace airdma::runtime
