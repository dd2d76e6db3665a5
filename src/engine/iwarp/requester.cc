// SPDX-License-Identifier: MIT
#include "engine/iwarp/requester.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/guarded_copy.h"
#include "engine/iwarp/immediate.h"
#include "model/local_operation.h"

namespace airdma::iwarp {

using model::SendOpcode;
using model::SendWqe;
using model::Sge;
using model::Violation;
using model::WcStatus;
using wire::Opcode;
using wire::SegmentHeader;

namespace {

// Limit: more READs in flight than this bring no speed; an agreed ORD above it is not used up.
constexpr std::uint16_t kMostReads = 1024;

// Below these a copy costs less than a piece more for the kernel, and what programs change while it
// is sent, against the rules, is mostly small.
constexpr std::size_t kLeastInPlace = std::size_t{16} * 1024;
constexpr std::size_t kLeastMessageInPlace = std::size_t{128} * 1024;

/// Messages of queue 0 that the peer gets for a WQE.
std::uint32_t messages_in_queue_0(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kSendWithImm:
      return 2;
    case SendOpcode::kSend:
    case SendOpcode::kSendWithInvalidate:
    case SendOpcode::kWriteWithImm:
      return 1;
    case SendOpcode::kWrite:
    case SendOpcode::kRead:
    case SendOpcode::kCompareSwap:
    case SendOpcode::kFetchAdd:
    case SendOpcode::kLocalInvalidate:
    case SendOpcode::kBindMw:
      break;
  }
  return 0;
}

Opcode send_opcode(const SendWqe& wqe) {
  if (wqe.opcode == SendOpcode::kSendWithInvalidate) {
    return wqe.solicited ? Opcode::kSendSolicitedInvalidate : Opcode::kSendInvalidate;
  }
  return wqe.solicited ? Opcode::kSendSolicited : Opcode::kSend;
}

}  // namespace

Requester::Requester(const model::MemoryTable& memory, PdId pd, Qpn qpn, model::SendQueue& queue,
                     CompletionLog& log)
    : memory_(memory), pd_(pd), qpn_(qpn), queue_(queue), log_(log) {}

void Requester::start(std::uint16_t ord, std::size_t max_ulpdu) {
  ord_ = std::min(ord, kMostReads);
  one_segment_ = max_ulpdu - wire::kMaxSegmentHeaderBytes;
  reads_.reset(std::max<std::size_t>(ord_, 1));  // an RTR READ needs no ORD
  in_flight_ = UntouchedArray<InFlight>(std::bit_ceil(queue_.depth()));
  next_ = queue_.head();
}

// Starting a WQE.

bool Requester::begin() {
  if (!perform_local()) return false;
  const SendWqe& wqe = queue_.at(next_);
  switch (wqe.opcode) {
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm:
    case SendOpcode::kSendWithInvalidate:
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm:
      return begin_transfer(wqe);
    case SendOpcode::kRead:
      return begin_read(wqe);
    case SendOpcode::kCompareSwap:
    case SendOpcode::kFetchAdd:
      return begin_atomic(wqe);
    case SendOpcode::kLocalInvalidate:
    case SendOpcode::kBindMw:
      break;
  }
  return refuse(Violation::kOperation);
}

/// Performs the local operations whose turn it is. True when a request for the peer comes next.
bool Requester::perform_local() {
  while (!held_ && next_ != queue_.tail()) {
    const SendWqe& wqe = queue_.at(next_);
    if (wqe.fence && !reads_.empty()) return false;
    if (!is_local(wqe.opcode)) return true;
    if (!model::perform_local(memory_, wqe, pd_, qpn_)) {
      return refuse(Violation::kMemoryOperation);
    }
    in_flight(next_) = {};
    framed(0);
    complete();
  }
  return false;
}

bool Requester::begin_transfer(const SendWqe& wqe) {
  if (!readable(wqe)) return refuse(Violation::kSendBuffer);
  const bool immediate_first = wqe.opcode == SendOpcode::kSendWithImm;
  progress_ = {.active = true, .stage = immediate_first ? Stage::kImmediate : Stage::kPayload};
  in_flight(next_) = {.first_msn = send_msn_};
  return true;
}

bool Requester::begin_read(const SendWqe& wqe) {
  // Without an ORD it could never start: better an error than silence.
  if (ord_ == 0) return refuse(Violation::kOperation);
  if (reads_.full()) return false;
  if (!writable(wqe)) return refuse(Violation::kReadSinkBuffer);
  progress_ = {.active = true, .stage = Stage::kReadRequests};
  in_flight(next_) = {};
  return true;
}

