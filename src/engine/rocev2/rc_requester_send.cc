// SPDX-License-Identifier: MIT
// From WQEs to packets.
#include <algorithm>

#include "engine/rocev2/atomics.h"
#include "engine/rocev2/rc_requester.h"

namespace airdma::rocev2 {

using model::SendOpcode;
using model::SendWqe;
using wire::RocePacket;

bool RcRequester::may_transmit() const {
  if (!running_ || rnr_until_ || stalled_) return false;
  if (next_ - una_ >= window_.packets()) return false;
  if (fault_ && position_ >= fault_->position) return false;
  return position_ != begun_ || (!held_ && position_ != queue_.tail());
}

std::uint32_t RcRequester::window_left() const {
  const std::uint64_t used = next_ - una_;
  return used >= window_.packets() ? 0 : window_.packets() - static_cast<std::uint32_t>(used);
}

void RcRequester::fill(PacketBatch& batch, Time now) {
  if (!may_transmit()) return;
  const bool idle = !outstanding();
  gather_.batch_begins();
  window_limited_ = false;
  bool sent = false;
  Step step;
  while ((step = send_next(batch)) == Step::kSent) sent = true;
  if (!sent) return;
  if (idle) {
    progress_at_ = probed_at_ = now;
    probes_ = 0;
  }
  after_fill(batch, step == Step::kNoRoom, now);
}

/// An acknowledgement is asked for when nothing follows by itself, and now and then in between.
void RcRequester::after_fill(PacketBatch& batch, bool more_follows, Time now) {
  OutPacket& last = batch.last();
  const bool ask = !more_follows || unasked_ >= window_.ack_interval();
  if (!ask) return;
  unasked_ = 0;
  if (!last_is_answered_) {
    wire::Bth bth;
    std::memcpy(static_cast<void*>(&bth), last.headers.data(), sizeof bth);
    wire::Bth::AckRequest::set(bth, 1);
    std::memcpy(last.headers.data(), &bth, sizeof bth);
  }
  // Not of a packet that is sent again: an answer could be to either (RFC 6298 3).
  if (measured_ || gap_ || next_ != high_) return;
  measured_ = last.sequence;
  measured_at_ = now;
}

RcRequester::Step RcRequester::send_next(PacketBatch& batch) {
  if (fault_ && position_ >= fault_->position) return Step::kNothing;
  if (window_left() == 0) {
    window_limited_ = true;
    return Step::kNothing;
  }
  if (position_ == begun_ && !begin()) return Step::kNothing;
  const SendWqe& wqe = queue_.at(position_);
  switch (wqe.opcode) {
    case SendOpcode::kRead:
      return send_read(batch, wqe);
    case SendOpcode::kCompareSwap:
    case SendOpcode::kFetchAdd:
      return send_atomic(batch, wqe);
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm:
    case SendOpcode::kSendWithInvalidate:
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm:
    case SendOpcode::kLocalInvalidate:
    case SendOpcode::kBindMw:
      break;
  }
  return send_transfer(batch, wqe);
}

// Starting a WQE.

/// Gives the next WQE its PSNs. Local operations whose turn comes before it are done on the way.
bool RcRequester::begin() {
  while (!held_ && position_ != queue_.tail()) {
    const SendWqe& wqe = queue_.at(position_);
    if (wqe.fence && !parts_.empty()) {
      stalled_ = true;
      return false;
    }
    const bool local = is_local(wqe.opcode);
    if (local && !shared_.perform_local(wqe)) return refuse(Violation::kMemoryOperation);
    if (!local) {
      if (const auto violation = check(wqe)) return refuse(*violation);
    }
    flight(position_) = {.first = next_,
                         .packets = local ? 0 : packets_of(wqe.length, shared_.mtu())};
    begun_ = position_ + 1;
    gather_.restart();
    if (!local) return true;
    position_ = begun_;
    complete();
  }
  return false;
}

/// Whether a message may start: nothing of it goes out when a part of it cannot.
std::optional<Violation> RcRequester::check(const SendWqe& wqe) const {
  if (wqe.length > kMaxMessageBytes) return Violation::kSendLength;
  switch (wqe.opcode) {
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm:
    case SendOpcode::kSendWithInvalidate:
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm: {
      // A single piece in a single packet is checked when it is put there.
      if (wqe.inlined || (wqe.sge_count <= 1 && wqe.length <= shared_.mtu())) return std::nullopt;
      const bool readable = gather_.accessible(wqe, model::kAccessLocalRead);
      return readable ? std::nullopt : std::optional(Violation::kSendBuffer);
    }
    case SendOpcode::kCompareSwap:
    case SendOpcode::kFetchAdd:
      if (wqe.length != kAtomicBytes) return Violation::kOperation;
      [[fallthrough]];
    case SendOpcode::kRead: {
      // Without a depth it could never start: better an error than silence.
      if (shared_.attributes.max_rd_atomic == 0 || wqe.inlined) return Violation::kOperation;
      const bool writable = gather_.accessible(wqe, model::kAccessLocalWrite);
      return writable ? std::nullopt : std::optional(Violation::kReadSink);
    }
    case SendOpcode::kLocalInvalidate:
    case SendOpcode::kBindMw:
      break;
  }
  return Violation::kOperation;
}

/// The WQE at the cursor fails when all before it are complete; nothing of it or behind it is sent.
bool RcRequester::refuse(Violation violation) {
  fault_ = Fault{.position = position_, .violation = violation};
  return false;
}

// Packets.

OutPacket& RcRequester::next_packet(PacketBatch& batch) {
  OutPacket& out = batch.next();
  out.owner = PacketOwner::kRequester;
  out.position = position_;
  out.sequence = next_;
  return out;
}

void RcRequester::emit(PacketBatch& batch, OutPacket& out, const SendWqe& wqe, RocePacket& packet,
                       std::uint32_t packets) {
  packet.srqn = wqe.remote_srqn;
  finish_packet(shared_, batch, out, packet);
  last_is_answered_ = !packet.info->may_carry_payload;
  pass(packets);
}

/// The cursor moves on.
void RcRequester::pass(std::uint32_t packets) {
  if (next_ != high_) ++shared_.stats.packets_repeated;
  ++unasked_;
  next_ += packets;
  high_ = std::max(high_, next_);
  if (next_ == flight(position_).end()) {
    ++position_;
    skip_local();
  }
}

RcRequester::Step RcRequester::send_transfer(PacketBatch& batch, const SendWqe& wqe) {
  const InFlight& its = flight(position_);
  const auto index = static_cast<std::uint32_t>(next_ - its.first);
  const auto offset = static_cast<std::uint32_t>(std::uint64_t{index} * shared_.mtu());
  const std::uint32_t bytes = std::min(shared_.mtu(), wqe.length - offset);
  const bool room = wqe.inlined ? batch.has_room(1, bytes)
                                : batch.has_room(std::max<std::size_t>(wqe.sge_count, 1));
  if (!room) return Step::kNoRoom;
  const bool first = index == 0;
  const bool last = index + 1 == its.packets;
  const bool alike =
      index > 1 && !last && follows(batch, PacketOwner::kRequester, position_, next_);
  OutPacket& out = next_packet(batch);
  gather_.seek(wqe, offset);
  if (!gather_.append(batch, out, wqe, bytes)) {
    (void)refuse(Violation::kSendBuffer);
    return Step::kNothing;
  }
  if (alike) {
    repeat_headers(shared_, batch, out);
    last_is_answered_ = false;
    pass(1);
    return Step::kSent;
  }
  RocePacket packet = shared_.transfer(wqe, first, last, next_);
  emit(batch, out, wqe, packet, 1);
  return Step::kSent;
}

/// Packets of a READ that are asked for next; nothing when it must wait.
std::optional<std::uint32_t> RcRequester::read_part(std::uint32_t remaining) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_.at(i);
    // All that is left of it, whatever the window: its end is where the next request begins for a
    // responder that has seen it.
    if (part.begin <= next_ && next_ < part.end) {
      return static_cast<std::uint32_t>(part.end - next_);
    }
  }
  const std::size_t most = std::min<std::size_t>(shared_.attributes.max_rd_atomic, kMostParts);
  if (parts_.size() >= most) {
    stalled_ = true;
    return std::nullopt;
  }
  // With several parts on their way one is answered while the next is asked for.
  const std::uint32_t share = most > 1 ? window_.packets() / 2 : window_.packets();
  const std::uint32_t wanted = std::min(remaining, share);
  if (window_left() >= wanted) return wanted;
  // Not in crumbs: a request is work for both sides.
  if (window_left() >= share / 2) return window_left();
  window_limited_ = true;
  stalled_ = true;
  return std::nullopt;
}

