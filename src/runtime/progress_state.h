// SPDX-License-Identifier: MIT
// What the progress thread and the threads that call it have in common (progress.h says what it is
// for). By mechanism: progress.cc has the registered descriptors and deadlines, progress_thread.cc
// the thread's loop, progress_delegation.cc the streams left to threads that poll, and
// progress_flush.cc what is held back for a moment.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "io/fd.h"
#include "runtime/poll_habit.h"
#include "runtime/progress.h"

namespace airdma::runtime {

// Names in the control set; those of registered descriptors begin with kFirstId.
inline constexpr WatchId kWakeId = 1;
inline constexpr WatchId kStreamSetId = 2;
inline constexpr WatchId kTimerId = 3;
inline constexpr WatchId kFirstId = 16;
inline constexpr std::uint32_t kStreamEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
inline constexpr int kEventsAtOnce = 64;
/// How often the thread looks whether others still poll, at first.
inline constexpr Duration kFirstTick = std::chrono::microseconds(50);

struct ProgressState {
  ProgressState() : progress(*this) {}

  struct Entry {
    int fd = -1;
    bool stream = false;
    std::shared_ptr<Pollable> target;
    Time deadline = Time::max();
    bool queued = false;  // in `unfinished`
    bool away = false;    // a stream, in its set no more: a thread that polls looks after it
  };

  Progress progress;
  std::mutex start_mutex;
  std::atomic<bool> started{false};
  std::atomic<bool> lost{false};  // the program has closed the descriptors: see replace_thread()
  io::Fd control_set;
  io::Fd stream_set;
  io::Fd wake_fd;
  io::Fd timer_fd;  // none where the system has none

  std::mutex mutex;  // all below
  std::unordered_map<WatchId, Entry> entries;
  std::multimap<Time, WatchId> deadlines;
  std::vector<std::function<void()>> tasks;
  std::vector<WatchId> unfinished;
  std::atomic<bool> any_unfinished{false};  // written under the lock, so that most look without it
  std::vector<WatchId> away;  // the entries that say so
  WatchId next_id = kFirstId;
  std::vector<std::weak_ptr<Pollable>> held;  // to be flushed
  bool flushing = false;                      // the thread looks at `held` every kFlushTick
  bool flush_wanted = false;
  std::atomic<int> idle_flush_ticks{0};
  Time next_flush{};
  std::atomic<bool> any_held{false};
  Time sleeping_until = Time::max();  // what the thread's current wait ends at
  Time timer_at = Time::max();        // when `timer_fd` expires

  std::atomic<std::uint64_t> polls{0};  // roughly
  std::atomic<bool> delegated{false};
  std::atomic<int> busy_threads{0};  // that poll, and are at what they found
  PollHabit habit;
  // Written with it; `mutex` may be taken behind it, not before.
  std::mutex watch_mutex;
  std::atomic<bool> stream_set_watched{true};
  // Used by the progress thread alone.
  std::uint64_t polls_seen = 0;
  Duration tick = kFirstTick;
  Time delegated_at{};

  Status open();
  Status start_thread();
  /// Ends the thread's sleep.
  void wake();
  void replace_thread();
  /// That it changes is all that counts, so threads may overwrite each other's count.
  void count_poll() {
    polls.store(polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::shared_ptr<Pollable> target_of(WatchId id);
  Result<WatchId> add(int fd, std::shared_ptr<Pollable> target, bool stream, std::uint32_t events);
  void remove_deadline(WatchId id, const Entry& entry);

  /// `replacement`: of a thread that replace_thread() gave up.
  void run(bool replacement);
  void update_delegation();
  void take_streams_back();
  void give_streams_back();
  void update_flushing();
  void flush_held(bool overdue);
  void watch_stream_set(bool on);
  bool watch_again(Entry& entry, WatchId id);
  void recheck_streams(bool all);
  Duration time_to_sleep();
  bool set_timer(Time until);
  void take_timer();
  /// False when another thread has taken over.
  [[nodiscard]] bool wait_and_dispatch(Duration timeout, bool replacement);
  static void pause_blindly(Duration timeout);
  void dispatch(const epoll_event& event);
  void run_tasks();
  void run_deadlines();
  bool serve_unfinished();
  bool serve_streams();
};

[[nodiscard]] Status add_to_set(int set, int fd, std::uint32_t events, WatchId id);

}  // namespace airdma::runtime