/// Whether a message may start: nothing of it goes out when a part of it cannot.
bool Requester::readable(const SendWqe& wqe) const {
  // A single piece is checked by the copy itself, before anything of it is sent, unless it takes
  // more than one FPDU: checking twice costs a small message a tenth of its time.
  if (wqe.inlined || (wqe.sge_count <= 1 && wqe.length <= one_segment_)) return true;
  return std::all_of(wqe.sges, wqe.sges + wqe.sge_count, [&](const Sge& sge) {
    return memory_.pin(sge.lkey, pd_, sge.addr, sge.length, model::kAccessLocalRead).has_value();
  });
}

bool Requester::writable(const SendWqe& wqe) const {
  return std::all_of(wqe.sges, wqe.sges + wqe.sge_count, [&](const Sge& sge) {
    return memory_.pin(sge.lkey, pd_, sge.addr, sge.length, model::kAccessLocalWrite).has_value();
  });
}

/// The WQE at next_ fails when all before it are complete; nothing more is framed.
bool Requester::refuse(Violation violation) {
  fault_ = Fault{.position = next_, .status = model::info(violation).local, .violation = violation};
  return false;
}

// Framing.

std::size_t Requester::frame(FpduWriter& writer, const Room& room) {
  if (fault_ || (!progress_.active && !begin())) return 0;
  const SendWqe& wqe = queue_.at(next_);
  switch (progress_.stage) {
    case Stage::kPayload:
      return frame_payload(writer, room, wqe);
    case Stage::kImmediate:
      return frame_immediate(writer, room, wqe);
    case Stage::kReadRequests:
      return frame_read(writer, room, wqe);
    case Stage::kAtomicRequest:
      return frame_atomic(writer, room, wqe);
  }
  return 0;
}

SegmentHeader Requester::payload_header(const SendWqe& wqe, bool last) const {
  if (is_write(wqe.opcode)) {
    return wire::tagged_header(Opcode::kWrite, last, wqe.rkey, wqe.remote_addr + progress_.offset);
  }
  const bool invalidates = wqe.opcode == SendOpcode::kSendWithInvalidate;
  return wire::untagged_header(send_opcode(wqe), last, send_msn_, progress_.offset,
                               invalidates ? wqe.rkey : Stag{});
}

std::size_t Requester::frame_payload(FpduWriter& writer, const Room& room, const SendWqe& wqe) {
  const std::size_t header_bytes =
      is_write(wqe.opcode) ? wire::kTaggedHeaderBytes : wire::kUntaggedHeaderBytes;
  const std::size_t remaining = wqe.length - progress_.offset;
  const auto payload = segment_payload(writer, room, header_bytes, remaining);
  if (!payload) return 0;
  const bool last = *payload == remaining;
  writer.begin(room.out, header_bytes + *payload);
  writer.header(payload_header(wqe, last));
  if (!gather(writer, wqe, *payload)) {
    refuse(Violation::kSendBuffer);
    return 0;
  }
  const std::size_t bytes = writer.finish();
  progress_.offset += static_cast<std::uint32_t>(*payload);
  payload_sent_ += *payload;
  if (last) payload_done(wqe, room.position + bytes);
  return bytes;
}

void Requester::payload_done(const SendWqe& wqe, std::uint64_t stream_end) {
  if (!is_write(wqe.opcode)) send_msn_ = wire::next(send_msn_);
  if (wqe.opcode == SendOpcode::kWriteWithImm) {
    progress_.stage = Stage::kImmediate;
  } else {
    framed(stream_end);
  }
}

/// Puts the next `bytes` of the message into the FPDU. False when memory is not ours to read.
bool Requester::gather(FpduWriter& writer, const SendWqe& wqe, std::size_t bytes) {
  if (wqe.inlined) {
    writer.append(Bytes{wqe.inline_data + progress_.offset, bytes});
    return true;
  }
  while (bytes != 0) {
    const Sge& sge = wqe.sges[progress_.sge];
    const std::size_t piece = std::min<std::size_t>(bytes, sge.length - progress_.sge_offset);
    if (piece == 0) {
      ++progress_.sge;
      progress_.sge_offset = 0;
      continue;
    }
    const bool in_place = piece >= kLeastInPlace && wqe.length >= kLeastMessageInPlace &&
                          writer.can_append_in_place();
    if (!(in_place ? gather_in_place(writer, sge, piece) : gather_copy(writer, sge, piece))) {
      return false;
    }
    progress_.sge_offset += static_cast<std::uint32_t>(piece);
    bytes -= piece;
  }
  return true;
}

