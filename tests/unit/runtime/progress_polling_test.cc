// SPDX-License-Identifier: MIT
// What threads that poll owe to the streams they took from the progress thread.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "io/fd.h"
#include "runtime/progress.h"

namespace airdma::runtime {
namespace {

/// A stream that has always more to do, and notes which thread did it.
class Endless : public Pollable {
 public:
  Endless(Progress& progress, std::thread::id poller) : progress_(progress), poller_(poller) {}

  void on_ready(std::uint32_t) override {
    if (std::this_thread::get_id() == poller_) by_poller_.fetch_add(1);
    progress_.serve_later(id);
  }
  void on_deadline() override {}
  [[nodiscard]] int by_poller() const { return by_poller_.load(); }

  std::atomic<WatchId> id{0};

 private:
  Progress& progress_;
  const std::thread::id poller_;
  std::atomic<int> by_poller_{0};
};

// No edge comes again for a stream that was left unfinished, and the progress thread leaves all
// streams to threads that poll: so those have to come back for it.
TEST(Progress, ThreadsThatPollServeUnfinishedStreams) {
  Progress* progress = *Progress::start();
  const auto stream = std::make_shared<Endless>(*progress, std::this_thread::get_id());
  stream->id = *progress->add_control(Progress::kNoDescriptor, stream);
  progress->note_empty_poll(1000);  // delegated from here on
  progress->serve_later(stream->id);
  // The progress thread takes its turns when this one is off the processor for long.
  constexpr int kRounds = 10000;
  for (int i = 0; i < kRounds && stream->by_poller() < 10; ++i) {
    progress->note_empty_poll(1000);
    progress->serve_ready_streams();
  }
  EXPECT_EQ(stream->by_poller(), 10);
  progress->remove(stream->id);
}

// A thread whose polls find something polls, too, but does not begin it: until some have found
// nothing the streams are the progress thread's.
TEST(Progress, PollsThatFindSomethingKeepTheStreams) {
  Progress* progress = *Progress::start();
  progress->note_poll_end();
  EXPECT_FALSE(progress->note_poll());
  const auto stream = std::make_shared<Endless>(*progress, std::this_thread::get_id());
  stream->id = *progress->add_control(Progress::kNoDescriptor, stream);
  progress->note_empty_poll(1000);  // delegated from here on
  progress->serve_later(stream->id);
  constexpr int kRounds = 10000;
  for (int i = 0; i < kRounds && stream->by_poller() < 10; ++i) {
    if (progress->note_poll()) {
      progress->serve_ready_streams();
    } else {
      progress->note_empty_poll(1000);  // this thread was off the processor for long
    }
  }
  EXPECT_EQ(stream->by_poller(), 10);
  progress->remove(stream->id);
  progress->note_poll_end();
}

/// A stream that a thread polls as long as the test says so.
class Left : public Pollable {
 public:
  void on_ready(std::uint32_t events) override {
    if ((events & EPOLLIN) != 0 && !served_.exchange(true)) served.set_value();
  }
  void on_deadline() override {}
  bool still_polled() override { return polled.load(); }
  void on_watched_again() override {
    if (!watched_again_.exchange(true)) watched_again.set_value();
  }

  std::atomic<bool> polled{true};
  std::promise<void> served;
  std::promise<void> watched_again;

 private:
  std::atomic<bool> served_{false};
  std::atomic<bool> watched_again_{false};
};

class LeftStream : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    near_ = io::Fd(ends[0]);
    far_ = io::Fd(ends[1]);
    id_ = *progress_->add_stream(near_.get(), stream_);
    leave();
  }
  void TearDown() override { progress_->remove(id_); }
  /// The progress thread takes streams back when this thread is off the processor for long.
  void leave() {
    do {
      progress_->note_empty_poll(1000);
    } while (!progress_->leave_to_poller(id_));
  }
  void arrive() { ASSERT_EQ(::send(far_.get(), "x", 1, 0), 1); }
  void expect_served() { stream_->served.get_future().wait(); }

  Progress* progress_ = *Progress::start();
  std::shared_ptr<Left> stream_ = std::make_shared<Left>();
  io::Fd near_;
  io::Fd far_;
  WatchId id_ = 0;
};

