// SPDX-License-Identifier: MIT
// A shared receive queue: receives that many queue pairs draw from, each when a message needs one.
// Thread-safe: one spin lock, held for the copy of one work request. Nothing is allocated after
// creation but by resize(). A queue pair that finds it empty waits in line, and who posts wakes
// those in line as long as there is something for them; with nobody in line a post looks at one
// counter. Lock order: a queue pair's transport, then this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "model/work.h"

namespace airdma::runtime {

class QueuePair;

/// Told about a shared receive queue, on the progress thread, with no runtime lock held.
class SharedReceiveObserver {
 public:
  /// Fewer receives are left than the armed limit. Once for each time it was armed.
  virtual void on_limit_reached() = 0;

 protected:
  ~SharedReceiveObserver() = default;
};

class SharedReceiveQueue final : public model::SharedReceives {
 public:
  /// A queue pair's place in line. It leaves the line (cancel) before the queue pair ends.
  class Waiter {
   public:
    explicit Waiter(QueuePair& owner) : owner_(owner) {}
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    friend class SharedReceiveQueue;
    QueuePair& owner_;
    bool waiting_ = false;
    Waiter* previous_ = nullptr;
    Waiter* next_ = nullptr;
  };

  /// max_wr >= 1; `pd` is the domain of the receives' buffers.
  SharedReceiveQueue(PdId pd, std::uint32_t max_wr, std::uint32_t max_sge,
                     std::weak_ptr<SharedReceiveObserver> observer);

  [[nodiscard]] PdId pd() const { return pd_; }
  [[nodiscard]] std::uint32_t max_sge() const { return max_sge_; }
  [[nodiscard]] std::uint32_t max_wr() const;
  /// The armed limit; 0 when none is.
  [[nodiscard]] std::uint32_t limit() const;
  [[nodiscard]] bool empty() const { return count_.load(std::memory_order_acquire) == 0; }

  // Posting: fill slots of the ring and publish them through publish() while holding the lock,
  // then call receives_posted() without it.
  SpinLock& lock() { return lock_; }
  model::ReceiveQueue& queue() { return *ring_; }
  void publish(std::uint32_t count);
  void receives_posted();

  // Consumers, each holding its transport.
  bool take(model::ReceiveQueue& queue) override;
  /// Stands in line. False, and not in line, when there are receives.
  bool wait(Waiter& waiter);
  void cancel(Waiter& waiter);

  /// Changes what the values are given for. EINVAL when the queue holds more than `max_wr`, or a
  /// limit, armed or to be armed, is above the size.
  Status modify(const std::uint32_t* max_wr, const std::uint32_t* limit);

 private:
  std::shared_ptr<QueuePair> next_in_line();
  void unlink(Waiter& waiter);
  void resize(std::unique_ptr<model::ReceiveQueue> ring);
  bool limit_passed();

  const PdId pd_;
  const std::uint32_t max_sge_;
  const std::weak_ptr<SharedReceiveObserver> observer_;
  mutable SpinLock lock_;
  std::unique_ptr<model::ReceiveQueue> ring_;
  std::uint32_t limit_ = 0;
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  std::atomic<std::uint32_t> count_{0};    // receives in the ring
  std::atomic<std::uint32_t> in_line_{0};  // waiters
};

}  // namespace airdma::runtime
