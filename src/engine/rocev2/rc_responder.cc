// SPDX-License-Identifier: MIT
#include "engine/rocev2/rc_responder.h"

#include <algorithm>
#include <utility>

#include "engine/rocev2/atomics.h"

namespace airdma::rocev2 {

using wire::Acknowledgement;
using wire::NakCode;
using wire::Operation;
using wire::RocePacket;

void RcResponder::start() {
  expected_ = acknowledged_ = message_end_ = first_sequence(shared_.attributes.rq_psn);
  msn_ = AckMsn{};
  ack_due_ = refused_ = false;
  nak_.reset();
  failure_.reset();
  set_read_depth(shared_.attributes.max_dest_rd_atomic);
}

void RcResponder::set_read_depth(std::uint8_t max_dest_rd_atomic) {
  responses_.reset(max_dest_rd_atomic);
}

void RcResponder::silence() {
  responses_.clear();
  nak_.reset();
  failure_.reset();
  ack_due_ = false;
}

// Requests.

void RcResponder::on_request(const RocePacket& packet) {
  const std::uint64_t sequence = extend(packet.psn, expected_);
  if (failure_) {
    // Deviation: a queue pair in ERR may be silent. The NAK may have been lost, and with it the
    // reason; a requester that asks again is told again.
    if (sequence >= nak_sequence_) nak_ = Acknowledgement::nak(*info(*failure_).nak, msn_);
    return;
  }
  if (sequence == expected_) return in_order(packet);
  if (sequence < expected_) return duplicate(packet, sequence);
  out_of_sequence(sequence);
}

/// Deviation: once a gap was reported a responder may ignore everything until the missing packet
/// comes. But when PSNs go back to what was ignored before, the peer has repeated the packets from
/// the gap on and the missing one was lost again: without a word it would wait for its timer.
void RcResponder::out_of_sequence(std::uint64_t sequence) {
  ++shared_.stats.out_of_sequence;
  const bool told = std::exchange(refused_, true);
  if (told && sequence > std::exchange(ahead_, sequence)) return;
  ahead_ = sequence;
  if (nak_) return;
  nak_ = Acknowledgement::nak(NakCode::kPsnSequence, msn_);
  nak_sequence_ = expected_;
}

void RcResponder::on_unknown_opcode(Psn psn) {
  if (!failure_ && extend(psn, expected_) == expected_) fail(Violation::kUnknownOpcode, expected_);
}

void RcResponder::in_order(const RocePacket& packet) {
  switch (packet.info->operation) {
    case Operation::kSend:
    case Operation::kWrite:
      return on_message(packet);
    case Operation::kReadRequest:
      return sink_.within_message() ? fail(Violation::kOpcodeSequence, expected_) : on_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return sink_.within_message() ? fail(Violation::kOpcodeSequence, expected_)
                                    : on_atomic(packet);
    case Operation::kAtomicWrite:
      return fail(Violation::kUnsupported, expected_);
    case Operation::kReadResponse:
    case Operation::kAcknowledge:
    case Operation::kAtomicAcknowledge:
    case Operation::kCongestionNotification:
      break;
  }
}

void RcResponder::on_message(const RocePacket& packet) {
  switch (sink_.accept(packet)) {
    case MessageSink::Outcome::kTaken:
      break;
    case MessageSink::Outcome::kNoReceive:
      nak_ = Acknowledgement::rnr_nak(shared_.attributes.min_rnr_timer, msn_);
      nak_sequence_ = expected_;
      refused_ = true;
      ahead_ = expected_;
      ++shared_.stats.rnr_naks_sent;
      return;
    case MessageSink::Outcome::kRefused:
      return fail(sink_.refusal(), expected_);
  }
  ack_due_ |= packet.ack_request;
  ++unanswered_;
  advance(1, packet.info->ends());
  message_end_ = expected_;
}

void RcResponder::on_read(const RocePacket& packet) {
  const wire::RemoteRange& range = packet.remote;
  if ((shared_.attributes.remote_access & model::kAccessRemoteRead) == 0) {
    return fail(Violation::kNotEnabled, expected_);
  }
  if (range.bytes > kMaxMessageBytes) return fail(Violation::kMessageTooLong, expected_);
  if (responses_.full()) return fail(Violation::kTooManyReads, expected_);
  const auto pd = sink_.domain(packet);
  if (!pd) return fail(Violation::kNoSuchSharedQueue, expected_);
  const auto pin = shared_.memory.pin(range.rkey, *pd, range.address, range.bytes,
                                      model::kAccessRemoteRead, shared_.config.qpn);
  if (!pin) return fail(access_violation(pin.error()), expected_);
  const std::uint32_t packets = packets_of(range.bytes, shared_.mtu());
  responses_.push(
      {.sequence = expected_, .packets = packets, .msn = msn_.next(), .pd = *pd, .range = range});
  advance(packets, true);
}

void RcResponder::on_atomic(const RocePacket& packet) {
  if (responses_.full()) return fail(Violation::kTooManyReads, expected_);
  const auto pd = sink_.domain(packet);
  if (!pd) return fail(Violation::kNoSuchSharedQueue, expected_);
  const auto original = perform_atomic(shared_, *pd, packet);
  if (!original) return fail(original.error(), expected_);
  responses_.push({.sequence = expected_,
                   .packets = 1,
                   .atomic = true,
                   .msn = msn_.next(),
                   .original = *original});
  advance(1, true);
}

void RcResponder::advance(std::uint32_t packets, bool message_ends) {
  expected_ += packets;
  if (message_ends) msn_ = msn_.next();
  refused_ = false;
  nak_.reset();  // of a gap that has closed
}

/// Requests that were carried out are not carried out again (IBTA vol. 1, 9.7.5.1.5).
void RcResponder::duplicate(const RocePacket& packet, std::uint64_t sequence) {
  ++shared_.stats.duplicates;
  const wire::RemoteRange& range = packet.remote;
  switch (packet.info->operation) {
    case Operation::kSend:
    case Operation::kWrite:
      ack_due_ = true;
      return;
    case Operation::kReadRequest: {
      const std::uint32_t packets = packets_of(range.bytes, shared_.mtu());
      const auto pd = sink_.domain(packet);
      if (range.bytes > kMaxMessageBytes || sequence + packets > expected_ || !pd) return;
      return responses_.repeat_read({.sequence = sequence,
                                     .packets = packets,
                                     .repeated = true,
                                     .msn = msn_,
                                     .pd = *pd,
                                     .range = range},
                                    shared_.mtu());
    }
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      if (!responses_.repeat_atomic(sequence, msn_)) ++shared_.stats.dropped;
      return;
    case Operation::kAtomicWrite:
    case Operation::kReadResponse:
    case Operation::kAcknowledge:
    case Operation::kAtomicAcknowledge:
    case Operation::kCongestionNotification:
      ++shared_.stats.dropped;
  }
}

void RcResponder::fail(Violation violation, std::uint64_t sequence) {
  failure_ = violation;
  nak_ = Acknowledgement::nak(*info(violation).nak, msn_);
  nak_sequence_ = sequence;
  ack_due_ = false;
}

// Answers.

void RcResponder::fill(PacketBatch& batch) {
  while (!responses_.empty()) {
    // What came before the violation is still answered.
    if (failure_ && responses_.front().sequence >= nak_sequence_) {
      responses_.clear();
    } else if (!fill_response(batch)) {
      return;
    }
  }
  if (!batch.has_room(0)) return;
  unanswered_ = 0;
  // Peer: the kernel's rxe hears a second NAK only when an acknowledgement has come since the
  // first, and waits for its timer otherwise.
  const bool gap = nak_ && nak_->is_nak(NakCode::kPsnSequence);
  if (gap && acknowledged_ < message_end_) {
    add_acknowledgement(batch, message_end_ - 1, Acknowledgement::ack(msn_));
    if (!batch.has_room(0)) return;
  }
  if (nak_) {
    add_acknowledgement(batch, nak_sequence_, *nak_);
    nak_.reset();
    ack_due_ = false;
  } else if (std::exchange(ack_due_, false)) {
    // Peer: the kernel's rxe takes an ACK with the PSN of a READ or an atomic for its response, and
    // reports data that never came. So a message that comes again gets the PSN of a message.
    add_acknowledgement(batch, message_end_ - 1, Acknowledgement::ack(msn_));
  }
}

/// False when the batch is full.
bool RcResponder::fill_response(PacketBatch& batch) {
  if (!batch.has_room(1)) return false;
  Response& response = responses_.front();
  if (response.atomic) {
    add_atomic(batch, response);
  } else if (!fill_read(batch, response)) {
    return false;
  }
  // A response acknowledges what came before it.
  if (response.end() == expected_) ack_due_ = false;
  acknowledged_ = std::max(acknowledged_, response.end());
  responses_.pop();
  return true;
}

/// False when the batch is full before the response is complete.
bool RcResponder::fill_read(PacketBatch& batch, Response& response) {
  const std::uint64_t mtu = shared_.mtu();
  const auto from = static_cast<std::uint32_t>(response.done * mtu);
  const auto most = PacketBatch::kMaxPackets * mtu;
  const auto bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(response.range.bytes - from, most));
  auto pin = shared_.memory.pin(response.range.rkey, response.pd, response.range.address + from,
                                bytes, model::kAccessRemoteRead, shared_.config.qpn);
  if (!pin) {
    // A request that comes late a second time must not end a connection that has gone on.
    if (!response.repeated) fail(Violation::kWithdrawn, response.sequence + response.done);
    response.packets = response.done;
    return true;
  }
  Bytes rest{pin->data(), bytes};
  batch.keep(std::move(*pin));
  while (response.done != response.packets) {
    if (!batch.has_room(1)) return false;
    const Bytes payload = rest.first(std::min<std::size_t>(rest.size(), mtu));
    rest = rest.subspan(payload.size());
    add_read_packet(batch, response, payload);
  }
  return true;
}

