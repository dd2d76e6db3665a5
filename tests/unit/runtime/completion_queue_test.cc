// SPDX-License-Identifier: MIT
#include "runtime/completion_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace airdma::runtime {
namespace {

class CompletionQueueTest : public testing::Test {
 protected:
  bool readable() {
    pollfd descriptor{channel->fd(), POLLIN, 0};
    return ::poll(&descriptor, 1, 0) == 1;
  }
  void complete(int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(queue.push({}));
  }
  int take(int count) {
    model::Completion out[16];
    return queue.poll(count, out);
  }

  int entry = 0;
  std::unique_ptr<CompletionChannel> channel = *CompletionChannel::create();
  CompletionQueue queue{16, channel.get(), &entry};
};

TEST_F(CompletionQueueTest, NotifiesOnceForWhatComesAfterArming) {
  queue.request_notify(false);
  complete(3);
  ASSERT_TRUE(readable());
  EXPECT_EQ(*channel->pop(), &entry);
  EXPECT_FALSE(readable());
}

TEST_F(CompletionQueueTest, ArmingBehindCompletionsMakesNoEvent) {
  complete(1);
  queue.request_notify(false);
  EXPECT_FALSE(readable());
}

TEST_F(CompletionQueueTest, RemindsAProgramThatWouldSleepOverCompletions) {
  queue.request_notify(false);
  complete(3);
  EXPECT_EQ(*channel->pop(), &entry);
  queue.request_notify(false);
  EXPECT_EQ(take(2), 2);
  EXPECT_EQ(*channel->pop(), &entry);  // blocks for ever when it does not
  EXPECT_EQ(take(2), 1);
}

TEST_F(CompletionQueueTest, DoesNotRemindOfQueuesThatAreEmptyOrNotArmed) {
  ASSERT_EQ(::fcntl(channel->fd(), F_SETFL, O_NONBLOCK), 0);
  complete(1);
  EXPECT_EQ(channel->pop().error().code, EAGAIN);  // not armed
  queue.request_notify(false);
  EXPECT_EQ(channel->pop().error().code, EAGAIN);  // nobody sleeps
  EXPECT_EQ(take(1), 1);
  EXPECT_FALSE(queue.take_overdue_notification());
}

TEST_F(CompletionQueueTest, WakesASleeperWhenThePeerWroteAndNothingElseWould) {
  queue.request_notify(false);
  queue.note_silent_write();  // before the program sleeps
  EXPECT_FALSE(readable());   // one that does not sleep here is left alone
  EXPECT_EQ(*channel->pop(), &entry);
  queue.request_notify(false);
  std::thread sleeper([&] { EXPECT_EQ(*channel->pop(), &entry); });
  queue.note_silent_write();  // before or while it sleeps: seen either way
  sleeper.join();
}

TEST_F(CompletionQueueTest, ASilentWriteBeforeArmingIsNoEvent) {
  queue.note_silent_write();
  queue.request_notify(false);
  EXPECT_FALSE(queue.take_overdue_notification());
}

TEST_F(CompletionQueueTest, ForgetsAQueueThatIsGone) {
  {
    CompletionQueue other(1, channel.get(), this);
    other.request_notify(false);
    ASSERT_TRUE(other.push({}));
    EXPECT_EQ(*channel->pop(), this);
    other.request_notify(false);
  }
  queue.request_notify(false);
  complete(1);
  EXPECT_EQ(*channel->pop(), &entry);
}

}  // namespace
}  // namespace airdma::runtime
