// SPDX-License-Identifier: MIT
#include "runtime/answer_hold.h"

#include <gtest/gtest.h>

namespace airdma::runtime {
namespace {

TEST(AnswerHold, WaitsForProgramsThatAnswer) {
  AnswerHold answer;
  for (std::uint64_t polls = 1; polls <= 4; ++polls) {
    EXPECT_FALSE(answer.arrived(polls));
    answer.posted();
  }
  EXPECT_TRUE(answer.arrived(5));
  answer.hold();
  EXPECT_FALSE(answer.polled(5));  // the poll that brought it
  EXPECT_TRUE(answer.held());
  answer.release();
  EXPECT_FALSE(answer.polled(6));
  EXPECT_FALSE(answer.arrived(7));  // it did not answer the last one
}

TEST(AnswerHold, NeverForThoseThatOnlyReceive) {
  AnswerHold answer;
  for (std::uint64_t polls = 1; polls < 100; ++polls) EXPECT_FALSE(answer.arrived(polls));
}

TEST(AnswerHold, NeverForThoseThatPollBeforeTheyPost) {
  AnswerHold answer;
  for (std::uint64_t polls = 1; polls < 100; polls += 2) {
    EXPECT_FALSE(answer.arrived(polls));
    EXPECT_FALSE(answer.polled(polls + 1));
    answer.posted();
  }
}

}  // namespace
}  // namespace airdma::runtime
