// SPDX-License-Identifier: MIT
// A queue pair at work, as posting, completion queues and the verbs layer see it: its rings, its
// state, and the rule of who drives its transport. StreamQueuePair is the one over TCP,
// PacketQueuePair those over RoCEv2.
// Whoever posts, polls or is woken by epoll takes the transport with a try-lock and does what there
// is to do; a thread that does not get it leaves a mark that makes the holder look again.
// Thread-safe. Owned by shared_ptr: the verbs object holds one, the progress thread another while
// the transport is watched.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/memory_reserve.h"
#include "base/spin_lock.h"
#include "model/completion.h"
#include "model/memory.h"
#include "model/qp_state.h"
#include "model/work.h"
#include "runtime/completion_queue.h"
#include "runtime/post_burst.h"
#include "runtime/progress.h"
#include "runtime/shared_receive_queue.h"

namespace airdma::runtime {

using model::QpState;

/// Told about what happens to a queue pair. Called on the progress thread, never with a runtime
/// lock held; not after the observer was removed.
class QueuePairObserver {
 public:
  virtual void on_qp_event(model::QpEvent event) = 0;

 protected:
  ~QueuePairObserver() = default;
};

struct QueuePairConfig {
  model::QpType type = model::QpType::kRc;
  Qpn qpn;
  PdId pd;
  std::uint32_t max_send_wr = 1;
  std::uint32_t max_recv_wr = 1;
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_recv_sge = 1;
  std::uint32_t max_inline_data = 0;
  std::shared_ptr<SharedReceiveQueue> shared_receives = nullptr;  // in place of receives of its own
};

class QueuePair : public Pollable, public std::enable_shared_from_this<QueuePair> {
 public:
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  virtual ~QueuePair();

  [[nodiscard]] Qpn qpn() const { return config_.qpn; }
  [[nodiscard]] QpState state() const { return state_.load(std::memory_order_acquire); }

  // Posting. Fill slots of the ring and publish them while holding its lock, then call the
  // matching *_posted() without it.
  SpinLock& send_lock() { return send_lock_; }
  model::SendQueue& send_queue() { return send_queue_; }
  /// Not for a queue pair with shared receives.
  SpinLock& receive_lock() { return receive_lock_; }
  model::ReceiveQueue& receive_queue() { return receive_queue_; }
  /// Sends that can be posted now. With send_lock(). A request keeps its place until the program
  /// has taken its completion, as on network cards: whoever posts until the queue is full never
  /// overruns a completion queue of the same depth.
  [[nodiscard]] std::uint32_t send_room() const;
  /// `count` requests of `bytes` payload in all. They may wait for more (post_burst.h).
  virtual void sends_posted(std::uint32_t count, std::uint64_t bytes) = 0;
  virtual void receives_posted() = 0;
  /// Before receives are posted, with no lock: nothing that has arrived already may get them.
  virtual void before_receives() {}

  /// In SQD with sends begun that are not complete.
  virtual bool sends_draining() = 0;
  /// To ERR: flushes everything.
  virtual void fail() = 0;
  /// Ends the transport, detaches from the completion queues, forgets all work. Last call.
  virtual void destroy() = 0;

  // Progress.
  /// Does what there is to do for a program that polls: reads until something completes.
  virtual void drive_polling() = 0;
  /// What arrives for it comes through the process's RoCEv2 port.
  [[nodiscard]] virtual bool receives_from_port() const { return false; }
  /// A completion queue was overrun: the queue pair goes to ERR as soon as its transport is free.
  void fail_soon() { drive(kFail); }
  /// Receives that it waited for were posted to its shared receive queue.
  void shared_receives_posted() { drive(kReceives); }
  void on_deadline() override { drive(kDeadline); }
  void on_flush(bool overdue) override;

 protected:
  // What a thread wants done; marks for the thread that holds the transport. Bits from kFirstOwn on
  // are a derived class's own.
  static constexpr std::uint32_t kTransmit = 1;  // work was posted, or the transport has room
  static constexpr std::uint32_t kReceive = 2;   // something arrived
  static constexpr std::uint32_t kReceives = 4;  // receives were posted
  static constexpr std::uint32_t kDeadline = 8;
  static constexpr std::uint32_t kFail = 16;
  static constexpr std::uint32_t kFirstOwn = 32;

  QueuePair(const QueuePairConfig& config, const model::MemoryTable& memory,
            CompletionQueue& send_cq, CompletionQueue& receive_cq,
            std::weak_ptr<QueuePairObserver> observer);

  /// With both or neither. Once the object is owned by a shared_ptr.
  void attach();
  void detach();

  /// True when the requests will go out with later ones, or with the program's next empty poll, or
  /// at the latest when the progress thread calls on_flush().
  [[nodiscard]] bool hold_posts(std::uint32_t count, std::uint64_t bytes);
  /// True when on_flush() will be called.
  [[nodiscard]] bool flush_follows();
  [[nodiscard]] std::uint64_t polls() const { return send_cq_.polls() + receive_cq_.polls(); }
  void drive(std::uint32_t work);
  /// Runs `action` holding the transport, then does the work it and others left.
  template <class Action>
  void with_transport(Action action) {
    const MustNotRunOut memory;  // there is no way back from half of it
    {
      std::lock_guard lock(transport_lock_);
      now_ = Progress::now();
      action();
      pump(pending_.exchange(0, std::memory_order_acq_rel));
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (pending_.load(std::memory_order_relaxed) != 0) drive(0);
  }

  // All below: by the thread that holds transport_lock_.
  /// Does the marked work, and what follows from it.
  virtual void pump(std::uint32_t work) = 0;
  /// Reports `completions` to their queues, and gives the places of sends that are done without one
  /// back. True when there were any.
  bool report(std::span<const model::Completion> completions);
  bool push_run(std::span<const model::Completion> run, bool receive);
  /// Tells the observer, on the progress thread.
  void announce(model::QpEvent event);
  /// Nobody posts from here on; what was posted and its completions are forgotten.
  void forget_work();
  [[nodiscard]] bool receives_waiting() const;

  const QueuePairConfig config_;
  const model::MemoryTable& memory_;
  CompletionQueue& send_cq_;
  CompletionQueue& receive_cq_;
  const std::weak_ptr<QueuePairObserver> observer_;
  std::atomic<QpState> state_{QpState::kReset};

  SpinLock send_lock_;
  SpinLock receive_lock_;
  model::SendQueue send_queue_;
  std::atomic<std::uint64_t> sends_released_{0};  // places given back since creation or reset
  std::uint64_t sends_drained_ = 0;               // head of the queue at the last drain
  model::ReceiveQueue receive_queue_;

  PostBurst burst_;
  std::atomic<bool> flush_listed_{false};  // the progress thread will call on_flush()

  SpinLock transport_lock_;
  std::atomic<std::uint32_t> pending_{0};
  bool destroyed_ = false;
  Time now_{};  // of the current pump
  Time last_success_ = Time::min();
  std::uint64_t send_success_ = 0;  // positions in the completion queues
  std::uint64_t receive_success_ = 0;
};

}  // namespace airdma::runtime
