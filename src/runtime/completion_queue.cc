// SPDX-License-Identifier: MIT
#include "runtime/completion_queue.h"

#include <fcntl.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/event_wait.h"
#include "runtime/progress.h"
#include "runtime/queue_pair.h"
#include "runtime/roce_port.h"

namespace airdma::runtime {
namespace {

// With more queue pairs than this on a queue nobody asks each of them: one epoll_wait tells of
// their sockets, if they have any, and those that hold something back are listed.
constexpr std::size_t kDriveDirectly = 4;
// A polling thread serves the other streams of the process once in so many empty polls.
constexpr std::uint32_t kServeOthersEvery = 16;
// ... and one that finds something as often, because what it finds takes it longer.
constexpr std::uint64_t kTellOfPollsEvery = 16;

// A channel with more queues than this is not looked at by those who wait at it.
constexpr std::size_t kMostWatched = 8;

std::uint64_t read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

CompletionRing make_ring(std::uint32_t capacity, bool timed, void* memory) {
  capacity = std::max(capacity, 1u);
  return memory != nullptr ? CompletionRing(capacity, timed, memory)
                           : CompletionRing(capacity, timed);
}

CompletionTime time_now() { return {read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_REALTIME)}; }

}  // namespace

// --- CompletionChannel ---

Result<std::unique_ptr<CompletionChannel>> CompletionChannel::create() {
  auto counter = io::EventCounter::create();
  if (!counter) return std::unexpected(counter.error());
  auto channel = std::make_unique<CompletionChannel>();
  channel->counter_ = std::move(*counter);
  return channel;
}

void CompletionChannel::push(void* entry) {
  // Both under the lock: purge() must not find the entry without its count.
  std::lock_guard lock(mutex_);
  entries_.push_back(entry);
  counter_.post();
}

void CompletionChannel::enroll(CompletionQueue* queue) {
  std::scoped_lock lock(watch_mutex_, mutex_);
  queues_.push_back(queue);
}

void CompletionChannel::withdraw(CompletionQueue* queue) {
  std::scoped_lock lock(watch_mutex_, mutex_);
  std::erase(queues_, queue);
}

// A program that sleeps here although completions wait in an armed queue would sleep for ever when
// no other comes. Network cards wake it, because they compare what was polled with what is there
// when they are armed; perftest 4.5 with -e, which polls 16 completions for each event, lives by
// that. Only a sleeper is reminded: who empties the queue first never gets an event too many.
void CompletionChannel::remind() {
  for (CompletionQueue* queue : queues_) {
    if (!queue->take_overdue_notification()) continue;
    entries_.push_back(queue->entry());
    counter_.post();
  }
}

void CompletionChannel::wake_sleeper() {
  std::lock_guard lock(mutex_);
  if (sleepers_ > 0 && entries_.empty()) remind();
}

bool CompletionChannel::has_entry() {
  std::lock_guard lock(mutex_);
  return !entries_.empty();
}

// Makes the transport of the armed queues work. False when there is nothing to look at.
bool CompletionChannel::look() {
  if (queues_.size() > kMostWatched) return false;
  bool armed = false;
  for (CompletionQueue* queue : queues_) armed |= queue->watch();
  return armed;
}

