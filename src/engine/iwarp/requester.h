// SPDX-License-Identifier: MIT
// Send side of one queue pair (RDMAP, RFC 5040 5): turns WQEs into messages, keeps the READs and
// atomics it has outstanding, places their responses, and completes WQEs in the order they were
// posted. SEND and WRITE complete when TCP has taken their last byte, READ and atomics when their
// last byte is placed.
// Not here: what the peer asks of us (target.h, read_responder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bounded_ring.h"
#include "base/ids.h"
#include "base/untouched_array.h"
#include "engine/iwarp/completion_log.h"
#include "engine/iwarp/fpdu_writer.h"
#include "engine/iwarp/room.h"
#include "engine/iwarp/verdict.h"
#include "model/memory.h"
#include "model/work.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace airdma::iwarp {

class Requester {
 public:
  Requester(const model::MemoryTable& memory, PdId pd, Qpn qpn, model::SendQueue& queue,
            CompletionLog& log);

  /// ord: READs and atomics that may be outstanding. max_ulpdu: bytes of the largest ULPDU.
  void start(std::uint16_t ord, std::size_t max_ulpdu);

  /// A WQE is not framed to its end, and it may be.
  [[nodiscard]] bool has_work() const {
    return next_ != queue_.tail() && (!held_ || progress_.active);
  }
  /// Held: no further WQE is begun (SQD, IBTA vol. 1, 10.3.1).
  void hold(bool held) { held_ = held; }
  /// Every WQE that was begun is complete.
  [[nodiscard]] bool drained() const { return next_ == queue_.head() && !progress_.active; }
  /// Frames at most one FPDU; bytes written, 0 when there is nothing to send or no room for it.
  [[nodiscard]] std::size_t frame(FpduWriter& writer, const Room& room);
  /// Frame the zero-length message of peer-to-peer mode (RFC 6581 9.2). Room for it is certain.
  [[nodiscard]] std::size_t frame_rtr(FpduWriter& writer, const Room& room, wire::Opcode opcode);
  /// A READ or an atomic is on its way.
  [[nodiscard]] bool awaits_answer() const { return !reads_.empty(); }
  /// The stream up to this position was taken by TCP.
  void on_transmitted(std::uint64_t position);
  [[nodiscard]] Verdict on_read_response(const wire::SegmentHeader& header, Bytes payload);
  [[nodiscard]] Verdict on_atomic_response(const wire::SegmentHeader& header, Bytes payload);

  /// A mistake of our own program whose turn to complete has come: the stream must end with it.
  [[nodiscard]] std::optional<model::Violation> due_fault() const;
  /// The READ or atomic with this MSN (nothing: the oldest) completes with this status at the next
  /// flush().
  void blame_read(std::optional<wire::Msn> msn, model::WcStatus status);
  /// The same for the SEND or WRITE that this segment is of, unless it is complete.
  void blame_transfer(const wire::SegmentHeader& header, model::WcStatus status);
  /// The same for the first request that TCP has not taken to its end.
  void blame_unsent(model::WcStatus status);
  /// The same for the oldest atomic, if there is one.
  [[nodiscard]] bool blame_atomic(model::WcStatus status);
  /// A message was begun that is not framed to its end.
  [[nodiscard]] bool within_message() const {
    return !fault_ && progress_.active && progress_.stage == Stage::kPayload &&
           progress_.offset != 0;
  }
  /// A WQE was begun that is not framed to its end: its messages belong together.
  [[nodiscard]] bool within_request() const { return progress_.active; }
  /// Completes everything posted with FLUSH_ERR, but a faulty WQE with its own status.
  void flush();

  /// Of the program, while FPDUs are framed in a row. To be given up behind them.
  [[nodiscard]] model::Pin& held_memory() { return held_memory_; }

  [[nodiscard]] std::uint64_t payload_sent() const { return payload_sent_; }
  [[nodiscard]] std::uint64_t payload_received() const { return payload_received_; }

 private:
  static constexpr std::uint64_t kNoPosition = ~std::uint64_t{0};