/// A stream that brings so much that its thread polls again late: not before the progress thread
/// has looked several times.
class Long : public Pollable {
 public:
  Long(Progress& progress, std::thread::id poller) : progress_(progress), poller_(poller) {}
  void on_ready(std::uint32_t) override {
    if (std::this_thread::get_id() != poller_) return;
    for (int looks = 0; looks < 20; ++looks) {
      std::promise<void> look;  // deferred calls are made after a look
      progress_.defer([&] { look.set_value(); });
      look.get_future().wait();
    }
    stayed = progress_.delegated();
  }
  void on_deadline() override {}

  bool stayed = false;

 private:
  Progress& progress_;
  const std::thread::id poller_;
};

TEST(Progress, LeavesStreamsToAThreadThatIsBusyWithThem) {
  Progress* progress = *Progress::start();
  const auto stream = std::make_shared<Long>(*progress, std::this_thread::get_id());
  const WatchId id = *progress->add_control(Progress::kNoDescriptor, stream);
  constexpr int kRounds = 1000;  // the progress thread may be there first
  for (int i = 0; i < kRounds && !stream->stayed; ++i) {
    progress->note_empty_poll(1000);
    progress->serve_later(id);
    (void)progress->serve_ready_streams();
  }
  EXPECT_TRUE(stream->stayed);
  progress->remove(id);
}

// What came while nobody watched is reported when somebody does again, and the rest of the process
// need not stop polling for it.
TEST_F(LeftStream, IsWatchedAgainWhenItsThreadPollsNoMore) {
  arrive();
  auto again = stream_->watched_again.get_future();
  stream_->polled = false;
  while (again.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    progress_->note_empty_poll(1000);
  }
  progress_->note_poll_end();
  expect_served();
}

TEST_F(LeftStream, IsWatchedAgainWhenNobodyPolls) {
  arrive();
  expect_served();
}

TEST_F(LeftStream, IsWatchedAgainAtTheEndOfPolling) {
  progress_->note_poll_end();
  stream_->watched_again.get_future().wait();
  arrive();
  expect_served();
}

// The same without a word from the program, when its polling has ended that way some times before.
TEST_F(LeftStream, IsWatchedAgainAfterThePollThatFoundWhatWasPolledFor) {
  // Each time the progress thread notices, when it looks, that nobody has polled since.
  for (int times = 0; progress_->delegated(); ++times) {
    progress_->note_found();
    if (!progress_->delegated()) break;
    ASSERT_LT(times, 1000);
    while (progress_->delegated()) std::this_thread::yield();
    progress_->note_empty_poll(1000);
  }
  stream_->watched_again.get_future().wait();
  arrive();
  expect_served();
}

TEST_F(LeftStream, IsWatchedAgainOnDemand) {
  arrive();
  progress_->watch_again(id_);
  stream_->watched_again.get_future().wait();
  progress_->note_poll_end();
  expect_served();
}

TEST_F(LeftStream, IsForgottenWhenRemoved) {
  progress_->remove(id_);
  EXPECT_FALSE(progress_->leave_to_poller(id_));
  progress_->watch_again(id_);
  arrive();
  progress_->note_poll_end();
  std::promise<void> turn;
  progress_->defer([&] { turn.set_value(); });
  turn.get_future().wait();
  EXPECT_EQ(stream_.use_count(), 1);
}

// A thread leaves its stream again and again while others end polling: every arrival is served.
TEST(Progress, LosesNoArrivalWhileStreamsAreLeftAndTakenBack) {
  Progress* progress = *Progress::start();
  for (int i = 0; i < 200; ++i) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    const io::Fd near(ends[0]);
    const io::Fd far(ends[1]);
    const auto stream = std::make_shared<Left>();
    const WatchId id = *progress->add_stream(near.get(), stream);
    std::thread poller([&] {
      for (int polls = 0; polls < 50; ++polls) {
        progress->note_empty_poll(1000);
        [[maybe_unused]] const bool left = progress->leave_to_poller(id);
      }
      stream->polled = false;
    });
    ASSERT_EQ(::send(far.get(), "x", 1, 0), 1);
    progress->note_poll_end();
    poller.join();
    stream->served.get_future().wait();
    progress->remove(id);
  }
}

}  // namespace
}  // namespace airdma::runtime
