// SPDX-License-Identifier: MIT
#include "runtime/completion_queue.h"

#include <fcntl.h>

#include <algorithm>

#include "base/event_wait.h"
#include "runtime/progress.h"
#include "runtime/queue_pair.h"

namespace airdma::runtime {
namespace {

// With more queue pairs than this on a queue one epoll_wait is cheaper than asking each socket.
constexpr std::size_t kDriveDirectly = 4;
// A polling thread serves the other streams of the process once in so many empty polls.
constexpr std::uint32_t kServeOthersEvery = 16;

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
  std::lock_guard lock(mutex_);
  queues_.push_back(queue);
}

void CompletionChannel::withdraw(CompletionQueue* queue) {
  std::lock_guard lock(mutex_);
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

Result<void*> CompletionChannel::pop() {
  const EventWait* wait = EventWait::current;
  const bool sleeps = (::fcntl(counter_.fd(), F_GETFL) & O_NONBLOCK) == 0;
  for (;;) {
    // A thread that comes back from its wait is counted already.
    if (sleeps && (wait == nullptr || wait->state != EventWait::State::kDone)) {
      std::lock_guard lock(mutex_);
      ++sleepers_;
      if (entries_.empty()) remind();
    }
    const auto status = counter_.consume();
    if (!status && wait != nullptr && wait->state == EventWait::State::kWanted) {
      return std::unexpected(status.error());
    }
    std::lock_guard lock(mutex_);
    if (sleeps) --sleepers_;
    if (!status) return std::unexpected(status.error());
    // Empty when purge() took the entry between the read and here: wait for the next one.
    if (entries_.empty()) continue;
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

CompletionQueue::CompletionQueue(std::uint32_t capacity, CompletionChannel* channel, void* entry)
    : capacity_(std::max(capacity, 1u)),
      channel_(channel),
      entry_(entry),
      ring_(new Entry[capacity_]) {
  if (channel_ != nullptr) channel_->enroll(this);
}

CompletionQueue::~CompletionQueue() {
  if (channel_ != nullptr) channel_->withdraw(this);
}

bool CompletionQueue::push(const model::Completion& completion, std::uint64_t* position,
                           std::atomic<std::uint64_t>* released) {
  bool notify = false;
  bool overflow = false;
  bool accepted = false;
  {
    lock_.lock();
    accepted = !overrun_ && tail_ - head_ < capacity_;
    if (accepted) {
      ring_[tail_++ % capacity_] = {completion, released};
      if (position != nullptr) *position = tail_;
      available_.store(static_cast<std::uint32_t>(tail_ - head_), std::memory_order_release);
      notify = notify_ == NotifyMode::kAny ||
               (notify_ == NotifyMode::kSolicited && completion.solicited);
      if (notify) notify_ = NotifyMode::kNone;
    } else {
      overflow = !overrun_;
      overrun_ = true;
    }
    lock_.unlock();
  }
  if (notify && channel_ != nullptr) channel_->push(entry_);
  if (overflow && overflow_handler_ != nullptr) overflow_handler_(overflow_context_);
  return accepted;
}

bool CompletionQueue::seen(std::uint64_t position) {
  lock_.lock();
  // discard() moves later completions to earlier positions; an empty queue has kept none back.
  const bool taken = head_ >= position || head_ == tail_;
  lock_.unlock();
  return taken;
}

int CompletionQueue::take(int count, model::Completion* out) {
  lock_.lock();
  int taken = 0;
  while (taken < count && head_ != tail_) {
    const Entry& entry = ring_[head_++ % capacity_];
    release(entry);
    out[taken++] = entry.completion;
  }
  available_.store(static_cast<std::uint32_t>(tail_ - head_), std::memory_order_relaxed);
  const bool broken = overrun_ && head_ == tail_;
  lock_.unlock();
  return taken == 0 && broken && count > 0 ? -1 : taken;
}

int CompletionQueue::poll(int count, model::Completion* out) {
  if (available_.load(std::memory_order_acquire) == 0) {
    drive_transport();
  } else {
    empty_polls_.store(0, std::memory_order_relaxed);
  }
  return take(count, out);
}

void CompletionQueue::drive_transport() {
  const std::uint32_t empties = empty_polls_.load(std::memory_order_relaxed) + 1;
  empty_polls_.store(empties, std::memory_order_relaxed);
  if (!members_mutex_.try_lock()) return;
  std::lock_guard lock(members_mutex_, std::adopt_lock);
  if (members_.empty()) return;
  Progress* progress = progress_;
  if (progress == nullptr) {
    auto started = Progress::start();
    if (!started) return;
    progress = progress_ = *started;
  }
  progress->note_empty_poll(empties);
  const bool directly = members_.size() <= kDriveDirectly;
  if (directly) {
    for (const Member& member : members_) member.queue_pair->drive_polling();
  }
  if (!directly || empties % kServeOthersEvery == 0) progress->serve_ready_streams();
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
  if (empty_polls_.exchange(0, std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(members_mutex_);
  if (progress_ != nullptr) progress_->note_poll_end();
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
  const bool overdue = notify_ == NotifyMode::kAny && (head_ != tail_ || silent_write_);
  if (overdue) notify_ = NotifyMode::kNone;
  lock_.unlock();
  return overdue;
}

void CompletionQueue::attach(QueuePair* queue_pair) {
  std::lock_guard lock(members_mutex_);
  for (Member& member : members_) {
    if (member.queue_pair == queue_pair) {
      ++member.roles;
      return;
    }
  }
  members_.push_back({queue_pair, 1});
}

void CompletionQueue::detach(QueuePair* queue_pair) {
  std::lock_guard lock(members_mutex_);
  for (auto member = members_.begin(); member != members_.end(); ++member) {
    if (member->queue_pair != queue_pair) continue;
    if (--member->roles == 0) members_.erase(member);
    return;
  }
}

void CompletionQueue::discard(Qpn qpn) {
  lock_.lock();
  std::uint64_t kept = head_;
  for (std::uint64_t i = head_; i != tail_; ++i) {
    const Entry entry = ring_[i % capacity_];
    if (entry.completion.qpn == qpn) {
      release(entry);
    } else {
      ring_[kept++ % capacity_] = entry;
    }
  }
  tail_ = kept;
  available_.store(static_cast<std::uint32_t>(tail_ - head_), std::memory_order_release);
  lock_.unlock();
}

}  // namespace airdma::runtime
