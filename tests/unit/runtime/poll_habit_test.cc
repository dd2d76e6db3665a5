// SPDX-License-Identifier: MIT
#include "runtime/poll_habit.h"

#include <gtest/gtest.h>

namespace airdma::runtime {
namespace {

using std::chrono::microseconds;

constexpr Time kStart = Time(std::chrono::seconds(1));

/// Polls until something is there, then no more until the progress thread notices. What found()
/// said.
bool stop_after_success(PollHabit& habit) {
  habit.found_nothing();
  const bool expected = habit.found();
  habit.polling_ended();
  return expected;
}

TEST(PollHabit, IsLearnedFromPollingThatEndedThreeTimesWithSuccess) {
  PollHabit habit;
  EXPECT_FALSE(stop_after_success(habit));
  EXPECT_FALSE(stop_after_success(habit));
  EXPECT_FALSE(stop_after_success(habit));
  EXPECT_TRUE(stop_after_success(habit));
}

TEST(PollHabit, IsNotThatOfAProgramWhichGivesUp) {
  PollHabit habit;
  for (int i = 0; i < 2; ++i) stop_after_success(habit);
  habit.found();
  habit.found_nothing();
  habit.polling_ended();
  EXPECT_FALSE(stop_after_success(habit));
  EXPECT_FALSE(stop_after_success(habit));
}

TEST(PollHabit, LastsWhilePollingBeginsLate) {
  PollHabit habit;
  for (int i = 0; i < 3; ++i) stop_after_success(habit);
  Time now = kStart;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(habit.found());
    habit.given_back(now);
    now += 2 * PollHabit::kSoon;
    habit.polling_begins(now);
    habit.found_nothing();
  }
}

TEST(PollHabit, IsHarderToBelieveAfterEachMistake) {
  PollHabit habit;
  int needed = 0;
  for (int mistakes = 0; mistakes < 5; ++mistakes) {
    int times = 0;
    while (!stop_after_success(habit)) ++times;
    EXPECT_GT(times, needed);
    needed = times;
    habit.given_back(kStart);
    habit.polling_begins(kStart + microseconds(1));
    EXPECT_FALSE(habit.found());
  }
}

TEST(PollHabit, TakesPollingThatWasNotGivenBackForNoMistake) {
  PollHabit habit;
  for (int i = 0; i < 3; ++i) stop_after_success(habit);
  habit.polling_begins(kStart);
  habit.polling_begins(kStart);
  EXPECT_TRUE(habit.found());
}

}  // namespace
}  // namespace airdma::runtime
