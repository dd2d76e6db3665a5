// SPDX-License-Identifier: MIT
#include "io/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "base/event_wait.h"

namespace airdma::io {
namespace {

short ready(int fd) {
  pollfd descriptor{fd, POLLIN | POLLOUT, 0};
  ::poll(&descriptor, 1, 0);
  return descriptor.revents;
}

TEST(EventCounter, IsReadableWhileTheCountIsPositiveAndNeverWritable) {
  auto counter = *EventCounter::create();
  EXPECT_EQ(ready(counter.fd()), 0);
  counter.post();
  counter.post();
  EXPECT_EQ(ready(counter.fd()), POLLIN);
  ASSERT_TRUE(counter.consume());
  EXPECT_EQ(ready(counter.fd()), POLLIN);
  ASSERT_TRUE(counter.consume());
  EXPECT_EQ(ready(counter.fd()), 0);
}

TEST(EventCounter, CountsMoreEventsThanAPipeHolds) {
  auto counter = *EventCounter::create();
  constexpr int kEvents = 100'000;
  for (int i = 0; i < kEvents; ++i) counter.post();
  for (int i = 0; i < kEvents; ++i) ASSERT_TRUE(counter.consume());
  EXPECT_EQ(ready(counter.fd()), 0);
}

TEST(EventCounter, HonoursNonBlocking) {
  auto counter = *EventCounter::create();
  ASSERT_EQ(::fcntl(counter.fd(), F_SETFL, O_NONBLOCK), 0);
  const auto status = counter.consume();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, EAGAIN);
}

TEST(EventCounter, GivesBackWhatNobodyTook) {
  auto counter = *EventCounter::create();
  EXPECT_FALSE(counter.consume_if_any());
  counter.post();
  EXPECT_TRUE(counter.consume_if_any());
  EXPECT_FALSE(counter.consume_if_any());
  EXPECT_EQ(ready(counter.fd()), 0);
  // Beyond what the pipe holds.
  for (int i = 0; i < 5000; ++i) counter.post();
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(counter.consume_if_any());
  EXPECT_EQ(ready(counter.fd()), 0);
}

TEST(EventCounter, WakesASleeper) {
  auto counter = *EventCounter::create();
  std::thread sleeper([&] { EXPECT_TRUE(counter.consume()); });
  counter.post();
  sleeper.join();
}

TEST(EventCounter, AsksForAWaitInsteadOfBlockingWithinACallThatWaits) {
  auto counter = *EventCounter::create();
  EventWait wait;
  EventWait::current = &wait;
  EXPECT_EQ(counter.consume().error().code, EINPROGRESS);
  EXPECT_EQ(wait.state, EventWait::State::kWanted);
  counter.post();
  char byte = 1;
  ASSERT_EQ(::read(wait.fd, &byte, 1), 1);
  wait.state = EventWait::State::kDone;
  EXPECT_TRUE(counter.consume());
  wait.state = EventWait::State::kDone;
  wait.error = EINTR;
  EXPECT_EQ(counter.consume().error().code, EINTR);
  EventWait::current = nullptr;
  EXPECT_FALSE(counter.consume_if_any());
  EXPECT_EQ(ready(counter.fd()), 0);
}

// Programs close the descriptor of a channel, and the next thing they open gets its number.
TEST(EventCounter, LeavesADescriptorAloneThatIsNotItsOwn) {
  int others[2];
  ASSERT_EQ(::pipe2(others, O_CLOEXEC | O_NONBLOCK), 0);
  int number = -1;
  {
    auto counter = *EventCounter::create();
    counter.post();
    number = counter.fd();
    ::close(number);
    EXPECT_EQ(counter.consume().error().code, EBADF);
    counter.post();  // no SIGPIPE
    ASSERT_EQ(::dup3(others[0], number, O_CLOEXEC), number);
    EXPECT_EQ(counter.consume().error().code, EBADF);
    ASSERT_EQ(::write(others[1], "x", 1), 1);
    EXPECT_FALSE(counter.consume_if_any());
  }
  char byte = 0;
  EXPECT_EQ(::read(number, &byte, 1), 1);
  for (const int fd : {number, others[0], others[1]}) ::close(fd);
}

TEST(Fd, IsCloseOnExecAndNeverAStandardStream) {
  const int saved = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  auto counter = *EventCounter::create();
  EXPECT_GT(counter.fd(), STDERR_FILENO);
  EXPECT_EQ(::fcntl(counter.fd(), F_GETFD), FD_CLOEXEC);
  if (saved >= 0) {
    ::dup2(saved, STDIN_FILENO);
    ::close(saved);
  }
}

TEST(Fd, IsClosedInAForkChildWhenPrivate) {
  const Fd closed(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC), false);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool right = ::fcntl(closed.get(), F_GETFD) < 0 && ::fcntl(kept.get(), F_GETFD) >= 0;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GE(::fcntl(closed.get(), F_GETFD), 0);
}

}  // namespace
}  // namespace airdma::io
