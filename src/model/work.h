// SPDX-License-Identifier: MIT
// Work requests as queue pairs hold them (WQEs), and the two rings they wait in.
// A ring has one producer side (callers serialise it, the verbs layer with the queue's lock) and
// one consumer (whoever drives the queue pair's engine). Producer and consumer need no common
// lock: indices are atomics. No allocation after construction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/untouched_array.h"
#include "model/address_vector.h"

namespace airdma::model {

/// One piece of local memory: virtual address, length in bytes, local key.
struct Sge {
  std::uint64_t addr = 0;
  std::uint32_t length = 0;
  Stag lkey;
};

/// Operations of a send queue; the values are those of enum ibv_wr_opcode.
enum class SendOpcode : std::uint8_t {
  kWrite = 0,
  kWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInvalidate = 7,
  kBindMw = 8,
  kSendWithInvalidate = 9,
};

/// Done where it is posted: nothing of it goes to the peer.
[[nodiscard]] constexpr bool is_local(SendOpcode opcode) {
  return opcode == SendOpcode::kBindMw || opcode == SendOpcode::kLocalInvalidate;
}
[[nodiscard]] constexpr bool is_write(SendOpcode opcode) {
  return opcode == SendOpcode::kWrite || opcode == SendOpcode::kWriteWithImm;
}
[[nodiscard]] constexpr bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
}
[[nodiscard]] constexpr bool has_immediate(SendOpcode opcode) {
  return opcode == SendOpcode::kSendWithImm || opcode == SendOpcode::kWriteWithImm;
}

/// A posted send work request. `sges`, `inline_data` and `address` point into the ring's own
/// storage.
struct SendWqe {
  std::uint64_t wr_id = 0;
  SendOpcode opcode = SendOpcode::kSend;
  bool signaled = false;   // a successful completion is reported
  bool solicited = false;  // the receiver's completion wakes a solicited-only notification
  bool fence = false;      // starts after all earlier READs and atomics have completed
  bool inlined = false;    // payload was copied at post into inline_data
  std::uint16_t sge_count = 0;
  std::uint32_t length = 0;     // payload bytes: sum of the SGEs, or of the inline data
  std::uint32_t immediate = 0;  // as given by the program, network byte order
  Stag rkey;                    // remote key; the key to invalidate; BIND_MW: the window's new one
  Stag region_lkey;             // BIND_MW: of what the window, from remote_addr on, is bound to
  std::uint32_t window_access = 0;  // BIND_MW
  std::uint64_t remote_addr = 0;
  std::uint64_t compare_add = 0;  // BIND_MW: bytes of the window
  std::uint64_t swap = 0;
  // UD: the queue pair to reach, and how. A key with its top bit set means the sender's own.
  Qpn remote_qpn;
  Qkey remote_qkey;
  Srqn remote_srqn;  // XRC
  Sge* sges = nullptr;
  std::byte* inline_data = nullptr;
  AddressVector* address = nullptr;  // of rings that hold datagrams
};

/// A posted receive work request.
struct ReceiveWqe {
  std::uint64_t wr_id = 0;
  std::uint16_t sge_count = 0;
  std::uint32_t length = 0;  // capacity in bytes: sum of the SGEs
  Sge* sges = nullptr;
};

/// Bounded single-producer single-consumer ring of WQEs with their scatter/gather storage.
/// `depth` slots can be filled at a time; each owns `max_sge` SGEs and (send side) `max_inline`
/// bytes, and an address when the ring holds datagrams.
template <class Wqe>
class WorkRing {
 public:
  WorkRing(std::uint32_t depth, std::uint32_t max_sge, std::uint32_t max_inline,
           bool datagrams = false);

  [[nodiscard]] std::uint32_t depth() const { return depth_; }
  [[nodiscard]] std::uint32_t max_sge() const { return max_sge_; }
  [[nodiscard]] std::uint32_t max_inline() const { return max_inline_; }

  // Producer side.
  /// Slots that can be filled now.
  [[nodiscard]] std::uint32_t free_slots() const {
    return depth_ - static_cast<std::uint32_t>(tail_.load(std::memory_order_relaxed) -
                                               head_.load(std::memory_order_acquire));
  }
  /// The slot `ahead` places after the last published one, emptied; sges and inline_data set.
  /// The caller has checked free_slots() > ahead.
  Wqe& slot(std::uint32_t ahead);
  /// The same slot again, as it was filled.
  [[nodiscard]] Wqe& at_slot(std::uint32_t ahead) {
    return slots_[index(tail_.load(std::memory_order_relaxed) + ahead)];
  }
  /// Makes `count` filled slots visible to the consumer.
  void publish(std::uint32_t count) {
    tail_.store(tail_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }

  // Consumer side. Positions count WQEs since construction or reset and never wrap.
  [[nodiscard]] std::uint64_t head() const { return head_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t tail() const { return tail_.load(std::memory_order_acquire); }
  [[nodiscard]] bool empty() const { return head() == tail(); }
  [[nodiscard]] Wqe& at(std::uint64_t position) { return slots_[index(position)]; }
  /// Frees the oldest slot for the producer.
  void retire() { head_.store(head() + 1, std::memory_order_release); }

  /// Forgets everything. Neither side may be active.
  void reset() {
    head_.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_release);
  }

 private:
  [[nodiscard]] std::size_t index(std::uint64_t position) const {
    return static_cast<std::size_t>(position & mask_);
  }

  std::uint32_t depth_;
  std::uint64_t mask_;  // of the slots, which are a power of two: a division for each is slow
  std::uint32_t max_sge_;
  std::uint32_t max_inline_;
  // Touched slot by slot, so that an idle deep queue costs address space only.
  UntouchedArray<Wqe> slots_;
  UntouchedArray<Sge> sges_;
  UntouchedArray<std::byte> inline_data_;
  UntouchedArray<AddressVector> addresses_;
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

using SendQueue = WorkRing<SendWqe>;
using ReceiveQueue = WorkRing<ReceiveWqe>;

/// Receives that several queue pairs draw from. Thread-safe.
class SharedReceives {
 public:
  /// Moves the oldest receive into the one free slot of `queue`, whose slots have room for as many
  /// SGEs, and publishes it there. False when there is none.
  virtual bool take(ReceiveQueue& queue) = 0;

 protected:
  ~SharedReceives() = default;
};

extern template class WorkRing<SendWqe>;
extern template class WorkRing<ReceiveWqe>;

}  // namespace airdma::model
