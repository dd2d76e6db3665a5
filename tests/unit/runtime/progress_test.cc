// SPDX-License-Identifier: MIT
#include "runtime/progress.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/fd.h"

namespace airdma::runtime {
namespace {

class Probe : public Pollable {
 public:
  void on_ready(std::uint32_t events) override { ready.set_value(events); }
  void on_deadline() override { deadline.set_value(Progress::now()); }

  std::promise<std::uint32_t> ready;
  std::promise<Time> deadline;
};

TEST(Progress, RunsDeferredCallsInOrder) {
  Progress* progress = *Progress::start();
  std::vector<int> order;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) progress->defer([&order, i] { order.push_back(i); });
  progress->defer([&] { done.set_value(); });
  done.get_future().wait();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Progress, CallsAtTheDeadlineAndNotBefore) {
  Progress* progress = *Progress::start();
  const auto probe = std::make_shared<Probe>();
  const WatchId id = *progress->add_control(Progress::kNoDescriptor, probe);
  const Time due = Progress::now() + std::chrono::milliseconds(2);
  progress->set_deadline(id, due);
  EXPECT_GE(probe->deadline.get_future().get(), due);
  progress->remove(id);
}

TEST(Progress, ReplacesAndCancelsDeadlines) {
  Progress* progress = *Progress::start();
  const auto cancelled = std::make_shared<Probe>();
  const auto later = std::make_shared<Probe>();
  const WatchId first = *progress->add_control(Progress::kNoDescriptor, cancelled);
  const WatchId second = *progress->add_control(Progress::kNoDescriptor, later);
  const Time start = Progress::now();
  progress->set_deadline(first, start + std::chrono::milliseconds(1));
  progress->set_deadline(first, Time::max());
  progress->set_deadline(second, start + std::chrono::hours(1));
  progress->set_deadline(second, start + std::chrono::milliseconds(3));
  later->deadline.get_future().wait();
  auto never = cancelled->deadline.get_future();
  EXPECT_EQ(never.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  progress->remove(first);
  progress->remove(second);
}

// Each is earlier or later than what the thread sleeps for, or has just been woken for.
TEST(Progress, CallsAllOfManyDeadlinesFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  Progress* progress = *Progress::start();
  const auto set_some = [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      const auto probe = std::make_shared<Probe>();
      const WatchId id = *progress->add_control(Progress::kNoDescriptor, probe);
      const Time due = Progress::now() + std::chrono::microseconds((i * 37 + thread * 11) % 300);
      progress->set_deadline(id, due + std::chrono::hours(1));
      progress->set_deadline(id, due);
      EXPECT_GE(probe->deadline.get_future().get(), due);
      progress->remove(id);
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(set_some, i);
}

TEST(Progress, ReportsReadableControlDescriptors) {
  Progress* progress = *Progress::start();
  auto counter = *io::EventCounter::create();
  const auto probe = std::make_shared<Probe>();
  const WatchId id = *progress->add_control(counter.fd(), probe);
  progress->watch(id, EPOLLIN | EPOLLONESHOT);
  counter.post();
  EXPECT_NE(probe->ready.get_future().get() & EPOLLIN, 0u);
  progress->remove(id);
}

TEST(Progress, KeepsATargetAliveUntilItIsRemoved) {
  Progress* progress = *Progress::start();
  auto probe = std::make_shared<Probe>();
  const std::weak_ptr<Probe> watched = probe;
  const WatchId id = *progress->add_control(Progress::kNoDescriptor, std::move(probe));
  EXPECT_FALSE(watched.expired());
  progress->remove(id);
  progress->remove(id);  // harmless
  EXPECT_TRUE(watched.expired());
}

TEST(Progress, ServesStreamsWhetherSomebodyPollsOrNot) {
  Progress* progress = *Progress::start();
  progress->note_empty_poll(1000);  // delegated from here on
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const io::Fd read_end(ends[0]);
  const io::Fd write_end(ends[1]);
  const auto probe = std::make_shared<Probe>();
  const WatchId id = *progress->add_stream(read_end.get(), probe);
  ASSERT_EQ(::write(write_end.get(), "x", 1), 1);
  // Nobody polls any more, so the progress thread takes the streams back by itself.
  EXPECT_NE(probe->ready.get_future().get() & EPOLLIN, 0u);
  progress->remove(id);
}

// In a process of its own, which then behaves like a daemon that closes every descriptor.
[[noreturn]] void close_everything_and_rest() {
  Progress* progress = *Progress::start();
  // While the thread is awake: one that sleeps in a set that is closed hears of nothing any more.
  std::promise<void> closed;
  progress->defer([&] {
    ::close_range(3, ~0u, 0);
    closed.set_value();
  });
  closed.get_future().wait();
  const timespec rest{0, 300'000'000};
  timespec before{};
  timespec after{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  ::nanosleep(&rest, nullptr);
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const auto used = (after.tv_sec - before.tv_sec) * 1'000'000'000 + after.tv_nsec - before.tv_nsec;
  std::promise<void> done;
  progress->defer([&] { done.set_value(); });
  done.get_future().wait();
  ::_exit(used < rest.tv_nsec / 4 ? 0 : 1);
}

/// Whether the progress thread waits in the kernel.
bool progress_thread_sleeps() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::string id;
    std::string state;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "airdma") continue;
    std::ifstream(task.path() / "stat") >> id >> name >> state;
    return state == "S";
  }
  return false;
}

// The same, while the thread sleeps: in a set that is closed it hears of nothing any more.
[[noreturn]] void close_everything_under_a_sleeper() {
  Progress* progress = *Progress::start();
  std::promise<void> awake;
  progress->defer([&] { awake.set_value(); });
  awake.get_future().wait();
  while (!progress_thread_sleeps()) ::sched_yield();
  ::close_range(3, ~0u, 0);
  std::vector<int> order;
  std::promise<void> done;
  for (int i = 0; i < 3; ++i) progress->defer([&order, i] { order.push_back(i); });
  progress->defer([&] { done.set_value(); });
  done.get_future().wait();
  ::_exit(order == std::vector{0, 1, 2} ? 0 : 1);
}

TEST(Progress, AnswersWhenTheProgramClosedItsDescriptorsMeanwhile) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under the thread sanitizer a forked child cannot start threads";
#endif
  EXPECT_EXIT(close_everything_under_a_sleeper(), testing::ExitedWithCode(0), "");
}

TEST(Progress, RestsWhenTheProgramClosesItsDescriptors) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under the thread sanitizer a forked child cannot start threads";
#endif
  EXPECT_EXIT(close_everything_and_rest(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace airdma::runtime
