// SPDX-License-Identifier: MIT
// The entries of a completion queue, and when each of them came if the program wants to know. Not
// thread-safe: the queue's lock guards it. Positions count entries since creation, whatever the
// size of the ring becomes.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/untouched_array.h"
#include "model/completion.h"

namespace airdma::runtime {

/// When a completion was put into its queue, in nanoseconds: of CLOCK_MONOTONIC, which counts as
/// the device's clock, and of CLOCK_REALTIME.
struct CompletionTime {
  std::uint64_t device_ns = 0;
  std::uint64_t wallclock_ns = 0;
};

class CompletionRing {
 public:
  struct Entry {
    model::Completion completion;
    std::atomic<std::uint64_t>* released = nullptr;  // the queue pair's, which discards at its end
  };

  /// `capacity` >= 1 entries. Throws std::bad_alloc.
  CompletionRing(std::uint32_t capacity, bool timed)
      : capacity_(capacity),
        mask_(slots_for(capacity) - 1),
        entries_(mask_ + 1),
        times_(timed ? mask_ + 1 : 0) {}
  /// The same in memory of bytes_for() it, aligned as kAlignment, which outlives the ring.
  CompletionRing(std::uint32_t capacity, bool timed, void* memory)
      : capacity_(capacity), mask_(slots_for(capacity) - 1), entries_(mask_ + 1, memory) {
    auto* behind = static_cast<Entry*>(memory) + mask_ + 1;
    if (timed) times_ = UntouchedArray<CompletionTime>(mask_ + 1, behind);
  }
  static constexpr std::size_t kAlignment = 64;
  [[nodiscard]] static std::size_t bytes_for(std::uint32_t capacity, bool timed) {
    return slots_for(capacity) * (sizeof(Entry) + (timed ? sizeof(CompletionTime) : 0));
  }

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(tail_ - head_); }
  [[nodiscard]] bool empty() const { return head_ == tail_; }
  [[nodiscard]] bool full() const { return size() >= capacity_; }
  [[nodiscard]] bool timed() const { return times_.size() != 0; }
  [[nodiscard]] std::uint64_t head() const { return head_; }
  [[nodiscard]] std::uint64_t tail() const { return tail_; }

  /// Room there must be. `time` is looked at by a timed ring only.
  void push(const Entry& entry, const CompletionTime& time) {
    const std::uint64_t slot = tail_++ & mask_;
    entries_[slot] = entry;
    if (timed()) times_[slot] = time;
  }
  /// The oldest entry, and its time if the ring is timed and `time` is given. There must be one.
  Entry pop(CompletionTime* time) {
    const std::uint64_t slot = head_++ & mask_;
    if (timed() && time != nullptr) *time = times_[slot];
    return entries_[slot];
  }
  /// Keeps the entries that `keep(entry)` is true of, in their order.
  template <class Keep>
  void filter(Keep keep) {
    std::uint64_t kept = head_;
    for (std::uint64_t i = head_; i != tail_; ++i) {
      if (!keep(entries_[i & mask_])) continue;
      entries_[kept & mask_] = entries_[i & mask_];
      if (timed()) times_[kept & mask_] = times_[i & mask_];
      ++kept;
    }
    tail_ = kept;
  }
  /// Takes the place of `old`: the same entries at the same positions. They must fit, and both
  /// rings be timed or neither.
  void take_over(const CompletionRing& old) {
    head_ = old.head_;
    tail_ = old.tail_;
    for (std::uint64_t i = head_; i != tail_; ++i) {
      entries_[i & mask_] = old.entries_[i & old.mask_];
      if (timed()) times_[i & mask_] = old.times_[i & old.mask_];
    }
  }

 private:
  static std::uint64_t slots_for(std::uint32_t capacity) {
    std::uint64_t slots = 1;
    while (slots < capacity) slots *= 2;
    return slots;
  }

  std::uint32_t capacity_;
  std::uint64_t mask_;
  UntouchedArray<Entry> entries_;
  UntouchedArray<CompletionTime> times_;  // empty unless timed
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace airdma::runtime