  /// A WQE that was framed as a whole and is not complete.
  struct InFlight {
    std::uint64_t stream_end = 0;  // complete when TCP has taken the stream up to here
    std::uint16_t reads = 0;       // ... and these READ messages, still to be answered, are
    wire::Msn first_msn;           // of its messages in queue 0, if it has any
  };
  /// A READ or atomic message on its way. A READ WQE has one per SGE, for RDMAP knows one sink (RFC
  /// 5040 4.4). An atomic's sink is the SGEs of its WQE.
  struct OutstandingRead {
    std::uint64_t position = kNoPosition;  // of the WQE; none for an RTR frame
    wire::Msn msn;
    bool atomic = false;
    model::Sge sink{};
    std::uint32_t received = 0;
  };
  struct Fault {
    std::uint64_t position = 0;
    model::WcStatus status = model::WcStatus::kFlushError;
    model::Violation violation = model::Violation::kOperation;
  };
  enum class Stage : std::uint8_t { kPayload, kImmediate, kReadRequests, kAtomicRequest };
  /// The WQE at next_ while its messages are being framed.
  struct Progress {
    bool active = false;
    Stage stage = Stage::kPayload;
    std::uint16_t sge = 0;         // the piece of local memory that comes next
    std::uint32_t sge_offset = 0;  // bytes of it that are done
    std::uint32_t offset = 0;      // bytes of the message that are done
  };

  [[nodiscard]] bool begin();
  [[nodiscard]] bool perform_local();
  [[nodiscard]] bool begin_transfer(const model::SendWqe& wqe);
  [[nodiscard]] bool begin_read(const model::SendWqe& wqe);
  [[nodiscard]] bool begin_atomic(const model::SendWqe& wqe);
  [[nodiscard]] bool readable(const model::SendWqe& wqe) const;
  [[nodiscard]] bool writable(const model::SendWqe& wqe) const;
  bool refuse(model::Violation violation);

  [[nodiscard]] std::size_t frame_payload(FpduWriter& writer, const Room& room,
                                          const model::SendWqe& wqe);
  [[nodiscard]] std::size_t frame_immediate(FpduWriter& writer, const Room& room,
                                            const model::SendWqe& wqe);
  [[nodiscard]] std::size_t frame_read(FpduWriter& writer, const Room& room,
                                       const model::SendWqe& wqe);
  [[nodiscard]] std::size_t frame_read_request(FpduWriter& writer, const Room& room,
                                               const OutstandingRead& read, Stag source,
                                               std::uint64_t source_offset);
  [[nodiscard]] std::size_t frame_atomic(FpduWriter& writer, const Room& room,
                                         const model::SendWqe& wqe);
  [[nodiscard]] bool scatter_original(const model::SendWqe& wqe, std::uint64_t value) const;
  [[nodiscard]] bool gather(FpduWriter& writer, const model::SendWqe& wqe, std::size_t bytes);
  [[nodiscard]] bool gather_copy(FpduWriter& writer, const model::Sge& sge, std::size_t bytes);
  [[nodiscard]] bool gather_in_place(FpduWriter& writer, const model::Sge& sge,
                                     std::size_t bytes) const;
  [[nodiscard]] wire::SegmentHeader payload_header(const model::SendWqe& wqe, bool last) const;
  void payload_done(const model::SendWqe& wqe, std::uint64_t stream_end);
  void framed(std::uint64_t stream_end);
  [[nodiscard]] InFlight& in_flight(std::uint64_t position) {
    return in_flight_[static_cast<std::size_t>(position & (in_flight_.size() - 1))];
  }
  void complete();
  void report(const model::SendWqe& wqe, model::WcStatus status);
  void read_done();

  const model::MemoryTable& memory_;
  PdId pd_;
  Qpn qpn_;
  model::SendQueue& queue_;
  CompletionLog& log_;
  model::Pin held_memory_;

  bool held_ = false;
  std::uint16_t ord_ = 0;
  std::size_t one_segment_ = 0;  // bytes of payload that fit into any segment
  std::uint64_t next_ = 0;       // position of the first WQE that is not framed as a whole
  Progress progress_;
  UntouchedArray<InFlight> in_flight_;
  BoundedRing<OutstandingRead> reads_;
  std::optional<Fault> fault_;
  std::uint64_t transmitted_ = 0;
  wire::Msn send_msn_ = wire::kFirstMsn;
  wire::Msn read_msn_ = wire::kFirstMsn;             // of the next READ or atomic
  wire::Msn atomic_response_msn_ = wire::kFirstMsn;  // that must come next
  std::uint64_t payload_sent_ = 0;
  std::uint64_t payload_received_ = 0;
};

}  // namespace airdma::iwarp
