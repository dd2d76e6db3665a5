// SPDX-License-Identifier: MIT
#include "runtime/shared_receive_queue.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "runtime/progress.h"
#include "runtime/queue_pair.h"

namespace airdma::runtime {
namespace {

void copy(const model::ReceiveWqe& from, model::ReceiveWqe& to) {
  to.wr_id = from.wr_id;
  to.sge_count = from.sge_count;
  to.length = from.length;
  std::copy_n(from.sges, from.sge_count, to.sges);
}

}  // namespace

SharedReceiveQueue::SharedReceiveQueue(PdId pd, std::uint32_t max_wr, std::uint32_t max_sge,
                                       std::weak_ptr<SharedReceiveObserver> observer)
    : pd_(pd),
      max_sge_(max_sge),
      observer_(std::move(observer)),
      ring_(std::make_unique<model::ReceiveQueue>(max_wr, max_sge, 0)) {}

std::uint32_t SharedReceiveQueue::max_wr() const {
  std::lock_guard lock(lock_);
  return ring_->depth();
}

std::uint32_t SharedReceiveQueue::limit() const {
  std::lock_guard lock(lock_);
  return limit_;
}

// --- Posting ---

void SharedReceiveQueue::publish(std::uint32_t count) {
  ring_->publish(count);
  count_.fetch_add(count, std::memory_order_release);
}

// Waiters get in line under the lock that the receives were published under: they are seen here or
// have seen the receives. Each one that is woken takes what it needs, or leaves it for the next,
// and stands behind the others when it needs more than there is.
void SharedReceiveQueue::receives_posted() {
  if (in_line_.load(std::memory_order_acquire) == 0) return;
  while (const auto queue_pair = next_in_line()) queue_pair->shared_receives_posted();
}

std::shared_ptr<QueuePair> SharedReceiveQueue::next_in_line() {
  std::lock_guard lock(lock_);
  if (first_ == nullptr || ring_->empty()) return nullptr;
  Waiter& waiter = *first_;
  unlink(waiter);
  return waiter.owner_.weak_from_this().lock();
}

// --- Consumers ---

bool SharedReceiveQueue::take(model::ReceiveQueue& queue) {
  bool taken = false;
  bool passed = false;
  {
    std::lock_guard lock(lock_);
    taken = !ring_->empty();
    if (taken) {
      copy(ring_->at(ring_->head()), queue.slot(0));
      ring_->retire();
      count_.fetch_sub(1, std::memory_order_release);
    }
    passed = limit_passed();
  }
  if (taken) queue.publish(1);
  if (!passed) return taken;
  if (const auto progress = Progress::start()) {
    (*progress)->defer([observer = observer_] {
      if (const auto target = observer.lock()) target->on_limit_reached();
    });
  }
  return taken;
}

// Looked at when a receive is taken, and when a message finds none: who arms a limit too late, when
// all are taken already, must still hear of it.
bool SharedReceiveQueue::limit_passed() {
  if (limit_ == 0 || count_.load(std::memory_order_relaxed) >= limit_) return false;
  limit_ = 0;
  return true;
}

bool SharedReceiveQueue::wait(Waiter& waiter) {
  std::lock_guard lock(lock_);
  if (!ring_->empty()) return false;
  if (waiter.waiting_) return true;
  waiter.waiting_ = true;
  waiter.previous_ = last_;
  waiter.next_ = nullptr;
  (last_ != nullptr ? last_->next_ : first_) = &waiter;
  last_ = &waiter;
  in_line_.fetch_add(1, std::memory_order_release);
  return true;
}

void SharedReceiveQueue::cancel(Waiter& waiter) {
  std::lock_guard lock(lock_);
  if (waiter.waiting_) unlink(waiter);
}

void SharedReceiveQueue::unlink(Waiter& waiter) {
  (waiter.previous_ != nullptr ? waiter.previous_->next_ : first_) = waiter.next_;
  (waiter.next_ != nullptr ? waiter.next_->previous_ : last_) = waiter.previous_;
  waiter.previous_ = waiter.next_ = nullptr;
  waiter.waiting_ = false;
  in_line_.fetch_sub(1, std::memory_order_release);
}

// --- Change ---

Status SharedReceiveQueue::modify(const std::uint32_t* max_wr, const std::uint32_t* limit) {
  std::unique_ptr<model::ReceiveQueue> ring;
  if (max_wr != nullptr) ring = std::make_unique<model::ReceiveQueue>(*max_wr, max_sge_, 0);
  std::lock_guard lock(lock_);
  const std::uint32_t size = ring != nullptr ? ring->depth() : ring_->depth();
  const std::uint32_t wanted_limit = limit != nullptr ? *limit : limit_;
  if (wanted_limit > size || count_.load(std::memory_order_relaxed) > size) return fail(EINVAL);
  if (ring != nullptr) resize(std::move(ring));
  limit_ = wanted_limit;
  return {};
}

void SharedReceiveQueue::resize(std::unique_ptr<model::ReceiveQueue> ring) {
  std::uint32_t moved = 0;
  for (; !ring_->empty(); ring_->retire()) copy(ring_->at(ring_->head()), ring->slot(moved++));
  ring->publish(moved);
  ring_ = std::move(ring);
}

}  // namespace airdma::runtime
