// SPDX-License-Identifier: MIT
// Descriptors, deadlines and tasks, and how they come to the thread.
#include "runtime/progress.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/process_global.h"
#include "runtime/progress_state.h"

namespace airdma::runtime {

Status add_to_set(int set, int fd, std::uint32_t events, WatchId id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0) return fail(errno, "epoll_ctl");
  return {};
}

// Start.

Status ProgressState::open() {
  control_set = io::Fd(::epoll_create1(EPOLL_CLOEXEC));
  stream_set = io::Fd(::epoll_create1(EPOLL_CLOEXEC));
  wake_fd = io::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!control_set || !stream_set || !wake_fd) return fail(errno, "epoll_create1");
  if (auto status = add_to_set(control_set.get(), wake_fd.get(), EPOLLIN, kWakeId); !status) {
    return status;
  }
  timer_fd = io::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (timer_fd && !add_to_set(control_set.get(), timer_fd.get(), EPOLLIN, kTimerId)) {
    timer_fd.reset();
  }
  return add_to_set(control_set.get(), stream_set.get(), EPOLLIN, kStreamSetId);
}

Result<Progress*> Progress::start() {
  ProgressState& state = ProcessGlobal<ProgressState>::get();
  if (state.started.load(std::memory_order_acquire)) return &state.progress;
  std::lock_guard lock(state.start_mutex);
  if (state.started.load(std::memory_order_acquire)) return &state.progress;
  if (auto status = state.open(); !status) return std::unexpected(status.error());
  if (auto status = state.start_thread(); !status) return std::unexpected(status.error());
  state.started.store(true, std::memory_order_release);
  return &state.progress;
}

namespace {
Time read_clock(clockid_t clock) {
  timespec value{};
  ::clock_gettime(clock, &value);
  return Time(std::chrono::seconds(value.tv_sec) + std::chrono::nanoseconds(value.tv_nsec));
}
}  // namespace

Time Progress::now() { return read_clock(CLOCK_MONOTONIC); }
Time Progress::coarse_now() { return read_clock(CLOCK_MONOTONIC_COARSE); }

// Registration: any thread.

Result<WatchId> ProgressState::add(int fd, std::shared_ptr<Pollable> target, bool stream,
                                   std::uint32_t events) {
  WatchId id = 0;
  {
    std::lock_guard lock(mutex);
    id = next_id++;
    entries.emplace(id, Entry{fd, stream, std::move(target)});
  }
  if (fd == Progress::kNoDescriptor) return id;
  const auto status = add_to_set(stream ? stream_set.get() : control_set.get(), fd, events, id);
  if (status) return id;
  std::lock_guard lock(mutex);
  entries.erase(id);
  return std::unexpected(status.error());
}

Result<WatchId> Progress::add_control(int fd, std::shared_ptr<Pollable> target,
                                      std::uint32_t events) {
  return state_.add(fd, std::move(target), false, events);
}

Result<WatchId> Progress::add_stream(int fd, std::shared_ptr<Pollable> target) {
  return state_.add(fd, std::move(target), true, kStreamEvents);
}

void Progress::watch(WatchId id, std::uint32_t events) {
  std::lock_guard lock(state_.mutex);
  const auto found = state_.entries.find(id);
  if (found == state_.entries.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  ::epoll_ctl(state_.control_set.get(), EPOLL_CTL_MOD, found->second.fd, &event);
}

void ProgressState::remove_deadline(WatchId id, const Entry& entry) {
  if (entry.deadline == Time::max()) return;
  const auto [first, last] = deadlines.equal_range(entry.deadline);
  const auto found = std::find_if(first, last, [&](const auto& pair) { return pair.second == id; });
  if (found != last) deadlines.erase(found);
}

void Progress::set_deadline(WatchId id, Time deadline) {
  std::lock_guard lock(state_.mutex);
  const auto found = state_.entries.find(id);
  if (found == state_.entries.end() || found->second.deadline == deadline) return;
  state_.remove_deadline(id, found->second);
  found->second.deadline = deadline;
  if (deadline == Time::max()) return;
  state_.deadlines.emplace(deadline, id);
  if (deadline >= state_.sleeping_until) return;
  if (state_.set_timer(deadline)) {
    state_.sleeping_until = deadline;
  } else {
    state_.wake();
  }
}

void Progress::remove(WatchId id) {
  std::shared_ptr<Pollable> last_reference;  // may run a destructor: not under the lock
  std::lock_guard lock(state_.mutex);
  const auto found = state_.entries.find(id);
  if (found == state_.entries.end()) return;
  state_.remove_deadline(id, found->second);
  const int set = found->second.stream ? state_.stream_set.get() : state_.control_set.get();
  if (found->second.away) {
    std::erase(state_.away, id);
  } else if (found->second.fd != kNoDescriptor) {
    ::epoll_ctl(set, EPOLL_CTL_DEL, found->second.fd, nullptr);
  }
  last_reference = std::move(found->second.target);
  state_.entries.erase(found);
}

void Progress::defer(std::function<void()> task) {
  {
    std::lock_guard lock(state_.mutex);
    state_.tasks.push_back(std::move(task));
    if (state_.tasks.size() > 1) return;  // the first one woke the thread
  }
  state_.wake();
}

void Progress::serve_later(WatchId id) {
  {
    std::lock_guard lock(state_.mutex);
    const auto found = state_.entries.find(id);
    if (found == state_.entries.end() || found->second.queued) return;
    found->second.queued = true;
    state_.unfinished.push_back(id);
    state_.any_unfinished.store(true, std::memory_order_release);
  }
  if (!state_.delegated.load(std::memory_order_acquire)) state_.wake();
}

std::shared_ptr<Pollable> ProgressState::target_of(WatchId id) {
  std::lock_guard lock(mutex);
  const auto found = entries.find(id);
  return found == entries.end() ? nullptr : found->second.target;
}

}  // namespace airdma::runtime