void RcResponder::add_read_packet(PacketBatch& batch, Response& response, Bytes payload) {
  const bool first = response.done == 0;
  const bool last = response.done + 1 == response.packets;
  OutPacket& out = batch.next();
  out.owner = PacketOwner::kResponder;
  out.position = 0;
  out.sequence = response.sequence + response.done;
  const bool alike = response.done > 1 && !last &&
                     follows(batch, PacketOwner::kResponder, out.position, out.sequence);
  if (!payload.empty()) batch.add_piece(out, payload);
  if (alike) {
    repeat_headers(shared_, batch, out);
    ++response.done;
    return;
  }
  RocePacket packet = shared_.to_peer(wire::read_response_code(first, last), out.sequence);
  packet.acknowledgement = Acknowledgement::ack(response.msn);
  finish_packet(shared_, batch, out, packet);
  ++response.done;
}

void RcResponder::add_atomic(PacketBatch& batch, const Response& response) {
  OutPacket& out = batch.next();
  out.owner = PacketOwner::kResponder;
  out.sequence = response.sequence;
  RocePacket packet = shared_.to_peer(wire::PacketCode::kAtomicAcknowledge, out.sequence);
  packet.acknowledgement = Acknowledgement::ack(response.msn);
  packet.original = response.original;
  finish_packet(shared_, batch, out, packet);
}

void RcResponder::add_acknowledgement(PacketBatch& batch, std::uint64_t sequence,
                                      const Acknowledgement& acknowledgement) {
  OutPacket& out = batch.next();
  out.owner = PacketOwner::kResponder;
  out.sequence = sequence;
  if (acknowledgement.kind == wire::AckKind::kAck) {
    acknowledged_ = std::max(acknowledged_, sequence + 1);
  }
  RocePacket packet = shared_.to_peer(wire::PacketCode::kAcknowledge, sequence);
  packet.acknowledgement = acknowledgement;
  finish_packet(shared_, batch, out, packet);
}

/// The program has taken the memory of a READ away while it is registered.
void RcResponder::on_unsent(const OutPacket& packet) {
  if (!failure_) fail(Violation::kDenied, packet.sequence);
  responses_.clear();
}

}  // namespace airdma::rocev2
