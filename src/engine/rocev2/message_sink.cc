// SPDX-License-Identifier: MIT
#include "engine/rocev2/message_sink.h"

#include <span>

namespace airdma::rocev2 {

using model::ReceiveWqe;
using model::WcOpcode;
using model::WcStatus;
using wire::Operation;
using wire::Position;
using wire::RocePacket;

MessageSink::MessageSink(Shared& shared, model::ReceiveQueue& queue)
    : shared_(shared),
      queue_(queue),
      receive_pd_(shared.config.shared_receives != nullptr ? shared.config.receive_pd
                                                           : shared.config.pd),
      scatter_(shared.memory),
      target_(shared.memory) {}

std::optional<PdId> MessageSink::domain(const RocePacket& packet) const {
  if (shared_.config.xrc_receives == nullptr) return shared_.config.pd;
  return shared_.config.xrc_receives->domain(packet.srqn);
}

MessageSink::Outcome MessageSink::accept(const RocePacket& packet) {
  if (const auto violation = check_place(packet)) return refuse(*violation);
  if (packet.info->starts()) {
    if (const Outcome outcome = begin(packet); outcome != Outcome::kTaken) return outcome;
  }
  // The immediate of a WRITE needs a receive; when there is none the last packet comes again.
  if (packet.info->ends() && operation_ == Operation::kWrite && packet.info->has(wire::kHasImmDt)) {
    if (const Outcome outcome = take_receive(packet); outcome != Outcome::kTaken) {
      if (packet.info->starts()) active_ = false;
      return outcome;
    }
  }
  if (const Outcome outcome = place(packet); outcome != Outcome::kTaken) return outcome;
  return packet.info->ends() ? end(packet) : Outcome::kTaken;
}

/// Whether the packet continues what has come before, with a payload of the right size.
std::optional<Violation> MessageSink::check_place(const RocePacket& packet) const {
  if (packet.info->starts() == active_) return Violation::kOpcodeSequence;
  if (active_ && packet.info->operation != operation_) return Violation::kOpcodeSequence;
  const std::size_t bytes = packet.payload.size();
  const std::uint32_t mtu = shared_.mtu();
  switch (packet.info->position) {
    case Position::kFirst:
    case Position::kMiddle:
      if (bytes != mtu) return Violation::kPayloadLength;
      break;
    case Position::kLast:
      if (bytes == 0 || bytes > mtu) return Violation::kPayloadLength;
      break;
    case Position::kOnly:
      if (bytes > mtu) return Violation::kPayloadLength;
      break;
  }
  return std::nullopt;
}

MessageSink::Outcome MessageSink::begin(const RocePacket& packet) {
  const bool write = packet.info->operation == Operation::kWrite;
  const Outcome outcome = write ? begin_write(packet) : take_receive(packet);
  if (outcome != Outcome::kTaken) return outcome;
  operation_ = packet.info->operation;
  active_ = true;
  received_ = 0;
  if (!write) {
    const ReceiveWqe& wqe = queue_.at(queue_.head());
    scatter_.begin(std::span(wqe.sges, wqe.sge_count), receive_pd_);
  }
  return Outcome::kTaken;
}

MessageSink::Outcome MessageSink::begin_write(const RocePacket& packet) {
  if ((shared_.attributes.remote_access & model::kAccessRemoteWrite) == 0) {
    return refuse(Violation::kNotEnabled);
  }
  if (packet.remote.bytes > kMaxMessageBytes) return refuse(Violation::kMessageTooLong);
  const auto pd = domain(packet);
  if (!pd) return refuse(Violation::kNoSuchSharedQueue);
  // An empty WRITE touches nothing, whatever its key.
  const auto fault = target_.begin(packet.remote, {.pd = *pd, .qpn = shared_.config.qpn});
  if (fault) return refuse(access_violation(*fault));
  expected_ = packet.remote.bytes;
  return Outcome::kTaken;
}

/// The head of the queue is there, or put there.
MessageSink::Outcome MessageSink::take_receive(const RocePacket& packet) {
  if (!queue_.empty()) return Outcome::kTaken;
  if (shared_.config.shared_receives != nullptr) {
    return shared_.config.shared_receives->take(queue_) ? Outcome::kTaken : Outcome::kNoReceive;
  }
  if (shared_.config.xrc_receives == nullptr) return Outcome::kNoReceive;
  switch (shared_.config.xrc_receives->take(packet.srqn, queue_, receive_pd_)) {
    case XrcReceives::Outcome::kTaken:
      srqn_ = packet.srqn;
      return Outcome::kTaken;
    case XrcReceives::Outcome::kEmpty:
      return Outcome::kNoReceive;
    case XrcReceives::Outcome::kNoSuchQueue:
      break;
  }
  return refuse(Violation::kNoSuchSharedQueue);
}

MessageSink::Outcome MessageSink::place(const RocePacket& packet) {
  const std::size_t bytes = packet.payload.size();
  if (operation_ == Operation::kWrite) {
    if (bytes > expected_ - received_) return refuse(Violation::kWriteLength);
    if (packet.info->ends() && bytes != expected_ - received_) {
      return refuse(Violation::kWriteLength);
    }
    if (const auto fault = target_.place(packet.payload)) return refuse(access_violation(*fault));
    shared_.stats.payload_written += bytes;
  } else {
    if (bytes > kMaxMessageBytes - received_) return refuse(Violation::kMessageTooLong);
    if (bytes > queue_.at(queue_.head()).length - received_) {
      return refuse(Violation::kReceiveTooSmall);
    }
    if (!scatter_.place(packet.payload)) return refuse(Violation::kReceiveBuffer);
  }
  received_ += static_cast<std::uint32_t>(bytes);
  shared_.stats.payload_received += bytes;
  return Outcome::kTaken;
}

MessageSink::Outcome MessageSink::end(const RocePacket& packet) {
  if (packet.info->has(wire::kHasIeth)) {
    // Only windows of type 2 can be invalidated, and only by the peer they are open to.
    const auto pd = domain(packet);
    if (!pd || !shared_.memory.invalidate(packet.invalidate, *pd, shared_.config.qpn)) {
      return refuse(Violation::kCannotInvalidate);
    }
  }
  active_ = false;
  if (operation_ == Operation::kSend || packet.info->has(wire::kHasImmDt)) complete(packet);
  return Outcome::kTaken;
}

void MessageSink::complete(const RocePacket& packet) {
  const bool immediate = packet.info->has(wire::kHasImmDt);
  const bool invalidate = packet.info->has(wire::kHasIeth);
  const bool write = operation_ == Operation::kWrite;
  shared_.log.add({.wr_id = queue_.at(queue_.head()).wr_id,
                   .opcode = write ? WcOpcode::kReceiveRdmaWithImm : WcOpcode::kReceive,
                   .receive = true,
                   .solicited = packet.solicited,
                   .byte_len = received_,
                   .immediate = invalidate ? packet.invalidate.value() : packet.immediate,
                   .flags = (immediate ? model::kWcWithImmediate : 0) |
                            (invalidate ? model::kWcWithInvalidate : 0),
                   .srqn = srqn_});
  queue_.retire();
  scatter_.release();
}

void MessageSink::flush(WcStatus first) {
  for (WcStatus status = first; !queue_.empty(); status = WcStatus::kFlushError) {
    shared_.log.add({.wr_id = queue_.at(queue_.head()).wr_id,
                     .status = status,
                     .opcode = WcOpcode::kReceive,
                     .receive = true,
                     .srqn = srqn_});
    queue_.retire();
  }
  active_ = false;
  release();
}

void MessageSink::reset() {
  queue_.reset();
  active_ = false;
  release();
}

}  // namespace airdma::rocev2
