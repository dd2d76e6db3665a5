// SPDX-License-Identifier: MIT
// The progress thread itself: how it starts, sleeps and is replaced, and what it does in a round.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "io/address_watch.h"
#include "io/raw_calls.h"
#include "runtime/progress.h"
#include "runtime/progress_state.h"

namespace airdma::runtime {
namespace {

// How long the thread sleeps at a time when it has lost its descriptors.
constexpr Duration kBlindPause = std::chrono::milliseconds(10);
// Shorter waits are given to the wait itself: looks after threads that poll come to nothing more
// often than not, and each that is not needed any more would wake the thread all the same.
constexpr Duration kLongWait = std::chrono::milliseconds(1);
// How long after its timer the thread wakes all the same: the program may have closed the timer.
constexpr Duration kTimerGrace = std::chrono::seconds(1);

timespec to_timespec(Duration duration) {
  const auto ns = std::max<std::int64_t>(duration.count(), 0);
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

void* progress_main(void* argument) {
  ::pthread_setname_np(::pthread_self(), "airdma");
  // Deadlines of tens of microseconds are the point of this thread; the default slack is 50 us.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  io::AddressWatch::this_thread_stays();
  auto& state = *static_cast<ProgressState*>(argument);
  state.run(state.lost.load(std::memory_order_acquire));
  return nullptr;
}

}  // namespace

Status ProgressState::start_thread() {
  sigset_t all;
  sigset_t former;
  ::sigfillset(&all);
  // Guarded accesses end by these (io/fault_handler.h); blocked, a fault would end the process.
  ::sigdelset(&all, SIGSEGV);
  ::sigdelset(&all, SIGBUS);
  ::pthread_sigmask(SIG_SETMASK, &all, &former);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const int error = ::pthread_create(&thread, &attributes, &progress_main, this);
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  if (error != 0) return fail(error, "pthread_create");
  return {};
}

void ProgressState::wake() {
  const std::uint64_t one = 1;
  const auto written = io::raw::write(wake_fd.get(), &one, sizeof one);
  if (written < 0 && errno == EBADF) replace_thread();
}

void ProgressState::run(bool replacement) {
  for (;;) {
    update_delegation();
    update_flushing();
    if (!wait_and_dispatch(time_to_sleep(), replacement)) return;
    run_tasks();
    run_deadlines();
    if (stream_set_watched) serve_unfinished();
  }
}

Duration ProgressState::time_to_sleep() {
  std::lock_guard lock(mutex);
  Time until = deadlines.empty() ? Time::max() : deadlines.begin()->first;
  const bool busy = !tasks.empty() || (stream_set_watched && !unfinished.empty());
  const Time now = Progress::now();
  if (busy) until = now;
  if (!stream_set_watched || !away.empty()) until = std::min(until, now + tick);
  if (flushing) until = std::min(until, next_flush);
  sleeping_until = until;
  if (until == Time::max()) return Duration::max();
  if (until <= now) return Duration::zero();
  const bool timed = (until >= timer_at || until - now >= kLongWait) && set_timer(until);
  return timed ? until - now + kTimerGrace : until - now;
}

// With the mutex. A timer that goes on when the thread is woken for something else: to set one, and
// to stop it, costs more than all else that the thread does for a message, on a virtual machine.
// One that is set for an earlier time stays, and wakes the thread for nothing once.
// False when only the wait itself can end in time.
bool ProgressState::set_timer(Time until) {
  if (!timer_fd || lost.load(std::memory_order_relaxed)) return false;
  if (until >= timer_at) return true;
  itimerspec when{};
  when.it_value = to_timespec(until.time_since_epoch());
  if (::timerfd_settime(timer_fd.get(), TFD_TIMER_ABSTIME, &when, nullptr) < 0) return false;
  timer_at = until;
  return true;
}

void ProgressState::take_timer() {
  std::lock_guard lock(mutex);
  std::uint64_t times = 0;
  if (io::raw::read(timer_fd.get(), &times, sizeof times) > 0) timer_at = Time::max();
}

bool ProgressState::wait_and_dispatch(Duration timeout, bool replacement) {
  epoll_event events[kEventsAtOnce];
  const timespec limit = to_timespec(timeout);
  int count = ::epoll_pwait2(control_set.get(), events, kEventsAtOnce,
                             timeout == Duration::max() ? nullptr : &limit, nullptr);
  // Before Linux 5.11, or in a sandbox that does not know the call.
  if (count < 0 && (errno == ENOSYS || errno == EPERM)) {
    using std::chrono::milliseconds;
    const auto ms =
        std::chrono::ceil<milliseconds>(std::min(timeout, Duration(std::chrono::hours(1))));
    count = ::epoll_wait(control_set.get(), events, kEventsAtOnce,
                         timeout == Duration::max() ? -1 : static_cast<int>(ms.count()));
  }
  if (!replacement && lost.load(std::memory_order_acquire)) return false;
  if (count < 0 && errno != EINTR) pause_blindly(timeout);
  {
    std::lock_guard lock(mutex);
    sleeping_until = Time::min();  // awake: nobody needs to wake us
  }
  for (int i = 0; i < count; ++i) dispatch(events[i]);
  return true;
}

// The program has closed descriptors that are not its own, as daemons do with all they find. Its
// connections are gone with theirs; what it still calls gets its answers, late but without
// spinning.
// A thread that sleeps in a set which is closed meanwhile hears of nothing any more, and nothing
// ends its sleep. Who wants to wake it and cannot starts another one, which finds no set and goes
// on blindly; the first, if anything should wake it, leaves.
void ProgressState::replace_thread() {
  if (lost.exchange(true, std::memory_order_acq_rel)) return;
  if (!start_thread()) lost.store(false, std::memory_order_release);
}

void ProgressState::pause_blindly(Duration timeout) {
  const timespec pause = to_timespec(std::min(timeout, kBlindPause));
  ::nanosleep(&pause, nullptr);
}

void ProgressState::dispatch(const epoll_event& event) {
  if (event.data.u64 == kWakeId) {
    std::uint64_t value = 0;
    [[maybe_unused]] const auto rc = ::read(wake_fd.get(), &value, sizeof value);
  } else if (event.data.u64 == kTimerId) {
    take_timer();
  } else if (event.data.u64 == kStreamSetId) {
    if (!delegated.load(std::memory_order_acquire)) serve_streams();
  } else if (auto target = target_of(event.data.u64)) {
    target->on_ready(event.events);
  }
}

void ProgressState::run_tasks() {
  std::vector<std::function<void()>> batch;
  {
    std::lock_guard lock(mutex);
    batch.swap(tasks);
  }
  for (auto& task : batch) task();
}

void ProgressState::run_deadlines() {
  const Time now = Progress::now();
  for (;;) {
    std::shared_ptr<Pollable> target;
    {
      std::lock_guard lock(mutex);
      if (deadlines.empty() || deadlines.begin()->first > now) return;
      const auto found = entries.find(deadlines.begin()->second);
      deadlines.erase(deadlines.begin());
      if (found == entries.end()) continue;
      found->second.deadline = Time::max();
      target = found->second.target;
    }
    target->on_deadline();
  }
}

}  // namespace airdma::runtime
