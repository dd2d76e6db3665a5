// SPDX-License-Identifier: MIT
// Completion queues and completion channels as the queue pairs and the verbs layer share them.
// Thread-safe. A completion queue outlives the queue pairs that report to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "io/fd.h"
#include "model/completion.h"
#include "runtime/completion_ring.h"
#include "runtime/watch_policy.h"

namespace airdma::runtime {

class CompletionQueue;
class Progress;
class QueuePair;

/// Queue of notifications behind an ibv_comp_channel. Entries are opaque to this class.
class CompletionChannel {
 public:
  static Result<std::unique_ptr<CompletionChannel>> create();

  [[nodiscard]] int fd() const { return counter_.fd(); }
  void push(void* entry);
  /// The oldest entry. Blocks unless the program made fd() non-blocking (EAGAIN). EINTR.
  Result<void*> pop();
  /// Drops all entries of `entry`.
  void purge(void* entry);

  // For CompletionQueue's constructor and destructor.
  void enroll(CompletionQueue* queue);
  void withdraw(CompletionQueue* queue);
  /// Wakes a thread that sleeps in pop(), by an event of a queue whose notification is overdue.
  void wake_sleeper();
  /// Whether the thread that arms a queue now is likely to look for its event itself, in pop(), as
  /// it did for the last one.
  [[nodiscard]] bool expects_watcher() const { return live_.load(std::memory_order_relaxed); }

 private:
  void remind();
  void begin_wait();
  void watch();
  bool look();
  bool has_entry();

  std::mutex watch_mutex_;  // of the thread that looks; before mutex_
  std::mutex mutex_;
  int sleepers_ = 0;  // threads in pop() that will block or do
  std::vector<CompletionQueue*> queues_;  // changed under both, read under either
  std::deque<void*> entries_;
  WatchPolicy policy_;
  std::atomic<bool> live_{false};  // the last event was found by a look
  io::EventCounter counter_;
};

enum class NotifyMode : std::uint8_t { kNone, kSolicited, kAny };

struct CompletionQueueOptions {
  bool timed = false;  // each completion gets its time
  /// The program promises that the queue is never overrun: a completion that finds no room takes
  /// the place of the oldest one, and nothing fails.
  bool ignores_overrun = false;
  /// Where the entries are, if not in memory of the queue's own (CompletionRing::bytes_for).
  void* memory = nullptr;
};

class CompletionQueue {
 public:
  /// `capacity` >= 1 entries. `channel` may be null; `entry` is what is pushed to it.
  CompletionQueue(std::uint32_t capacity, CompletionChannel* channel, void* entry,
                  CompletionQueueOptions options = {});
  ~CompletionQueue();

  [[nodiscard]] std::uint32_t capacity();
  [[nodiscard]] bool timed() const { return options_.timed; }
  /// Keeps what is queued. EINVAL when that is more than `capacity`. `memory`: as at the beginning;
  /// the former memory is free when this has succeeded.
  Status resize(std::uint32_t capacity, void* memory = nullptr);

  // Producers (queue pairs).
  /// False when the queue was or is overrun: the completion is lost, and the first time
  /// `on_overflow` (set below) is called and all queue pairs of the queue fail. `position`, if
  /// given, names the completion to seen(). `released`, if given, is raised by one when the program
  /// takes the completion or discard() removes it.
  bool push(const model::Completion& completion, std::uint64_t* position = nullptr,
            std::atomic<std::uint64_t>* released = nullptr) {
    return push(std::span(&completion, 1), position, released) == 1;
  }
  /// The same for several at once: how many were taken, from the first on. `position` is the last
  /// one's.
  std::size_t push(std::span<const model::Completion> completions, std::uint64_t* position,
                   std::atomic<std::uint64_t>* released);
  /// Whether the program has taken the completion that got this position.
  [[nodiscard]] bool seen(std::uint64_t position);

  // Consumer.
  /// Moves up to `count` completions to `out`; returns how many, or -1 after an overrun (when all
  /// that was queued before it has been taken). An empty queue makes the transport work first, on
  /// this thread. `times`, if given, has room for as many; a queue without times leaves it alone.
  int poll(int count, model::Completion* out, CompletionTime* times = nullptr);
  /// How often the program has polled, roughly: that it changes is what it is good for.
  [[nodiscard]] std::uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
  /// Whether requests that complete here are posted many at a time (PostBurst::expects_more).
  [[nodiscard]] std::atomic<bool>& bursts() { return bursts_; }
  /// Arms one notification: the next completion (or the next solicited one) pushes to the channel.
  /// Arming for any completion is not weakened by arming for solicited ones.
  void request_notify(bool solicited_only);
  /// Makes the transport work, on this thread, for one that would sleep until the next event. False
  /// when the queue is not armed.
  bool watch();
  /// The thread sleeps now.
  void end_watch();
  /// The peer has written into memory of a queue pair that has no work request left, so no
  /// completion can tell a program that sleeps and waits for just that.
  void note_silent_write();
  /// Disarms a queue that is armed for any completion although it holds some, or although there
  /// was a silent write since it was armed. False when it is not.
  bool take_overdue_notification();
  [[nodiscard]] void* entry() const { return entry_; }

  /// Called once, outside the lock, when the queue is overrun.
  void set_overflow_handler(void (*handler)(void* context), void* context) {
    overflow_handler_ = handler;
    overflow_context_ = context;
  }

  /// Queue pairs whose transport poll() may drive. Each is attached once, also when it is both its
  /// send and its receive queue.
  void attach(QueuePair* queue_pair);
  void detach(QueuePair* queue_pair);
  /// One user more (1) or less (-1) whose completions come through the process's RoCEv2 port, which
  /// poll() asks then: a queue pair of that kind, or a shared receive queue of an XRC domain.
  void use_port(int change);
  /// Removes completions of a queue pair that is reset or destroyed.
  void discard(Qpn qpn);

 private:
  int take(int count, model::Completion* out, CompletionTime* times);
  bool accept(const CompletionRing::Entry& entry);
  bool take_notification(bool solicited);
  void fail_members();
  void drive_transport();
  void count(const QueuePair& queue_pair, int change);
  void tell_of_polls();
  void tell_of_end();
  static void release(const CompletionRing::Entry& entry) {
    if (entry.released != nullptr) entry.released->fetch_add(1, std::memory_order_release);
  }
  void update_available() { available_.store(ring_.size(), std::memory_order_release); }

  CompletionChannel* channel_;
  void* entry_;
  const CompletionQueueOptions options_;
  SpinLock lock_;
  CompletionRing ring_;
  std::atomic<bool> overrun_{false};  // written under the lock
  NotifyMode notify_ = NotifyMode::kNone;
  bool silent_write_ = false;  // since it was armed
  std::atomic<std::uint32_t> available_{0};
  void (*overflow_handler_)(void*) = nullptr;
  void* overflow_context_ = nullptr;
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<bool> bursts_{false};
  std::atomic<std::uint32_t> empty_polls_{0};  // since a notification was requested
  bool others_busy_ = false;  // the last look at streams of other queues found some
  // Held while the members are driven; a change of the list takes the second one too, which alone
  // is enough to read it.
  SpinLock members_lock_;
  std::mutex list_mutex_;
  std::vector<QueuePair*> members_;
  int port_users_ = 0;
  int stream_members_ = 0;  // that do not receive from the port
  std::atomic<Progress*> progress_{nullptr};
};

}  // namespace airdma::runtime