bool Requester::gather_copy(FpduWriter& writer, const Sge& sge, std::size_t bytes) {
  const auto from = memory_.access(held_memory_, sge.lkey, pd_, sge.addr + progress_.sge_offset,
                                   bytes, model::kAccessLocalRead);
  return from && writer.append_guarded(Bytes{*from, bytes});
}

bool Requester::gather_in_place(FpduWriter& writer, const Sge& sge, std::size_t bytes) const {
  auto pin =
      memory_.pin(sge.lkey, pd_, sge.addr + progress_.sge_offset, bytes, model::kAccessLocalRead);
  if (!pin) return false;
  const Bytes memory{pin->data(), bytes};
  return writer.append_in_place(std::move(*pin), memory);
}

std::size_t Requester::frame_immediate(FpduWriter& writer, const Room& room, const SendWqe& wqe) {
  constexpr std::size_t kUlpdu = wire::kUntaggedHeaderBytes + wire::kImmediateBytes;
  if (!fits(writer, room, kUlpdu)) return 0;
  const bool after_write = wqe.opcode == SendOpcode::kWriteWithImm;
  const Opcode opcode =
      after_write && wqe.solicited ? Opcode::kImmediateSolicited : Opcode::kImmediate;
  std::byte payload[wire::kImmediateBytes];
  const std::uint32_t marker = after_write ? 0 : kSendImmediateMarker;
  (void)wire::emit_immediate(payload, make_immediate(wqe.immediate, marker));
  writer.begin(room.out, kUlpdu);
  writer.header(wire::untagged_header(opcode, true, send_msn_, 0));
  writer.append(payload);
  const std::size_t bytes = writer.finish();
  send_msn_ = wire::next(send_msn_);
  if (after_write) {
    framed(room.position + bytes);
  } else {
    progress_.stage = Stage::kPayload;
  }
  return bytes;
}

std::size_t Requester::frame_read(FpduWriter& writer, const Room& room, const SendWqe& wqe) {
  if (reads_.full()) return 0;
  // Empty pieces need no message, except that a READ of nothing at all is one.
  while (progress_.sge + 1 < wqe.sge_count && wqe.sges[progress_.sge].length == 0) ++progress_.sge;
  OutstandingRead read{.position = next_, .msn = read_msn_};
  if (wqe.sge_count != 0) read.sink = wqe.sges[progress_.sge];
  const std::size_t bytes =
      frame_read_request(writer, room, read, wqe.rkey, wqe.remote_addr + progress_.offset);
  if (bytes == 0) return 0;
  progress_.offset += read.sink.length;
  ++progress_.sge;
  ++in_flight(next_).reads;
  // What is left may be empty pieces only. An answer says more than TCP does: no stream position.
  if (progress_.sge >= wqe.sge_count || progress_.offset == wqe.length) framed(0);
  return bytes;
}

std::size_t Requester::frame_read_request(FpduWriter& writer, const Room& room,
                                          const OutstandingRead& read, Stag source,
                                          std::uint64_t source_offset) {
  constexpr std::size_t kUlpdu = wire::kUntaggedHeaderBytes + wire::kReadRequestBytes;
  if (!fits(writer, room, kUlpdu)) return 0;
  std::byte payload[wire::kReadRequestBytes];
  (void)wire::emit_read_request(payload, {.sink_stag = read.sink.lkey,
                                          .sink_offset = read.sink.addr,
                                          .read_bytes = read.sink.length,
                                          .source_stag = source,
                                          .source_offset = source_offset});
  writer.begin(room.out, kUlpdu);
  writer.header(wire::untagged_header(Opcode::kReadRequest, true, read.msn, 0));
  writer.append(payload);
  read_msn_ = wire::next(read_msn_);
  reads_.push(read);
  return writer.finish();
}

std::size_t Requester::frame_rtr(FpduWriter& writer, const Room& room, Opcode opcode) {
  // Kernel siw names STag 1 in these; with a length of zero nobody looks at it.
  constexpr Stag kAnyStag{1};
  if (opcode == Opcode::kReadRequest) {
    const OutstandingRead read{.msn = read_msn_, .sink = {.lkey = kAnyStag}};
    return frame_read_request(writer, room, read, kAnyStag, 0);
  }
  const bool tagged = opcode == Opcode::kWrite;
  writer.begin(room.out, tagged ? wire::kTaggedHeaderBytes : wire::kUntaggedHeaderBytes);
  writer.header(tagged ? wire::tagged_header(opcode, true, kAnyStag, 0)
                       : wire::untagged_header(opcode, true, send_msn_, 0));
  if (!tagged) send_msn_ = wire::next(send_msn_);
  return writer.finish();
}

