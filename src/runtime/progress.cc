// SPDX-License-Identifier: MIT
#include "runtime/progress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/process_global.h"
#include "io/fd.h"
#include "io/raw_calls.h"

namespace airdma::runtime {
namespace {

constexpr std::uint32_t kPollsBeforeDelegation = 16;
constexpr Duration kFirstTick = std::chrono::microseconds(50);
constexpr Duration kLongestTick = std::chrono::milliseconds(1);
// The tick follows the time that polling has lasted, so that who stops is noticed soon after a
// short while of polling, and who polls for long is not disturbed.
constexpr int kTickShare = 8;
// How long what is held back waits for the program, or as long as the tick while threads poll; and
// how many such looks find nothing before the thread sleeps on.
constexpr Duration kFlushTick = std::chrono::microseconds(100);
constexpr int kIdleFlushTicks = 50;
constexpr int kBatch = 64;
// How long the thread sleeps at a time when it has lost its descriptors.
constexpr Duration kBlindPause = std::chrono::milliseconds(10);
constexpr std::uint32_t kStreamEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr WatchId kWakeId = 1;
constexpr WatchId kStreamSetId = 2;
constexpr WatchId kFirstId = 16;

timespec to_timespec(Duration duration) {
  const auto ns = std::max<std::int64_t>(duration.count(), 0);
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace

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

  std::mutex mutex;  // all below
  std::unordered_map<WatchId, Entry> entries;
  std::multimap<Time, WatchId> deadlines;
  std::vector<std::function<void()>> tasks;
  std::vector<WatchId> unfinished;
  std::vector<WatchId> away;  // the entries that say so
  WatchId next_id = kFirstId;
  std::vector<std::weak_ptr<Pollable>> held;  // to be flushed
  bool flushing = false;                      // the thread looks at `held` every kFlushTick
  bool flush_wanted = false;
  std::atomic<int> idle_flush_ticks{0};
  Time next_flush{};
  std::atomic<bool> any_held{false};
  Time sleeping_until = Time::max();  // what the thread's current wait ends at

  std::atomic<std::uint64_t> polls{0};  // roughly
  std::atomic<bool> delegated{false};
  std::atomic<int> busy_threads{0};  // that poll, and are at what they found
  // Used by the progress thread alone.
  std::uint64_t polls_seen = 0;
  Duration tick = kFirstTick;
  Time delegated_at{};
  bool stream_set_watched = true;

  Status open();
  void wake() {
    const std::uint64_t one = 1;
    const auto written = io::raw::write(wake_fd.get(), &one, sizeof one);
    if (written < 0 && errno == EBADF) replace_thread();
  }
  void replace_thread();
  /// That it changes is all that counts, so threads may overwrite each other's count.
  void count_poll() {
    polls.store(polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::shared_ptr<Pollable> target_of(WatchId id);
  Result<WatchId> add(int fd, std::shared_ptr<Pollable> target, bool stream, std::uint32_t events);
  void set_deadline(WatchId id, Time deadline);
  void remove_deadline(WatchId id, const Entry& entry);

  /// `replacement`: of a thread that replace_thread() gave up.
  void run(bool replacement);
  void update_delegation();
  void update_flushing();
  void flush_held(bool overdue);
  void watch_stream_set(bool on);
  bool watch_again(Entry& entry, WatchId id);
  void recheck_streams(bool all);
  Duration time_to_sleep();
  /// False when another thread has taken over.
  [[nodiscard]] bool wait_and_dispatch(Duration timeout, bool replacement);
  static void pause_blindly(Duration timeout);
  void dispatch(const epoll_event& event);
  void run_tasks();
  void run_deadlines();
  bool serve_unfinished();
  bool serve_streams();
};

namespace {

void* progress_main(void* argument) {
  ::pthread_setname_np(::pthread_self(), "airdma");
  // Deadlines of tens of microseconds are the point of this thread; the default slack is 50 us.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  auto& state = *static_cast<ProgressState*>(argument);
  state.run(state.lost.load(std::memory_order_acquire));
  return nullptr;
}

Status start_thread(ProgressState& state) {
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
  const int error = ::pthread_create(&thread, &attributes, &progress_main, &state);
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  if (error != 0) return fail(error, "pthread_create");
  return {};
}

Status add_to_set(int set, int fd, std::uint32_t events, WatchId id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0) return fail(errno, "epoll_ctl");
  return {};
}

}  // namespace

// --- Start ---

Status ProgressState::open() {
  control_set = io::Fd(::epoll_create1(EPOLL_CLOEXEC));
  stream_set = io::Fd(::epoll_create1(EPOLL_CLOEXEC));
  wake_fd = io::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!control_set || !stream_set || !wake_fd) return fail(errno, "epoll_create1");
  if (auto status = add_to_set(control_set.get(), wake_fd.get(), EPOLLIN, kWakeId); !status) {
    return status;
  }
  return add_to_set(control_set.get(), stream_set.get(), EPOLLIN, kStreamSetId);
}

Result<Progress*> Progress::start() {
  ProgressState& state = ProcessGlobal<ProgressState>::get();
  if (state.started.load(std::memory_order_acquire)) return &state.progress;
  std::lock_guard lock(state.start_mutex);
  if (state.started.load(std::memory_order_acquire)) return &state.progress;
  if (auto status = state.open(); !status) return std::unexpected(status.error());
  if (auto status = start_thread(state); !status) return std::unexpected(status.error());
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

// --- Registration: any thread ---

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
  if (deadline < state_.sleeping_until) state_.wake();
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
  }
  if (!state_.delegated.load(std::memory_order_acquire)) state_.wake();
}

// --- Threads that poll ---

void Progress::note_empty_poll(std::uint32_t in_a_row) {
  if (in_a_row < kPollsBeforeDelegation) return;
  state_.count_poll();
  if (state_.delegated.load(std::memory_order_relaxed)) return;
  if (!state_.delegated.exchange(true)) state_.wake();
}

bool Progress::note_poll() {
  if (!state_.delegated.load(std::memory_order_relaxed)) return false;
  state_.count_poll();
  return true;
}

void Progress::note_poll_end() {
  if (!state_.delegated.load(std::memory_order_relaxed)) return;
  if (state_.delegated.exchange(false)) state_.wake();
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
  epoll_event events[kBatch];
  const int count = io::raw::epoll_now(stream_set.get(), events, kBatch);
  for (int i = 0; i < count; ++i) {
    if (auto target = target_of(events[i].data.u64)) target->on_ready(events[i].events);
  }
  return count > 0;
}

std::shared_ptr<Pollable> ProgressState::target_of(WatchId id) {
  std::lock_guard lock(mutex);
  const auto found = entries.find(id);
  return found == entries.end() ? nullptr : found->second.target;
}

// --- The thread ---

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

// Taken out rather than watched for nothing: an arrival would still go through both sets, in the
// sender's time on a local path.
void ProgressState::watch_stream_set(bool on) {
  if (on == stream_set_watched) return;
  if (on) {
    // What fails here is tried again at the next look.
    stream_set_watched =
        static_cast<bool>(add_to_set(control_set.get(), stream_set.get(), EPOLLIN, kStreamSetId));
    return;
  }
  stream_set_watched = false;
  ::epoll_ctl(control_set.get(), EPOLL_CTL_DEL, stream_set.get(), nullptr);
}

// Leaves the streams to threads that poll while they do, and takes them back when none has polled
// for a tick.
void ProgressState::update_delegation() {
  if (!delegated.load(std::memory_order_acquire)) {
    tick = kFirstTick;
    watch_stream_set(true);
    recheck_streams(true);
    return;
  }
  const std::uint64_t polls_now = polls.load(std::memory_order_relaxed);
  const bool first_look = stream_set_watched;
  // A poll that finds much may last longer than this thread has slept.
  const bool busy = busy_threads.load(std::memory_order_relaxed) != 0;
  if (!first_look && !busy && polls_now == polls_seen) {
    delegated.store(false, std::memory_order_release);
    tick = kFirstTick;
    watch_stream_set(true);
    recheck_streams(true);
    return;
  }
  if (!first_look) recheck_streams(false);
  const Time now = Progress::now();
  if (first_look) delegated_at = now;
  tick = std::clamp((now - delegated_at) / kTickShare, kFirstTick, kLongestTick);
  polls_seen = polls_now;
  watch_stream_set(false);
}

// Whoever holds something back counts on the thread only once it has seen that it looks.
void ProgressState::update_flushing() {
  if (const Time now = Progress::now(); flushing && now >= next_flush) {
    // Each look takes a processor from a program that polls, and will most likely flush itself.
    next_flush = now + (stream_set_watched ? kFlushTick : std::max(kFlushTick, tick));
    flush_held(true);
    ++idle_flush_ticks;
  }
  std::lock_guard lock(mutex);
  if (std::exchange(flush_wanted, false)) {
    next_flush = Progress::now() + kFlushTick;
    flushing = true;
    idle_flush_ticks = 0;
  } else if (flushing && idle_flush_ticks > kIdleFlushTicks && held.empty()) {
    flushing = false;
  }
}

bool Progress::flush_later(std::weak_ptr<Pollable> target) {
  {
    std::lock_guard lock(state_.mutex);
    if (state_.flushing) {
      state_.held.push_back(std::move(target));
      state_.idle_flush_ticks = 0;
      state_.any_held.store(true, std::memory_order_release);
      return true;
    }
    if (std::exchange(state_.flush_wanted, true)) return false;
  }
  state_.wake();
  return false;
}

void Progress::flush_held() { ProcessGlobal<ProgressState>::get().flush_held(false); }

void ProgressState::flush_held(bool overdue) {
  if (!any_held.load(std::memory_order_acquire)) return;
  std::vector<std::weak_ptr<Pollable>> batch;
  {
    std::lock_guard lock(mutex);
    any_held.store(false, std::memory_order_relaxed);
    batch.swap(held);
  }
  for (const auto& weak : batch) {
    if (const auto target = weak.lock()) target->on_flush(overdue);
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
  return std::max(until - now, Duration::zero());
}

bool ProgressState::wait_and_dispatch(Duration timeout, bool replacement) {
  epoll_event events[kBatch];
  const timespec limit = to_timespec(timeout);
  int count = ::epoll_pwait2(control_set.get(), events, kBatch,
                             timeout == Duration::max() ? nullptr : &limit, nullptr);
  // Before Linux 5.11, or in a sandbox that does not know the call.
  if (count < 0 && (errno == ENOSYS || errno == EPERM)) {
    using std::chrono::milliseconds;
    const auto ms =
        std::chrono::ceil<milliseconds>(std::min(timeout, Duration(std::chrono::hours(1))));
    count = ::epoll_wait(control_set.get(), events, kBatch,
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
  if (!start_thread(*this)) lost.store(false, std::memory_order_release);
}

void ProgressState::pause_blindly(Duration timeout) {
  const timespec pause = to_timespec(std::min(timeout, kBlindPause));
  ::nanosleep(&pause, nullptr);
}

void ProgressState::dispatch(const epoll_event& event) {
  if (event.data.u64 == kWakeId) {
    std::uint64_t value = 0;
    [[maybe_unused]] const auto rc = ::read(wake_fd.get(), &value, sizeof value);
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

bool ProgressState::serve_unfinished() {
  std::vector<WatchId> batch;
  {
    std::lock_guard lock(mutex);
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

}  // namespace airdma::runtime
