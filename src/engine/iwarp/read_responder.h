// SPDX-License-Identifier: MIT
// Answers the peer's READs (RFC 5040 5.2) and atomics (RFC 7306 5) from registered memory, in the
// order they came. The queue is as long as the IRD that was agreed, so a peer cannot make it grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "base/bounded_ring.h"
#include "base/ids.h"
#include "engine/iwarp/fpdu_writer.h"
#include "engine/iwarp/room.h"
#include "engine/iwarp/verdict.h"
#include "model/memory.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace airdma::iwarp {

struct InboundAtomic {
  wire::AtomicRequest request;
  std::optional<std::uint64_t> original{};  // once it is done: the value before
};

/// A READ or atomic of the peer's, with the header it came under (a Terminate shows it).
struct InboundRead {
  wire::SegmentHeader header;
  std::variant<wire::ReadRequest, InboundAtomic> request;
};

/// What a refused access means when a READ or an atomic wanted it.
[[nodiscard]] model::Violation read_violation(model::AccessFault fault);

class ReadResponder {
 public:
  ReadResponder(const model::MemoryTable& memory, PdId pd, Qpn qpn, model::AccessMask remote_access)
      : memory_(memory), pd_(pd), qpn_(qpn), remote_access_(remote_access) {}

  void set_remote_access(model::AccessMask access) { remote_access_ = access; }
  /// ird: READs and atomics the peer may have outstanding.
  void start(std::uint16_t ird);
  /// Checks the request and the whole range it asks for, and takes it into the queue. An atomic is
  /// done at once unless something waits before it: a READ must see what was there before, and
  /// atomics are done in order.
  [[nodiscard]] Verdict accept(InboundRead read);
  [[nodiscard]] bool has_work() const { return !queue_.empty(); }
  /// A response was begun that is not framed to its end.
  [[nodiscard]] bool within_message() const { return offset_ != 0 && !failure_; }
  /// Frames at most one FPDU of the oldest response; bytes written, 0 for want of room or after a
  /// failure.
  [[nodiscard]] std::size_t frame(FpduWriter& writer, const Room& room);
  /// Set when the memory of the oldest request was taken away: the stream must end with it.
  [[nodiscard]] std::optional<model::Violation> failure() const { return failure_; }
  [[nodiscard]] const InboundRead& oldest() { return queue_.front(); }
  void clear() {
    queue_.clear();
    waiting_ = 0;
  }

  [[nodiscard]] std::uint64_t payload_sent() const { return payload_sent_; }

 private:
  [[nodiscard]] std::optional<model::Violation> check(const wire::ReadRequest& request) const;
  [[nodiscard]] std::optional<model::Violation> check(InboundAtomic& atomic);
  [[nodiscard]] std::size_t frame_read(FpduWriter& writer, const Room& room,
                                       const wire::ReadRequest& request);
  [[nodiscard]] std::size_t frame_atomic(FpduWriter& writer, const Room& room,
                                         InboundAtomic& atomic);
  [[nodiscard]] std::optional<model::Violation> perform(InboundAtomic& atomic) const;

  const model::MemoryTable& memory_;
  PdId pd_;
  Qpn qpn_;
  model::AccessMask remote_access_;
  BoundedRing<InboundRead> queue_;
  std::size_t waiting_ = 0;  // READs in the queue, and atomics in it that are not done
  wire::Msn expected_msn_ = wire::kFirstMsn;
  wire::Msn atomic_msn_ = wire::kFirstMsn;  // of the next Atomic Response
  std::uint32_t offset_ = 0;                // bytes of the oldest READ that are framed
  std::optional<model::Violation> failure_;
  std::uint64_t payload_sent_ = 0;
};

}  // namespace airdma::iwarp