void Requester::framed(std::uint64_t stream_end) {
  in_flight(next_).stream_end = stream_end;
  progress_.active = false;
  ++next_;
}

// Completing.

void Requester::on_transmitted(std::uint64_t position) {
  transmitted_ = position;
  complete();
}

void Requester::complete() {
  while (queue_.head() != next_) {
    const InFlight& entry = in_flight(queue_.head());
    if (entry.reads != 0 || entry.stream_end > transmitted_) return;
    const SendWqe& wqe = queue_.at(queue_.head());
    if (wqe.signaled) report(wqe, WcStatus::kSuccess);
    queue_.retire();
  }
}

void Requester::report(const SendWqe& wqe, WcStatus status) {
  log_.add({.wr_id = wqe.wr_id,
            .status = status,
            .opcode = wc_opcode(wqe.opcode),
            .byte_len = status == WcStatus::kSuccess ? wqe.length : 0});
}

Verdict Requester::on_read_response(const SegmentHeader& header, Bytes payload) {
  if (reads_.empty() || reads_.front().atomic) return Violation::kUnexpectedOpcode;
  OutstandingRead& read = reads_.front();
  if (header.stag != read.sink.lkey) return Violation::kTaggedInvalidStag;
  if (header.tagged_offset != read.sink.addr + read.received) return Violation::kTaggedBounds;
  if (payload.size() > read.sink.length - read.received) return Violation::kTaggedBounds;
  if (!payload.empty()) {
    const auto pin = memory_.pin(read.sink.lkey, pd_, header.tagged_offset, payload.size(),
                                 model::kAccessLocalWrite);
    if (!pin || !copy_to_program(pin->data(), payload)) {
      blame_read(read.msn, WcStatus::kLocalProtectionError);
      return Violation::kReadSinkBuffer;
    }
    read.received += static_cast<std::uint32_t>(payload.size());
    payload_received_ += payload.size();
  }
  if (!header.last) return {};
  if (read.received != read.sink.length) {
    blame_read(read.msn, WcStatus::kBadResponse);
    return Violation::kReadResponseLength;
  }
  read_done();
  return {};
}

void Requester::read_done() {
  const std::uint64_t position = reads_.front().position;
  reads_.pop();
  if (position == kNoPosition) return;
  --in_flight(position).reads;
  complete();
}

// Errors.

std::optional<Violation> Requester::due_fault() const {
  if (!fault_ || fault_->position != queue_.head()) return std::nullopt;
  return fault_->violation;
}

void Requester::blame_read(std::optional<wire::Msn> msn, WcStatus status) {
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const OutstandingRead& read = reads_.at(i);
    if (msn && read.msn != *msn) continue;
    if (read.position != kNoPosition) fault_ = Fault{.position = read.position, .status = status};
    return;
  }
}

void Requester::blame_transfer(const SegmentHeader& header, WcStatus status) {
  const std::uint64_t end = next_ + (progress_.active ? 1 : 0);
  for (std::uint64_t position = queue_.head(); position != end; ++position) {
    const SendWqe& wqe = queue_.at(position);
    const bool write = is_write(wqe.opcode);
    const std::uint32_t ahead = header.msn.value() - in_flight(position).first_msn.value();
    const bool it_is = header.tagged ? write && wqe.rkey == header.stag &&
                                           header.tagged_offset - wqe.remote_addr <= wqe.length
                                     : ahead < messages_in_queue_0(wqe.opcode);
    if (!it_is) continue;
    fault_ = Fault{.position = position, .status = status};
    return;
  }
}

void Requester::blame_unsent(WcStatus status) {
  const std::uint64_t end = next_ + (progress_.active ? 1 : 0);
  for (std::uint64_t position = queue_.head(); position != end; ++position) {
    if (position != next_ && in_flight(position).stream_end <= transmitted_) continue;
    fault_ = Fault{.position = position, .status = status};
    return;
  }
}

void Requester::flush() {
  while (!queue_.empty()) {
    const bool faulty = fault_ && fault_->position == queue_.head();
    report(queue_.at(queue_.head()), faulty ? fault_->status : WcStatus::kFlushError);
    queue_.retire();
  }
  next_ = queue_.head();
  progress_ = {};
  reads_.clear();
}

}  // namespace airdma::iwarp
