// SPDX-License-Identifier: MIT
// Answers the peer's READs (RFC 5040 5.2) from registered memory, in the order they came.
// The queue is as long as the IRD that was agreed, so a peer cannot make it grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "engine/iwarp/bounded_ring.h"
#include "engine/iwarp/fpdu_writer.h"
#include "engine/iwarp/room.h"
#include "engine/iwarp/verdict.h"
#include "model/memory.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace airdma::iwarp {

/// A READ of the peer's, with the header it came under (a Terminate shows it).
struct InboundRead {
  wire::SegmentHeader header;
  wire::ReadRequest request;
};

class ReadResponder {
 public:
  ReadResponder(const model::MemoryTable& memory, PdId pd, model::AccessMask remote_access)
      : memory_(memory), pd_(pd), remote_access_(remote_access) {}

  /// ird: READs the peer may have outstanding.
  void start(std::uint16_t ird);
  /// Checks the request and the whole range it asks for, and takes it into the queue.
  [[nodiscard]] Verdict accept(const InboundRead& read);
  [[nodiscard]] bool has_work() const { return !queue_.empty(); }
  /// A response was begun that is not framed to its end.
  [[nodiscard]] bool within_message() const { return offset_ != 0 && !failed_; }
  /// Frames at most one FPDU of the oldest response; bytes written, 0 for want of room or after a
  /// failure.
  [[nodiscard]] std::size_t frame(FpduWriter& writer, const Room& room);
  /// Set when the memory of the oldest READ was taken away: the stream must end.
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const InboundRead& oldest() { return queue_.front(); }
  void clear() { queue_.clear(); }

  [[nodiscard]] std::uint64_t payload_sent() const { return payload_sent_; }

 private:
  [[nodiscard]] std::optional<model::Violation> check(const wire::ReadRequest& request) const;

  const model::MemoryTable& memory_;
  PdId pd_;
  model::AccessMask remote_access_;
  BoundedRing<InboundRead> queue_;
  wire::Msn expected_msn_ = wire::kFirstMsn;
  std::uint32_t offset_ = 0;  // bytes of the oldest READ that are framed
  bool failed_ = false;
  std::uint64_t payload_sent_ = 0;
};

}  // namespace airdma::iwarp
