// SPDX-License-Identifier: MIT
// Streams of threads that poll: left to them while they do, and taken back when they stop.
#include <errno.h>
#include <sys/epoll.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "io/raw_calls.h"
#include "runtime/progress.h"
#include "runtime/progress_state.h"

namespace airdma::runtime {
namespace {

constexpr std::uint32_t kPollsBeforeDelegation = 16;
constexpr Duration kLongestTick = std::chrono::milliseconds(1);
// The tick follows the time that polling has lasted, so that who stops is noticed soon after a
// short while of polling, and who polls for long is not disturbed.
constexpr int kTickShare = 8;

}  // namespace

// Any thread.

void Progress::note_empty_poll(std::uint32_t in_a_row) {
  if (in_a_row < kPollsBeforeDelegation) return;
  state_.count_poll();
  state_.habit.found_nothing();
  if (state_.delegated.load(std::memory_order_relaxed)) return;
  if (state_.delegated.exchange(true)) return;
  state_.habit.polling_begins(now());
  state_.wake();
}

bool Progress::note_poll() {
  if (!state_.delegated.load(std::memory_order_relaxed)) return false;
  state_.count_poll();
  return true;
}

void Progress::note_found() {
  if (!state_.delegated.load(std::memory_order_relaxed) || !state_.habit.found()) return;
  state_.habit.given_back(now());
  note_poll_end();
}

void Progress::note_poll_end() {
  if (!state_.delegated.load(std::memory_order_relaxed)) return;
  if (state_.delegated.exchange(false)) state_.give_streams_back();
}

bool Progress::delegated() const { return state_.delegated.load(std::memory_order_relaxed); }

bool Progress::leave_to_poller(WatchId id) {
  std::lock_guard lock(state_.mutex);
  // Under the lock: who takes the streams back clears this first and takes the lock then, so it
  // finds every stream that was left before.
  if (!state_.delegated.load(std::memory_order_acquire)) return false;
  const auto found = state_.entries.find(id);
  if (found == state_.entries.end()) return false;
  if (found->second.away) return true;
  ::epoll_ctl(state_.stream_set.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  found->second.away = true;
  state_.away.push_back(id);
  return true;
}

void Progress::watch_again(WatchId id) {
  std::shared_ptr<Pollable> target;
  {
    std::lock_guard lock(state_.mutex);
    const auto found = state_.entries.find(id);
    if (found == state_.entries.end() || !state_.watch_again(found->second, id)) return;
    target = found->second.target;
  }
  target->on_watched_again();
}

// With the lock. Being added anew, the descriptor reports what it is ready for at once: nothing
// that came in between is missed.
bool ProgressState::watch_again(Entry& entry, WatchId id) {
  if (!entry.away) return false;
  const auto status = add_to_set(stream_set.get(), entry.fd, kStreamEvents, id);
  // For want of memory it is tried again. What else fails is for ever: a descriptor that the
  // program has closed.
  if (!status && (status.error().code == ENOMEM || status.error().code == ENOSPC)) return false;
  entry.away = false;
  std::erase(away, id);
  return true;
}

// Watches again what was left to threads that poll and is polled no more, or all of it.
void ProgressState::recheck_streams(bool all) {
  std::vector<WatchId> batch;
  {
    std::lock_guard lock(mutex);
    if (away.empty()) return;
    batch = away;
  }
  for (const WatchId id : batch) {
    const auto target = target_of(id);
    if (target && (all || !target->still_polled())) progress.watch_again(id);
  }
}

void Progress::begin_busy() { state_.busy_threads.fetch_add(1, std::memory_order_relaxed); }
void Progress::end_busy() { state_.busy_threads.fetch_sub(1, std::memory_order_relaxed); }

bool Progress::serve_ready_streams() {
  begin_busy();
  const bool ready = state_.serve_streams();
  // While threads poll, nobody else looks after these: their edges are used up.
  const bool unfinished = state_.serve_unfinished();
  end_busy();
  return ready || unfinished;
}

bool ProgressState::serve_streams() {
  epoll_event events[kEventsAtOnce];
  const int count = io::raw::epoll_now(stream_set.get(), events, kEventsAtOnce);
  for (int i = 0; i < count; ++i) {
    if (auto target = target_of(events[i].data.u64)) target->on_ready(events[i].events);
  }
  return count > 0;
}

bool ProgressState::serve_unfinished() {
  if (!any_unfinished.load(std::memory_order_acquire)) return false;
  std::vector<WatchId> batch;
  {
    std::lock_guard lock(mutex);
    any_unfinished.store(false, std::memory_order_relaxed);
    if (unfinished.empty()) return false;
    batch.swap(unfinished);
    for (const WatchId id : batch) {
      if (const auto found = entries.find(id); found != entries.end()) found->second.queued = false;
    }
  }
  for (const WatchId id : batch) {
    if (auto target = target_of(id)) target->on_ready(EPOLLIN);
  }
  return true;
}

// The progress thread.

// Taken out rather than watched for nothing: an arrival would still go through both sets, in the
// sender's time on a local path.
void ProgressState::watch_stream_set(bool on) {
  if (on == stream_set_watched.load(std::memory_order_relaxed)) return;
  if (on) {
    // What fails here is tried again at the next look.
    stream_set_watched =
        static_cast<bool>(add_to_set(control_set.get(), stream_set.get(), EPOLLIN, kStreamSetId));
    return;
  }
  stream_set_watched = false;
  ::epoll_ctl(control_set.get(), EPOLL_CTL_DEL, stream_set.get(), nullptr);
}

// With watch_mutex.
void ProgressState::take_streams_back() {
  watch_stream_set(true);
  recheck_streams(true);
}

// By a thread that polls no more. The progress thread sleeps on, in a set that has the streams
// again: waking it to do the same would cost two switches of threads when something is about to
// arrive.
void ProgressState::give_streams_back() {
  bool all = false;
  {
    std::lock_guard watching(watch_mutex);
    // Another thread has begun to poll, and has woken the progress thread.
    if (delegated.load(std::memory_order_acquire)) return;
    take_streams_back();
    all = stream_set_watched.load(std::memory_order_relaxed);
  }
  {
    std::lock_guard lock(mutex);
    if (!unfinished.empty() || !away.empty()) all = false;
  }
  if (!all) wake();
}

// Leaves the streams to threads that poll while they do, and takes them back when none has polled
// for a tick.
void ProgressState::update_delegation() {
  std::lock_guard watching(watch_mutex);
  if (!delegated.load(std::memory_order_acquire)) {
    tick = kFirstTick;
    return take_streams_back();
  }
  const std::uint64_t polls_now = polls.load(std::memory_order_relaxed);
  const bool first_look = stream_set_watched.load(std::memory_order_relaxed);
  // A poll that finds much may last longer than this thread has slept.
  const bool busy = busy_threads.load(std::memory_order_relaxed) != 0;
  if (!first_look && !busy && polls_now == polls_seen) {
    delegated.store(false, std::memory_order_release);
    habit.polling_ended();
    tick = kFirstTick;
    return take_streams_back();
  }
  if (!first_look) recheck_streams(false);
  const Time now = Progress::now();
  if (first_look) delegated_at = now;
  tick = std::clamp((now - delegated_at) / kTickShare, kFirstTick, kLongestTick);
  // Who is expected to give the streams back is looked after in case, and not soon.
  if (habit.learned()) tick = kLongestTick;
  polls_seen = polls_now;
  watch_stream_set(false);
}

}  // namespace airdma::runtime
