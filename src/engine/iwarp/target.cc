// SPDX-License-Identifier: MIT
#include "engine/iwarp/target.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/guarded_copy.h"
#include "engine/iwarp/immediate.h"

namespace airdma::iwarp {

using model::AccessFault;
using model::ReceiveWqe;
using model::Violation;
using model::WcOpcode;
using model::WcStatus;
using wire::OpcodeInfo;
using wire::SegmentHeader;

namespace {

Violation write_violation(AccessFault fault) {
  switch (fault) {
    case AccessFault::kInvalidKey:
      return Violation::kTaggedInvalidStag;
    case AccessFault::kOtherPd:
      return Violation::kTaggedOtherStream;
    case AccessFault::kDenied:
      return Violation::kWriteDenied;
    case AccessFault::kBounds:
      return Violation::kTaggedBounds;
  }
  return Violation::kTaggedInvalidStag;
}

}  // namespace

Target::Target(const model::MemoryTable& memory, PdId pd, Qpn qpn, model::AccessMask remote_access,
               model::ReceiveQueue& queue, CompletionLog& log)
    : memory_(memory),
      pd_(pd),
      qpn_(qpn),
      receive_pd_(pd),
      remote_access_(remote_access),
      queue_(queue),
      log_(log) {}

Verdict Target::on_write(const SegmentHeader& header, Bytes payload) {
  if (!payload.empty()) {  // an empty WRITE touches nothing, whatever its STag (RFC 5040 5.1)
    if (header.tagged_offset > ~std::uint64_t{0} - (payload.size() - 1)) {
      return Violation::kTaggedOffsetWrap;
    }
    const auto pin = memory_.pin(header.stag, pd_, header.tagged_offset, payload.size(),
                                 model::kAccessRemoteWrite, qpn_);
    if (!pin) return write_violation(pin.error());
    if ((remote_access_ & model::kAccessRemoteWrite) == 0) return Violation::kWriteDenied;
    if (!copy_to_program(pin->data(), payload)) return Violation::kWriteDenied;
  }
  payload_received_ += payload.size();
  payload_written_ += payload.size();
  write_bytes_ += payload.size();
  if (header.last) {
    last_write_bytes_ = write_bytes_;
    write_bytes_ = 0;
  }
  return {};
}

// Deviation: RFC 5041 8.3 would end the stream when no receive is posted. A program written for
// RoCE counts on being waited for, so the message waits, and what is behind it in queue 0 with it.
// Everything else is served, or two peers that send before they post receives, and then wait for
// the READ behind it, would wait for ever.
Verdict Target::on_untagged(const SegmentHeader& header, const OpcodeInfo& opcode, Bytes payload) {
  const UntaggedSegment segment{
      .header = header, .opcode = &opcode, .written = last_write_bytes_, .payload = payload};
  Verdict verdict = lot_.empty() ? deliver(segment) : Verdict::stall();
  if (verdict.kind == Verdict::Kind::kStall && lot_.add(segment)) verdict = {};
  if (verdict.kind != Verdict::Kind::kStall) last_write_bytes_ = 0;
  return verdict;
}

Verdict Target::deliver_parked() {
  while (!lot_.empty()) {
    const Verdict verdict = deliver(lot_.front());
    if (verdict.kind != Verdict::Kind::kDone) return verdict;
    lot_.pop();
  }
  return {};
}

Verdict Target::deliver(const UntaggedSegment& segment) {
  const auto& [header, opcode_info, written, payload] = segment;
  const OpcodeInfo& opcode = *opcode_info;
  // TCP keeps the order, so the next message is the only one that can come (RFC 5041 5.3).
  if (header.msn != expected_msn_) return Violation::kUntaggedMsn;
  const bool rtr = std::exchange(rtr_send_, false);
  if (rtr && payload.empty() && header.last && header.message_offset == 0 &&
      opcode.opcode == wire::Opcode::kSend) {
    expected_msn_ = wire::next(expected_msn_);
    return {};
  }
  if (opcode.extension) return on_immediate(segment);
  return on_send(header, opcode, payload);
}

Verdict Target::on_send(const SegmentHeader& header, const OpcodeInfo& opcode, Bytes payload) {
  if (message_.active && opcode.opcode != message_.opcode) return Violation::kUnexpectedOpcode;
  if (header.message_offset != message_.received) return Violation::kUntaggedOffset;
  if (!have_receive()) return Verdict::stall();
  const ReceiveWqe& wqe = queue_.at(queue_.head());
  if (payload.size() > wqe.length - message_.received) return Violation::kUntaggedTooLong;
  if (!scatter(wqe, payload)) return Violation::kReceiveBuffer;
  message_.active = true;
  message_.opcode = opcode.opcode;
  message_.received += static_cast<std::uint32_t>(payload.size());
  payload_received_ += payload.size();
  if (!header.last) return {};
  // Only windows of type 2 can be invalidated, and only by the peer they are open to.
  if (opcode.invalidates && !memory_.invalidate(header.invalidate_stag, pd_, qpn_)) {
    return Violation::kCannotInvalidate;
  }
  message_done(header, opcode);
  return {};
}

/// False when a receive names memory that is not ours to write.
bool Target::scatter(const ReceiveWqe& wqe, Bytes payload) {
  while (!payload.empty()) {
    const model::Sge& sge = wqe.sges[message_.sge];
    const std::size_t piece =
        std::min<std::size_t>(payload.size(), sge.length - message_.sge_offset);
    if (piece == 0) {
      ++message_.sge;
      message_.sge_offset = 0;
      continue;
    }
    const auto to = memory_.access(held_memory_, sge.lkey, receive_pd_,
                                   sge.addr + message_.sge_offset, piece, model::kAccessLocalWrite);
    if (!to || !copy_to_program(*to, payload.first(piece))) return false;
    message_.sge_offset += static_cast<std::uint32_t>(piece);
    payload = payload.subspan(piece);
  }
  return true;
}

void Target::message_done(const SegmentHeader& header, const OpcodeInfo& opcode) {
  std::uint32_t immediate = send_immediate_.value_or(0);
  std::uint32_t flags = send_immediate_ ? model::kWcWithImmediate : 0;
  if (opcode.invalidates) {  // verbs have one place for the two
    immediate = header.invalidate_stag.value();
    flags = model::kWcWithInvalidate;
  }
  log_.add({.wr_id = queue_.at(queue_.head()).wr_id,
            .opcode = WcOpcode::kReceive,
            .receive = true,
            .solicited = opcode.solicited,
            .byte_len = message_.received,
            .immediate = immediate,
            .flags = flags});
  queue_.retire();
  expected_msn_ = wire::next(expected_msn_);
  message_ = {};
  send_immediate_.reset();
}

Verdict Target::on_immediate(const UntaggedSegment& segment) {
  const SegmentHeader& header = segment.header;
  if (message_.active) return Violation::kUnexpectedOpcode;
  if (header.message_offset != 0) return Violation::kUntaggedOffset;
  const auto immediate = wire::parse_immediate(segment.payload);
  if (!immediate || segment.payload.size() != wire::kImmediateBytes || !header.last) {
    return Violation::kMessageLength;
  }
  if (belongs_to_send(*immediate)) {
    send_immediate_ = immediate_value(*immediate);
    expected_msn_ = wire::next(expected_msn_);
    return {};
  }
  if (!have_receive()) return Verdict::stall();
  constexpr std::uint64_t kMost = 0xffffffff;
  log_.add({.wr_id = queue_.at(queue_.head()).wr_id,
            .opcode = WcOpcode::kReceiveRdmaWithImm,
            .receive = true,
            .solicited = segment.opcode->solicited,
            .byte_len = static_cast<std::uint32_t>(std::min(segment.written, kMost)),
            .immediate = immediate_value(*immediate),
            .flags = model::kWcWithImmediate});
  queue_.retire();
  expected_msn_ = wire::next(expected_msn_);
  return {};
}

void Target::flush(WcStatus first) {
  for (WcStatus status = first; !queue_.empty(); status = WcStatus::kFlushError) {
    log_.add({.wr_id = queue_.at(queue_.head()).wr_id,
              .status = status,
              .opcode = WcOpcode::kReceive,
              .receive = true});
    queue_.retire();
  }
  message_ = {};
  if (!lot_.empty()) lot_.clear();
}

}  // namespace airdma::iwarp