RcRequester::Step RcRequester::send_read(PacketBatch& batch, const SendWqe& wqe) {
  const InFlight& its = flight(position_);
  const auto index = static_cast<std::uint32_t>(next_ - its.first);
  const auto packets = read_part(its.packets - index);
  if (!packets) return Step::kNothing;
  if (!batch.has_room(0)) return Step::kNoRoom;
  const std::uint64_t offset = std::uint64_t{index} * shared_.mtu();
  const std::uint64_t bytes =
      std::min<std::uint64_t>(std::uint64_t{*packets} * shared_.mtu(), wqe.length - offset);
  const bool known = !parts_.empty() && next_ < parts_.at(parts_.size() - 1).end;
  if (!known) parts_.push({.begin = next_, .end = next_ + *packets, .position = position_});
  RocePacket packet = shared_.to_peer(wire::PacketCode::kReadRequest, next_);
  packet.remote = {.address = wqe.remote_addr + offset,
                   .rkey = wqe.rkey,
                   .bytes = static_cast<std::uint32_t>(bytes)};
  emit(batch, next_packet(batch), wqe, packet, *packets);
  return Step::kSent;
}

RcRequester::Step RcRequester::send_atomic(PacketBatch& batch, const SendWqe& wqe) {
  const auto packets = read_part(1);
  if (!packets) return Step::kNothing;
  if (!batch.has_room(0)) return Step::kNoRoom;
  const bool known = !parts_.empty() && next_ < parts_.at(parts_.size() - 1).end;
  if (!known) parts_.push({.begin = next_, .end = next_ + 1, .position = position_});
  const bool swap = wqe.opcode == SendOpcode::kCompareSwap;
  RocePacket packet =
      shared_.to_peer(swap ? wire::PacketCode::kCompareSwap : wire::PacketCode::kFetchAdd, next_);
  packet.atomic = {.address = wqe.remote_addr,
                   .rkey = wqe.rkey,
                   .swap_or_add = swap ? wqe.swap : wqe.compare_add,
                   .compare = swap ? wqe.compare_add : 0};
  emit(batch, next_packet(batch), wqe, packet, 1);
  return Step::kSent;
}

}  // namespace airdma::rocev2
