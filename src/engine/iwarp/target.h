// SPDX-License-Identifier: MIT
// Receive side of one queue pair: places the peer's WRITEs by STag and its SENDs into posted
// receives, and completes those (RDMAP, RFC 5040 5; DDP placement, RFC 5041 5).
// Not here: READs, either way; whether the FPDU was good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "engine/iwarp/completion_log.h"
#include "engine/iwarp/parking_lot.h"
#include "engine/iwarp/verdict.h"
#include "model/memory.h"
#include "model/work.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace airdma::iwarp {

class Target {
 public:
  Target(const model::MemoryTable& memory, PdId pd, Qpn qpn, model::AccessMask remote_access,
         model::ReceiveQueue& queue, CompletionLog& log);

  /// Receives come from here, one at a time into the queue when a message needs one; their
  /// buffers are checked against `pd`.
  void share_receives(model::SharedReceives& shared, PdId pd) {
    shared_ = &shared;
    receive_pd_ = pd;
  }
  void set_remote_access(model::AccessMask access) { remote_access_ = access; }

  /// rtr_send: the first message is the empty SEND of peer-to-peer mode, which meets no receive.
  void start(bool rtr_send) { rtr_send_ = rtr_send; }
  [[nodiscard]] Verdict on_write(const wire::SegmentHeader& header, Bytes payload);
  /// A segment of queue 0. It waits when no receive is posted for it or for one before it: kStall
  /// means that there is no room for it to wait.
  [[nodiscard]] Verdict on_untagged(const wire::SegmentHeader& header,
                                    const wire::OpcodeInfo& opcode, Bytes payload);
  /// Segments of queue 0 that wait for receives.
  [[nodiscard]] std::size_t parked() const { return lot_.size(); }
  /// The oldest of them. Not when there is none.
  [[nodiscard]] UntaggedSegment oldest_parked() const { return lot_.front(); }
  /// Receives may have come: delivers what they are for. kStall when some still wait; a violation
  /// is of the oldest that is still there.
  [[nodiscard]] Verdict deliver_parked();
  /// Completes everything posted: the oldest with `first` when it was being filled or was about to
  /// be, the rest with FLUSH_ERR.
  void flush(model::WcStatus first = model::WcStatus::kFlushError);

  /// Of the program, while messages are delivered in a row. To be given up behind them.
  [[nodiscard]] model::Pin& held_memory() { return held_memory_; }

  [[nodiscard]] std::uint64_t payload_received() const { return payload_received_; }
  /// The part of it that came by RDMA WRITE.
  [[nodiscard]] std::uint64_t payload_written() const { return payload_written_; }

 private:
  /// The SEND being received.
  struct Message {
    bool active = false;
    wire::Opcode opcode = wire::Opcode::kSend;
    std::uint32_t received = 0;  // bytes
    std::uint16_t sge = 0;
    std::uint32_t sge_offset = 0;
  };

  [[nodiscard]] Verdict deliver(const UntaggedSegment& segment);
  [[nodiscard]] Verdict on_send(const wire::SegmentHeader& header, const wire::OpcodeInfo& opcode,
                                Bytes payload);
  [[nodiscard]] Verdict on_immediate(const UntaggedSegment& segment);
  /// The head of the queue is there.
  [[nodiscard]] bool have_receive() {
    return !queue_.empty() || (shared_ != nullptr && shared_->take(queue_));
  }
  [[nodiscard]] bool scatter(const model::ReceiveWqe& wqe, Bytes payload);
  void message_done(const wire::SegmentHeader& header, const wire::OpcodeInfo& opcode);

  const model::MemoryTable& memory_;
  PdId pd_;
  Qpn qpn_;
  PdId receive_pd_;
  model::AccessMask remote_access_;
  model::ReceiveQueue& queue_;
  model::Pin held_memory_;
  model::SharedReceives* shared_ = nullptr;
  CompletionLog& log_;

  bool rtr_send_ = false;
  wire::Msn expected_msn_ = wire::kFirstMsn;
  Message message_;
  ParkingLot lot_;
  std::uint64_t write_bytes_ = 0;                // of the WRITE message being received
  std::uint64_t last_write_bytes_ = 0;           // of the one that comes right before
  std::optional<std::uint32_t> send_immediate_;  // for the SEND that follows
  std::uint64_t payload_received_ = 0;
  std::uint64_t payload_written_ = 0;
};

}  // namespace airdma::iwarp