// An answer that comes while the program would still be falling asleep, and waking up, is found
// by its own thread instead: two wake-ups less, of the progress thread and of this one. Between two
// looks the processor is anybody's.
void CompletionChannel::watch() {
  const std::unique_lock watcher(watch_mutex_, std::try_to_lock);
  if (!watcher) return;
  const Time end = Progress::now() + WatchPolicy::kWatch;
  Time now{};
  bool found = false;
  for (;;) {
    const bool armed = look();
    found = has_entry();
    now = Progress::now();
    if (found || !armed || now >= end) break;
    ::sched_yield();
  }
  if (!found) {
    for (CompletionQueue* queue : queues_) queue->end_watch();
  }
  live_.store(found, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  policy_.looked(found, now);
}

void CompletionChannel::begin_wait() {
  {
    std::lock_guard lock(mutex_);
    ++sleepers_;
    if (entries_.empty()) remind();
    const bool looks = policy_.begin(Progress::now());
    // Whoever comes for an event that is there may have slept for it elsewhere, in poll(2).
    live_.store(false, std::memory_order_relaxed);
    if (!looks || !entries_.empty()) return;
  }
  watch();
}

Result<void*> CompletionChannel::pop() {
  const EventWait* wait = EventWait::current;
  const bool sleeps = (::fcntl(counter_.fd(), F_GETFL) & O_NONBLOCK) == 0;
  for (;;) {
    // A thread that comes back from its wait is counted already.
    if (sleeps && (wait == nullptr || wait->state != EventWait::State::kDone)) begin_wait();
    const auto status = counter_.consume();
    if (!status && wait != nullptr && wait->state == EventWait::State::kWanted) {
      return std::unexpected(status.error());
    }
    std::lock_guard lock(mutex_);
    if (sleeps) --sleepers_;
    if (!status) return std::unexpected(status.error());
    // Empty when purge() took the entry between the read and here: wait for the next one.
    if (entries_.empty()) continue;
    if (sleeps) policy_.ended(Progress::now());
    void* entry = entries_.front();
    entries_.pop_front();
    return entry;
  }
}

void CompletionChannel::purge(void* entry) {
  std::lock_guard lock(mutex_);
  const auto removed = std::erase(entries_, entry);
  for (std::size_t i = 0; i < removed; ++i)
    [[maybe_unused]] const bool taken = counter_.consume_if_any();
}

// --- CompletionQueue ---

CompletionQueue::CompletionQueue(std::uint32_t capacity, CompletionChannel* channel, void* entry,
                                 CompletionQueueOptions options)
    : channel_(channel),
      entry_(entry),
      options_(options),
      ring_(make_ring(capacity, options.timed, options.memory)) {
  if (channel_ != nullptr) channel_->enroll(this);
}

CompletionQueue::~CompletionQueue() {
  if (channel_ != nullptr) channel_->withdraw(this);
}

std::uint32_t CompletionQueue::capacity() {
  std::lock_guard lock(lock_);
  return ring_.capacity();
}

Status CompletionQueue::resize(std::uint32_t capacity, void* memory) {
  // The memory is got, and the old one given back, outside the lock.
  CompletionRing ring = make_ring(capacity, options_.timed, memory);
  std::lock_guard lock(lock_);
  if (ring_.size() > ring.capacity()) return fail(EINVAL, "resize");
  ring.take_over(ring_);
  std::swap(ring_, ring);
  return {};
}

// With the lock: times are in the order of the queue.
bool CompletionQueue::accept(const CompletionRing::Entry& entry) {
  if (overrun_) return false;
  if (ring_.full()) {
    if (!options_.ignores_overrun) return false;
    while (ring_.full()) release(ring_.pop(nullptr));
  }
  ring_.push(entry, options_.timed ? time_now() : CompletionTime{});
  return true;
}

bool CompletionQueue::take_notification(bool solicited) {
  const bool notify =
      notify_ == NotifyMode::kAny || (notify_ == NotifyMode::kSolicited && solicited);
  if (notify) notify_ = NotifyMode::kNone;
  return notify;
}

std::size_t CompletionQueue::push(std::span<const model::Completion> completions,
                                  std::uint64_t* position, std::atomic<std::uint64_t>* released) {
  lock_.lock();
  std::size_t accepted = 0;
  bool notify = false;
  while (accepted < completions.size() && accept({completions[accepted], released})) {
    if (take_notification(completions[accepted++].solicited)) notify = true;
  }
  update_available();
  if (accepted != 0 && position != nullptr) *position = ring_.tail();
  const bool overflow = accepted < completions.size() && !overrun_;
  if (overflow) overrun_ = true;
  lock_.unlock();
  if (notify && channel_ != nullptr) channel_->push(entry_);
  if (overflow) {
    if (overflow_handler_ != nullptr) overflow_handler_(overflow_context_);
    fail_members();
  }
  return accepted;
}

// None of them can report any more. The caller may hold the transport of one and members_lock_, so
// this happens later, on the progress thread, when the queue itself may be gone.
void CompletionQueue::fail_members() {
  const auto progress = Progress::start();
  if (!progress) return;  // then each fails at its next completion
  std::lock_guard lock(list_mutex_);
  for (QueuePair* const member : members_) {
    (*progress)->defer([weak = member->weak_from_this()] {
      if (const auto queue_pair = weak.lock()) queue_pair->fail_soon();
    });
  }
}

bool CompletionQueue::seen(std::uint64_t position) {
  std::lock_guard lock(lock_);
  // discard() moves later completions to earlier positions; an empty queue has kept none back.
  return ring_.head() >= position || ring_.empty();
}

int CompletionQueue::take(int count, model::Completion* out, CompletionTime* times) {
  lock_.lock();
  int taken = 0;
  // Places are given back together as long as they are one queue pair's.
  std::atomic<std::uint64_t>* released = nullptr;
  std::uint64_t places = 0;
  while (taken < count && !ring_.empty()) {
    const auto entry = ring_.pop(times != nullptr ? times + taken : nullptr);
    out[taken++] = entry.completion;
    if (entry.released != released) {
      if (released != nullptr) released->fetch_add(places, std::memory_order_release);
      released = entry.released;
      places = 0;
    }
    ++places;
  }
  if (released != nullptr) released->fetch_add(places, std::memory_order_release);
  update_available();
  const bool broken = overrun_ && ring_.empty();
  lock_.unlock();
  return taken == 0 && broken && count > 0 ? -1 : taken;
}

int CompletionQueue::poll(int count, model::Completion* out, CompletionTime* times) {
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (available_.load(std::memory_order_acquire) == 0) {
    drive_transport();
    if (available_.load(std::memory_order_acquire) == 0 &&
        !overrun_.load(std::memory_order_relaxed)) {
      return 0;
    }
  } else {
    if (polls % kTellOfPollsEvery == 0) tell_of_polls();
  }
  const int taken = take(count, out, times);
  if (taken > 0 && available_.load(std::memory_order_relaxed) == 0) tell_of_end();
  return taken;
}

// A program that always finds something polls, too: the streams stay its own.
void CompletionQueue::tell_of_polls() {
  Progress* const progress = progress_.load(std::memory_order_relaxed);
  if (progress != nullptr && progress->note_poll()) progress->serve_ready_streams();
}

// It may be what the program has polled for.
void CompletionQueue::tell_of_end() {
  if (Progress* const progress = progress_.load(std::memory_order_relaxed)) progress->note_found();
}

void CompletionQueue::drive_transport() {
  if (!members_lock_.try_lock()) return;
  std::lock_guard lock(members_lock_, std::adopt_lock);
  const std::uint32_t empties = empty_polls_.load(std::memory_order_relaxed) + 1;
  empty_polls_.store(empties, std::memory_order_relaxed);
  if (members_.empty() && port_users_ == 0) return;
  Progress* progress = progress_.load(std::memory_order_relaxed);
  if (progress == nullptr) {
    auto started = Progress::start();
    if (!started) return;
    progress = *started;
    progress_.store(progress, std::memory_order_relaxed);
  }
  progress->note_empty_poll(empties);
  if (port_users_ != 0) RocePort::get().poll();
  const bool directly = members_.size() <= kDriveDirectly;
  if (directly) {
    for (QueuePair* const member : members_) member->drive_polling();
  } else {
    Progress::flush_held();
  }
  const bool by_epoll = !directly && stream_members_ != 0;
  // What brought something is likely to bring more.
  if (by_epoll || others_busy_ || empties % kServeOthersEvery == 0) {
    others_busy_ = progress->serve_ready_streams();
  }
}

void CompletionQueue::request_notify(bool solicited_only) {
  lock_.lock();
  silent_write_ = false;
  if (!solicited_only) {
    notify_ = NotifyMode::kAny;
  } else if (notify_ == NotifyMode::kNone) {
    notify_ = NotifyMode::kSolicited;
  }
  lock_.unlock();
  Progress::flush_held();  // the program is about to sleep
  if (channel_ == nullptr || !channel_->expects_watcher()) end_watch();
}

bool CompletionQueue::watch() {
  lock_.lock();
  const bool armed = notify_ != NotifyMode::kNone;
  lock_.unlock();
  if (armed) drive_transport();
  return armed;
}

void CompletionQueue::end_watch() {
  if (empty_polls_.exchange(0, std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(members_lock_);
  if (Progress* const progress = progress_.load(std::memory_order_relaxed)) {
    progress->note_poll_end();
  }
}

// perftest's clients of SEND sleep, with -e, in their send queue's channel and wait for credits
// that the other side writes into their memory. With a NIC their sends complete late enough to wake
// them after that; over TCP they complete when the kernel has taken them, and no event would
// follow.
void CompletionQueue::note_silent_write() {
  if (channel_ == nullptr) return;
  lock_.lock();
  const bool armed = notify_ == NotifyMode::kAny;
  silent_write_ = armed;
  lock_.unlock();
  if (armed) channel_->wake_sleeper();
}

bool CompletionQueue::take_overdue_notification() {
  lock_.lock();
  const bool overdue = notify_ == NotifyMode::kAny && (!ring_.empty() || silent_write_);
  if (overdue) notify_ = NotifyMode::kNone;
  lock_.unlock();
  return overdue;
}

void CompletionQueue::use_port(int change) {
  std::scoped_lock lock(members_lock_, list_mutex_);
  port_users_ += change;
}

void CompletionQueue::count(const QueuePair& queue_pair, int change) {
  (queue_pair.receives_from_port() ? port_users_ : stream_members_) += change;
}

void CompletionQueue::attach(QueuePair* queue_pair) {
  std::scoped_lock lock(members_lock_, list_mutex_);
  members_.push_back(queue_pair);
  count(*queue_pair, 1);
}

void CompletionQueue::detach(QueuePair* queue_pair) {
  std::scoped_lock lock(members_lock_, list_mutex_);
  const auto member = std::ranges::find(members_, queue_pair);
  if (member == members_.end()) return;
  count(*queue_pair, -1);
  members_.erase(member);
}

void CompletionQueue::discard(Qpn qpn) {
  std::lock_guard lock(lock_);
  ring_.filter([qpn](const CompletionRing::Entry& entry) {
    const bool keep = entry.completion.qpn != qpn;
    if (!keep) release(entry);
    return keep;
  });
  update_available();
}

}  // namespace airdma::runtime
