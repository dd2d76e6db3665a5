// SPDX-License-Identifier: MIT
#include "engine/rocev2/unreliable_requester.h"

#include <algorithm>

namespace airdma::rocev2 {

using model::SendOpcode;
using model::SendWqe;
using model::WcStatus;
using wire::RocePacket;

namespace {

/// A key with this bit means the one of the queue pair that sends (IBTA vol. 1, 10.2.5).
constexpr std::uint32_t kOwnKey = 0x80000000;

}  // namespace

UnreliableRequester::UnreliableRequester(Shared& shared, model::SendQueue& queue)
    : shared_(shared), queue_(queue), gather_(shared.memory, shared.config.pd) {}

void UnreliableRequester::start() {
  next_ = first_sequence(shared_.attributes.sq_psn);
  position_ = queue_.head();
  packet_ = 0;
  running_ = true;
}

void UnreliableRequester::resume() {
  fault_.reset();
  position_ = queue_.head();
  packet_ = 0;
}

void UnreliableRequester::reset() {
  queue_.reset();
  fault_.reset();
  position_ = 0;
  packet_ = 0;
  running_ = held_ = false;
}

void UnreliableRequester::fill(PacketBatch& batch) {
  if (!may_transmit()) return;
  gather_.batch_begins();
  while (send_next(batch)) {
  }
}

bool UnreliableRequester::begin() {
  while (!held_ && position_ != queue_.tail()) {
    const SendWqe& wqe = queue_.at(position_);
    const bool local = is_local(wqe.opcode) && !datagrams();
    if (!local) {
      const auto violation = check(wqe);
      return violation ? refuse(*violation) : true;
    }
    if (!shared_.perform_local(wqe)) return refuse(Violation::kMemoryOperation);
    ++position_;
  }
  return false;
}

std::optional<Violation> UnreliableRequester::check(const SendWqe& wqe) const {
  const bool send = wqe.opcode == SendOpcode::kSend || wqe.opcode == SendOpcode::kSendWithImm;
  if (!send && (datagrams() || !is_write(wqe.opcode))) return Violation::kOperation;
  if (datagrams()) {
    if (wqe.address == nullptr) return Violation::kOperation;
    if (wqe.length > shared_.config.datagram_bytes) return Violation::kSendLength;
  }
  if (wqe.length > kMaxMessageBytes) return Violation::kSendLength;
  if (wqe.inlined || (wqe.sge_count <= 1 && wqe.length <= shared_.mtu())) return std::nullopt;
  const bool readable = gather_.accessible(wqe, model::kAccessLocalRead);
  return readable ? std::nullopt : std::optional(Violation::kSendBuffer);
}

bool UnreliableRequester::refuse(Violation violation) {
  fault_ = Fault{.position = position_, .violation = violation};
  return false;
}

bool UnreliableRequester::has_room(PacketBatch& batch, const SendWqe& wqe,
                                   std::uint32_t bytes) const {
  if (!batch.has_room(std::max<std::size_t>(wqe.sge_count, 1), wqe.inlined ? bytes : 0)) {
    return false;
  }
  if (!datagrams()) return true;
  if (batch.empty()) batch.set_destination(*wqe.address);
  return batch.destination() == *wqe.address;
}

/// False when nothing more can be sent, or put into this batch.
bool UnreliableRequester::send_next(PacketBatch& batch) {
  if (packet_ == 0 && !begin()) return false;
  const SendWqe& wqe = queue_.at(position_);
  const std::uint32_t mtu = datagrams() ? shared_.config.datagram_bytes : shared_.mtu();
  const auto offset = static_cast<std::uint32_t>(std::uint64_t{packet_} * mtu);
  const std::uint32_t bytes = std::min(mtu, wqe.length - offset);
  if (!has_room(batch, wqe, bytes)) return false;
  OutPacket& out = batch.next();
  out.owner = PacketOwner::kRequester;
  out.position = position_;
  out.sequence = next_;
  if (packet_ == 0) gather_.restart();
  gather_.seek(wqe, offset);
  if (!gather_.append(batch, out, wqe, bytes)) return refuse(Violation::kSendBuffer);
  const bool last = offset + bytes == wqe.length;
  RocePacket packet = make_packet(wqe, last);
  finish_packet(shared_, batch, out, packet);
  ++next_;
  ++packet_;
  if (last) {
    ++position_;
    packet_ = 0;
  }
  return true;
}

RocePacket UnreliableRequester::make_packet(const SendWqe& wqe, bool last) const {
  RocePacket packet = shared_.transfer(wqe, packet_ == 0, last, next_);
  if (datagrams()) {
    const bool own = (wqe.remote_qkey.value() & kOwnKey) != 0;
    packet.qkey = own ? shared_.attributes.qkey : wqe.remote_qkey;
    packet.source = shared_.config.qpn;
    packet.destination = wqe.remote_qpn;
  }
  return packet;
}

void UnreliableRequester::on_unsent(const OutPacket& packet) {
  if (packet.position < queue_.head()) return;
  if (fault_ && fault_->position <= packet.position) return;
  fault_ = Fault{.position = packet.position, .violation = Violation::kSendBuffer};
}

std::optional<Violation> UnreliableRequester::settle() {
  const std::uint64_t end = fault_ ? std::min(fault_->position, position_) : position_;
  while (queue_.head() < end) {
    const SendWqe& wqe = queue_.at(queue_.head());
    if (wqe.signaled) report(wqe, WcStatus::kSuccess);
    queue_.retire();
  }
  if (!fault_) return std::nullopt;
  const Violation violation = fault_->violation;
  flush();
  return violation;
}

void UnreliableRequester::flush() {
  while (!queue_.empty()) {
    const bool faulty = fault_ && fault_->position == queue_.head();
    report(queue_.at(queue_.head()),
           faulty ? info(fault_->violation).local : WcStatus::kFlushError);
    queue_.retire();
  }
  position_ = queue_.head();
  packet_ = 0;
}

void UnreliableRequester::report(const SendWqe& wqe, WcStatus status) {
  shared_.log.add({.wr_id = wqe.wr_id,
                   .status = status,
                   .opcode = model::wc_opcode(wqe.opcode),
                   .byte_len = status == WcStatus::kSuccess ? wqe.length : 0});
}

}  // namespace airdma::rocev2
