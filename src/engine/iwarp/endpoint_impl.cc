// SPDX-License-Identifier: MIT
#include "engine/iwarp/endpoint_impl.h"

#include <algorithm>
#include <utility>

namespace airdma::iwarp {

using model::Violation;
using model::WcStatus;
using wire::Opcode;
using wire::QueueNumber;
using wire::TerminateLayer;

namespace {

// Limit: below this headers would outweigh payload; no path has so small a segment.
constexpr std::size_t kLeastUlpdu = 128;
constexpr int kMostNudges = 3;
constexpr int kNudgeBackoff = 5;
// How long what a departed peer has sent may wait for a receive.
constexpr Duration kPatience = std::chrono::milliseconds(500);

// Error types of RDMAP in a Terminate (RFC 5040 4.8).
constexpr std::uint8_t kRemoteProtection = 1;
constexpr std::uint8_t kRemoteOperation = 2;
constexpr std::uint8_t kTaggedBuffer = 1;  // of DDP

/// Peer: without headers the kernel's siw's "unexpected opcode" and "catastrophic error of the
/// stream" have the bytes of two causes of RFC 6581 that can only come before anything is asked.
wire::TerminateCause cause_while_operational(const wire::TerminateMessage& message) {
  const bool of_setup =
      message.cause == wire::cause::kMpaInsufficientIrd || message.cause == wire::cause::kMpaNoRtr;
  if (message.segment_header || !of_setup) return message.cause;
  return {TerminateLayer::kRdmap, kRemoteOperation, message.cause.code};
}

/// Whose segment a Terminate shows.
bool is_write(const wire::SegmentHeader& header) {
  return header.tagged && header.opcode == static_cast<std::uint8_t>(Opcode::kWrite);
}
bool names_queue(const wire::SegmentHeader& header, QueueNumber queue) {
  return !header.tagged && header.queue == queue;
}

/// What a request completes with that the peer refused for this cause.
WcStatus refused_status(const wire::TerminateCause& cause) {
  const bool tagged = cause.layer == TerminateLayer::kDdp && cause.type == kTaggedBuffer &&
                      cause != wire::cause::kTaggedDdpVersion;
  const bool protection = cause.layer == TerminateLayer::kRdmap && cause.type == kRemoteProtection;
  if (tagged || protection) return WcStatus::kRemoteAccessError;
  const bool catastrophe = cause == wire::cause::kStreamCatastrophe ||
                           cause == wire::cause::kGlobalCatastrophe || cause.type == 0;
  return catastrophe ? WcStatus::kRemoteOperationError : WcStatus::kRemoteInvalidRequest;
}

}  // namespace

EndpointImpl::EndpointImpl(const EndpointConfig& config, const model::MemoryTable& memory,
                           model::SendQueue& send_queue, model::ReceiveQueue& receive_queue)
    : log_(config.qpn),
      requester_(memory, config.pd, config.qpn, send_queue, log_),
      responder_(memory, config.pd, config.qpn, config.remote_access),
      target_(memory, config.pd, config.qpn, config.remote_access, receive_queue, log_),
      shares_receives_(config.shared_receives != nullptr) {
  if (shares_receives_) target_.share_receives(*config.shared_receives, config.receive_pd);
}

void EndpointImpl::start(const StreamParams& params, Time now) {
  if (state_ != EndpointState::kIdle) return;
  params_ = params;
  params_.max_ulpdu = std::clamp(params.max_ulpdu, kLeastUlpdu, wire::kMaxUlpduBytes);
  reader_.start(params.crc, params.receive_markers);
  writer_.start(params.crc, params.send_markers);
  requester_.start(params.ord, params_.max_ulpdu);
  responder_.start(params.ird);
  target_.start(!params.initiator && params.rtr == Rtr::kSend);
  rtr_due_ = params.initiator && params.rtr != Rtr::kNone;
  held_ = !params.initiator;
  nudge_interval_ = params.nudge_after;
  nudge_ = params.nudge_after == Duration::max() ? Nudge::kOver : Nudge::kNotYet;
  // With an RTR frame agreed the initiator's first FPDU is certain to come (RFC 6581 9.2).
  if (held_ && params.rtr == Rtr::kNone) hold_end_ = now + params.first_fpdu_grace;
  state_ = EndpointState::kOperational;
}

// Receiving.

void EndpointImpl::on_bytes(Bytes bytes) {
  if (state_ != EndpointState::kOperational) return;
  reader_.feed(bytes);
  if (!stalled_) drain_reader();
  if (state_ == EndpointState::kOperational) reader_.keep_rest();
}

std::size_t EndpointImpl::take_bytes(Bytes bytes) {
  if (state_ != EndpointState::kOperational) return bytes.size();
  reader_.feed(bytes);
  if (!stalled_) drain_reader();
  if (state_ != EndpointState::kOperational) return bytes.size();
  if (!stalled_) return bytes.size() - reader_.leave_rest();
  reader_.keep_rest();
  return bytes.size();
}

void EndpointImpl::on_receives_posted(Time now) {
  if (!wants_receives()) return;
  const std::size_t waited = target_.parked();
  deliver_parked();
  if (std::exchange(stalled_, false)) drain_reader();
  if (!stream_end_ || state_ != EndpointState::kOperational) return;
  if (!wants_receives()) return finish(*stream_end_);
  if (target_.parked() < waited) finish_at_ = now + kPatience;
}

void EndpointImpl::deliver_parked() {
  const model::PinScope memory(target_.held_memory());
  const Verdict verdict = target_.deliver_parked();
  if (verdict.kind != Verdict::Kind::kViolation) return;
  const UntaggedSegment segment = target_.oldest_parked();
  const Offender offender{.segment_bytes = segment.header.bytes() + segment.payload.size(),
                          .header = segment.header,
                          .read_request = std::nullopt};
  raise(verdict.violation, &offender);
}

void EndpointImpl::drain_reader() {
  const model::PinScope memory(target_.held_memory());
  while (state_ == EndpointState::kOperational) {
    const FpduReader::Next next = reader_.next();
    if (next.outcome == FpduReader::Outcome::kNeedMore) return;
    if (next.outcome == FpduReader::Outcome::kBad) return raise(next.violation, nullptr);
    held_ = false;
    nudge_ = Nudge::kOver;
    Offender offender;
    const Verdict verdict = on_segment(next.ulpdu, offender);
    switch (verdict.kind) {
      case Verdict::Kind::kDone:
        break;
      case Verdict::Kind::kStall:
        stalled_ = true;
        return;
      case Verdict::Kind::kViolation:
        return raise(verdict.violation, &offender);
    }
    ++stats_.fpdus_received;
    if (state_ == EndpointState::kOperational) reader_.consume();
  }
}

Verdict EndpointImpl::on_segment(Bytes ulpdu, Offender& offender) {
  const auto header = wire::parse_segment_header(ulpdu);
  if (!header) return Violation::kSegmentTooShort;
  offender.segment_bytes = ulpdu.size();
  offender.header = *header;
  if (header->ddp_version != wire::kDdpVersion) {
    return header->tagged ? Violation::kTaggedVersion : Violation::kUntaggedVersion;
  }
  if (!header->tagged && header->queue > QueueNumber::kAtomicResponse)
    return Violation::kUntaggedQueue;
  if (header->rdmap_version != wire::kRdmapVersion) return Violation::kRdmapVersion;
  const wire::OpcodeInfo* opcode = wire::find_opcode(header->opcode);
  if (opcode == nullptr || opcode->tagged != header->tagged) return Violation::kUnexpectedOpcode;
  if (!header->tagged && opcode->queue != header->queue) return Violation::kUnexpectedOpcode;
  return dispatch(*opcode, ulpdu.subspan(header->bytes()), offender);
}

Verdict EndpointImpl::dispatch(const wire::OpcodeInfo& opcode, Bytes payload, Offender& offender) {
  const wire::SegmentHeader& header = offender.header;
  switch (opcode.opcode) {
    case Opcode::kWrite:
      return target_.on_write(header, payload);
    case Opcode::kReadResponse:
      return requester_.on_read_response(header, payload);
    case Opcode::kSend:
    case Opcode::kSendInvalidate:
    case Opcode::kSendSolicited:
    case Opcode::kSendSolicitedInvalidate:
    case Opcode::kImmediate:
    case Opcode::kImmediateSolicited:
      return target_.on_untagged(header, opcode, payload);
    case Opcode::kReadRequest:
      return on_read_request(payload, offender);
    case Opcode::kTerminate:
      return on_terminate(payload);
    case Opcode::kAtomicRequest:
      return on_atomic_request(header, payload);
    case Opcode::kAtomicResponse:
      return requester_.on_atomic_response(header, payload);
  }
  return Violation::kUnexpectedOpcode;
}

Verdict EndpointImpl::on_read_request(Bytes payload, Offender& offender) {
  const auto request = wire::parse_read_request(payload);
  if (!request || payload.size() != wire::kReadRequestBytes || !offender.header.last) {
    return Violation::kMessageLength;
  }
  offender.read_request = *request;
  return responder_.accept({.header = offender.header, .request = *request});
}

Verdict EndpointImpl::on_atomic_request(const wire::SegmentHeader& header, Bytes payload) {
  const auto request = wire::parse_atomic_request(payload);
  if (!request || payload.size() != wire::kAtomicRequestBytes || !header.last) {
    return Violation::kMessageLength;
  }
  return responder_.accept({.header = header, .request = InboundAtomic{.request = *request}});
}

// Terminate (RFC 5040 4.8, 7.1): whatever it says, the stream is over and gets no answer. What was
// sent before it is delivered first if it can be; when the FIN behind it has waited, it cannot.

Verdict EndpointImpl::on_terminate(Bytes payload) {
  if (wants_receives() && !stream_end_) return Verdict::stall();
  failure_ = "the peer sent a Terminate that says nothing";
  if (auto message = wire::parse_terminate(payload)) {
    if (requester_.awaits_answer()) message->cause = cause_while_operational(*message);
    failure_ = wire::describe(message->cause).data();
    blame_by(*message);
  }
  end(StreamRequest::kShutdown);
  return {};
}

/// Finds the request of ours that the peer refused, when the Terminate is about one.
void EndpointImpl::blame_by(const wire::TerminateMessage& message) {
  const WcStatus status = refused_status(message.cause);
  if (const auto& header = message.segment_header) {
    if (names_queue(*header, QueueNumber::kReadRequest)) {
      return requester_.blame_read(header->msn, status);
    }
    const bool send = names_queue(*header, QueueNumber::kSend);
    const bool no_receive = send && message.cause == wire::cause::kUntaggedNoBuffer;
    if (send || is_write(*header)) {
      requester_.blame_transfer(*header, no_receive ? WcStatus::kRnrRetryExceeded : status);
    }
    return;
  }
  // Without headers an RDMAP error can only be about a READ while some are outstanding: errors of
  // WRITE are DDP's, apart from rights.
  const bool may_be_read =
      message.cause.layer == TerminateLayer::kRdmap &&
      (message.cause.type == kRemoteProtection || message.cause.type == kRemoteOperation);
  if (!may_be_read) return;
  // Any peer of RFC 5040 knows READs, but atomics may be news to it.
  if (message.cause == wire::cause::kUnexpectedOpcode && requester_.blame_atomic(status)) return;
  requester_.blame_read(std::nullopt, status);
}

// Sending.

bool EndpointImpl::may_transmit() const {
  if (state_ == EndpointState::kError) return terminate_.has_value();
  if (state_ == EndpointState::kIdle || was_reset()) return false;
  return rtr_due_ || nudge_ == Nudge::kDue || requester_.has_work() || responder_.has_work() ||
         responder_.failure().has_value() || requester_.due_fault().has_value();
}

std::size_t EndpointImpl::poll_transmit(MutableBytes out, Time now) {
  if (state_ == EndpointState::kError) return frame_terminate(out);
  if (state_ == EndpointState::kIdle || was_reset() || holding(now)) return 0;
  const model::PinScope memory(requester_.held_memory());
  Room room{.out = out, .fresh = true, .position = produced_, .max_ulpdu = params_.max_ulpdu};
  while (true) {
    if (writer_.gathered_enough()) break;
    std::size_t bytes = rtr_due_ ? frame_rtr(room) : frame_next(room);
    if (bytes == 0 && nudge_ == Nudge::kDue) bytes = frame_nudge(room);
    if (bytes == 0) break;
    room.out = room.out.subspan(bytes - writer_.in_place_bytes());
    room.position += bytes;
    room.fresh = false;
    ++stats_.fpdus_sent;
  }
  const auto used = static_cast<std::size_t>(room.position - produced_);
  produced_ = room.position;
  if (used != 0 && params_.initiator && nudge_ == Nudge::kNotYet) {
    nudge_ = Nudge::kArmed;
    nudge_at_ = now + nudge_interval_;
  }
  raise_local_faults();
  if (used == 0 && state_ == EndpointState::kError) return frame_terminate(out);
  return used;
}

std::size_t EndpointImpl::poll_transmit(Gather& gather, Time now) {
  writer_.gather_into(&gather);
  const std::size_t bytes = poll_transmit(gather.buffer(), now);
  writer_.gather_into(nullptr);
  gather.add_buffer(gather.buffer().data() + (bytes - gather.memory_bytes()));
  return bytes;
}

/// The stream is in the middle of an FPDU that nobody can complete.
void EndpointImpl::on_payload_lost() {
  if (state_ == EndpointState::kOperational) {
    const model::ViolationInfo& info = model::info(Violation::kSendBuffer);
    failure_ = info.text;
    event_ = info.event;
    requester_.blame_unsent(info.local);
    end(StreamRequest::kAbort);
  }
  abandon();
}

bool EndpointImpl::holding(Time now) {
  if (held_ && hold_end_ && now >= *hold_end_) held_ = false;
  return held_;
}

std::size_t EndpointImpl::frame_rtr(const Room& room) {
  if (room.out.size() < kLeastUlpdu) return 0;
  rtr_due_ = false;
  switch (params_.rtr) {
    case Rtr::kSend:
      return requester_.frame_rtr(writer_, room, Opcode::kSend);
    case Rtr::kRead:
      return requester_.frame_rtr(writer_, room, Opcode::kReadRequest);
    case Rtr::kWrite:
    case Rtr::kNone:
      break;
  }
  return requester_.frame_rtr(writer_, room, Opcode::kWrite);
}

/// A zero-length WRITE, which changes nothing and needs no key (RFC 5040 5.2).
/// Peer: the kernel's siw switches its socket to FPDU mode after it has sent the MPA reply, and is
/// not told again of bytes that came in between; it would wait for ever with our first message in
/// its socket, and we for its answer. A slow peer may miss the first of these as well.
std::size_t EndpointImpl::frame_nudge(const Room& room) {
  if (room.out.size() < kLeastUlpdu) return 0;
  // Not between the segments of a message, nor between a WRITE and its Immediate Data.
  if (requester_.within_request() || responder_.within_message()) return 0;
  nudge_interval_ *= kNudgeBackoff;
  nudge_ = ++nudges_ < kMostNudges ? Nudge::kNotYet : Nudge::kOver;
  return requester_.frame_rtr(writer_, room, Opcode::kWrite);
}

/// READ responses and our own messages take turns, message by message. DDP lets their segments mix
/// (RFC 5041 5.3), but the kernel's siw ends the stream when a Read Response's segment comes
/// between two of a WRITE, or the other way round.
std::size_t EndpointImpl::frame_next(const Room& room) {
  if (!responder_.has_work() || requester_.within_message()) return requester_.frame(writer_, room);
  if (responder_.within_message()) return responder_.frame(writer_, room);
  responder_turn_ = !responder_turn_;
  if (!responder_turn_) {
    if (const std::size_t bytes = requester_.frame(writer_, room)) return bytes;
  }
  return responder_.frame(writer_, room);
}

/// Errors that framing found, once everything before them is done.
void EndpointImpl::raise_local_faults() {
  if (state_ != EndpointState::kOperational) return;
  if (const auto violation = responder_.failure()) {
    const InboundRead read = responder_.oldest();
    const auto* request = std::get_if<wire::ReadRequest>(&read.request);
    const std::size_t bytes = request ? wire::kReadRequestBytes : wire::kAtomicRequestBytes;
    const Offender offender{.segment_bytes = read.header.bytes() + bytes,
                            .header = read.header,
                            .read_request = request ? std::optional(*request) : std::nullopt};
    return raise(*violation, &offender);
  }
  if (const auto violation = requester_.due_fault()) raise(*violation, nullptr);
}

void EndpointImpl::on_transmitted(std::size_t bytes) {
  transmitted_ = std::min(transmitted_ + bytes, produced_);
  if (state_ != EndpointState::kOperational) return;
  requester_.on_transmitted(transmitted_);
  raise_local_faults();
}

std::size_t EndpointImpl::frame_terminate(MutableBytes out) {
  if (!terminate_) return 0;
  std::byte payload[wire::kTerminateMaxBytes];
  const std::size_t payload_bytes = wire::emit_terminate(payload, *terminate_);
  const std::size_t ulpdu = wire::kUntaggedHeaderBytes + payload_bytes;
  if (ulpdu > writer_.max_ulpdu(out.size())) return 0;
  terminate_.reset();
  writer_.begin(out, ulpdu);
  writer_.header(wire::untagged_header(Opcode::kTerminate, true, wire::kFirstMsn, 0));
  writer_.append(Bytes{payload, payload_bytes});
  const std::size_t bytes = writer_.finish();
  produced_ += bytes;
  ++stats_.fpdus_sent;
  return bytes;
}

// Ending.

void EndpointImpl::raise(Violation violation, const Offender* offender) {
  const model::ViolationInfo& info = model::info(violation);
  failure_ = info.text;
  event_ = info.event;
  wire::TerminateMessage message;
  message.cause = {
      .layer = static_cast<TerminateLayer>(info.layer), .type = info.type, .code = info.code};
  if (offender != nullptr && info.headers == model::TerminateHeaders::kSegment) {
    message.segment_bytes = static_cast<std::uint16_t>(offender->segment_bytes);
    message.segment_header = offender->header;
    // The Read Request's own header is for RDMAP to see (RFC 5040 4.8).
    if (message.cause.layer == TerminateLayer::kRdmap)
      message.read_request = offender->read_request;
  }
  terminate_ = message;
  const bool of_receive =
      violation == Violation::kUntaggedTooLong || violation == Violation::kReceiveBuffer;
  end(StreamRequest::kShutdown, of_receive ? info.local : WcStatus::kFlushError);
}

void EndpointImpl::end(StreamRequest request, WcStatus first_receive) {
  state_ = EndpointState::kError;
  request_ = request;
  last_receive_notice_ = shares_receives_;
  stalled_ = held_ = rtr_due_ = false;
  requester_.flush();
  target_.flush(first_receive);
  responder_.clear();
  reader_.discard();
  if (was_reset()) abandon();
}

void EndpointImpl::on_stream_end(StreamEnd how, Time now) {
  if (!wants_receives() || stalled_ || stream_end_) return finish(how);
  stream_end_ = how;
  finish_at_ = now + kPatience;
}

void EndpointImpl::finish(StreamEnd how) {
  stream_end_ = how;
  if (std::exchange(stalled_, false)) drain_reader();  // to a Terminate, perhaps
  const bool reset = how == StreamEnd::kReset;
  if (state_ != EndpointState::kError) {
    failure_ = reset ? "the peer reset the connection" : "the peer closed the connection";
    end(StreamRequest::kShutdown);
  }
  if (reset) abandon();
}

/// There is no stream left to say anything on.
void EndpointImpl::abandon() {
  terminate_.reset();
  request_ = StreamRequest::kAbort;
}

void EndpointImpl::disconnect() {
  if (state_ != EndpointState::kError) end(StreamRequest::kShutdown);
}

void EndpointImpl::fail() {
  if (state_ == EndpointState::kError) return;
  const bool terminate = state_ == EndpointState::kOperational;
  raise(Violation::kProgram, nullptr);
  if (!terminate) terminate_.reset();
}

void EndpointImpl::set_remote_access(model::AccessMask access) {
  target_.set_remote_access(access);
  responder_.set_remote_access(access);
}

void EndpointImpl::hold_sends(bool held, bool notify) {
  requester_.hold(held);
  drain_notice_ = held && notify;
}

void EndpointImpl::on_deadline(Time now) {
  const bool put_off = stream_end_ && state_ == EndpointState::kOperational;
  if (put_off && now >= finish_at_) finish(*stream_end_);
  (void)holding(now);
  if (nudge_ == Nudge::kArmed && now >= nudge_at_) nudge_ = Nudge::kDue;
}

// Outputs.

std::span<const model::Completion> EndpointImpl::completions() {
  if (state_ == EndpointState::kError) {
    requester_.flush();
    target_.flush();
  }
  return log_.entries();
}

std::optional<model::QpEvent> EndpointImpl::poll_event() {
  if (event_) return std::exchange(event_, std::nullopt);
  if (drain_notice_ && state_ != EndpointState::kError && requester_.drained()) {
    drain_notice_ = false;
    return model::QpEvent::kSqDrained;
  }
  if (std::exchange(last_receive_notice_, false)) return model::QpEvent::kLastWqeReached;
  return std::nullopt;
}

std::optional<Time> EndpointImpl::next_deadline() const {
  if (state_ != EndpointState::kOperational) return std::nullopt;
  if (stream_end_) return finish_at_;
  if (held_) return hold_end_;
  return nudge_ == Nudge::kArmed ? std::optional(nudge_at_) : std::nullopt;
}

const EndpointStats& EndpointImpl::stats() const {
  stats_.payload_sent = requester_.payload_sent() + responder_.payload_sent();
  stats_.payload_received = requester_.payload_received() + target_.payload_received();
  stats_.payload_written = target_.payload_written();
  return stats_;
}

}  // namespace airdma::iwarp
