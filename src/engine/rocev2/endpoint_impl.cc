// SPDX-License-Identifier: MIT
#include "engine/rocev2/endpoint_impl.h"

#include <algorithm>
#include <utility>

namespace airdma::rocev2 {

using model::QpAttrMask;
using model::QpEvent;
using model::QpState;
using model::QpType;
using model::WcStatus;
using wire::Operation;
using wire::RocePacket;

namespace {

// One notification per flow and interval is what receivers send (IBTA A17.9.3 leaves it open).
constexpr Duration kNotificationInterval = std::chrono::microseconds(50);
// Membership is no part of a partition's name.
constexpr unsigned kPartitionMask = 0x7fff;

bool is_connected(QpType type) { return type != QpType::kUd; }

}  // namespace

EndpointImpl::EndpointImpl(const EndpointConfig& config, const model::MemoryTable& memory,
                           model::SendQueue& send_queue, model::ReceiveQueue& receive_queue)
    : shared_(config, memory), send_queue_(send_queue), receive_queue_(receive_queue) {
  switch (config.type) {
    case QpType::kUd:
      unreliable_.emplace(shared_, send_queue);
      ud_responder_.emplace(shared_, receive_queue);
      return;
    case QpType::kUc:
      unreliable_.emplace(shared_, send_queue);
      sink_.emplace(shared_, receive_queue);
      uc_responder_.emplace(shared_, *sink_);
      return;
    case QpType::kXrcSend:
      rc_requester_.emplace(shared_, send_queue);
      return;
    case QpType::kXrcReceive:
      sink_.emplace(shared_, receive_queue);
      rc_responder_.emplace(shared_, *sink_);
      return;
    case QpType::kRc:
    case QpType::kRawPacket:
      break;
  }
  rc_requester_.emplace(shared_, send_queue);
  sink_.emplace(shared_, receive_queue);
  rc_responder_.emplace(shared_, *sink_);
}

// Attributes and states.

void EndpointImpl::modify(const QpAttributes& attributes, QpAttrMask mask, Time) {
  take_attributes(attributes, mask);
  if ((mask & model::kQpAttrState) == 0) return;
  move_to(attributes.state, (mask & model::kQpAttrSqdNotify) != 0 && attributes.sqd_notify);
  raise_faults();
}

void EndpointImpl::take_attributes(const QpAttributes& from, QpAttrMask mask) {
  QpAttributes& to = shared_.attributes;
  if ((mask & model::kQpAttrAccess) != 0) to.remote_access = from.remote_access;
  if ((mask & model::kQpAttrPkeyIndex) != 0) to.pkey = from.pkey;
  if ((mask & model::kQpAttrQkey) != 0) to.qkey = from.qkey;
  if ((mask & model::kQpAttrAv) != 0) to.address = from.address;
  if ((mask & model::kQpAttrDestQpn) != 0) to.remote_qpn = from.remote_qpn;
  if ((mask & model::kQpAttrPathMtu) != 0) to.path_mtu = from.path_mtu;
  if ((mask & model::kQpAttrRqPsn) != 0) to.rq_psn = from.rq_psn;
  if ((mask & model::kQpAttrSqPsn) != 0) to.sq_psn = from.sq_psn;
  if ((mask & model::kQpAttrMaxRdAtomic) != 0) to.max_rd_atomic = from.max_rd_atomic;
  if ((mask & model::kQpAttrMinRnrTimer) != 0) to.min_rnr_timer = from.min_rnr_timer;
  if ((mask & model::kQpAttrTimeout) != 0) to.timeout = from.timeout;
  if ((mask & model::kQpAttrRetryCount) != 0) to.retry_count = from.retry_count;
  if ((mask & model::kQpAttrRnrRetry) != 0) to.rnr_retry = from.rnr_retry;
  const bool deeper =
      (mask & model::kQpAttrMaxDestRdAtomic) != 0 &&
      std::exchange(to.max_dest_rd_atomic, from.max_dest_rd_atomic) != from.max_dest_rd_atomic;
  if (deeper && rc_responder_) rc_responder_->set_read_depth(to.max_dest_rd_atomic);
}

void EndpointImpl::move_to(QpState state, bool notify) {
  const QpState before = std::exchange(shared_.attributes.state, state);
  switch (state) {
    case QpState::kReset:
      return reset();
    case QpState::kInit:
      return;
    case QpState::kRtr:
      return begin_to_receive();
    case QpState::kRts:
      if (before == QpState::kRtr) begin_to_send();
      if (before == QpState::kSqe) resume_sending();
      return hold_sends(false);
    case QpState::kSqd:
      // Told once, also when it is drained already; staying in SQD says nothing new.
      if (before != QpState::kSqd) drain_notice_ = notify;
      return hold_sends(true);
    case QpState::kSqe:
      return;
    case QpState::kError:
      shared_.attributes.state = before;
      return fail();
  }
}

void EndpointImpl::begin_to_receive() {
  if (rc_responder_) rc_responder_->start();
  if (uc_responder_) uc_responder_->start();
}

void EndpointImpl::begin_to_send() {
  if (rc_requester_) rc_requester_->start();
  if (unreliable_) unreliable_->start();
}

void EndpointImpl::resume_sending() {
  if (unreliable_) unreliable_->resume();
}

void EndpointImpl::hold_sends(bool held) {
  if (!held) drain_notice_ = false;
  if (rc_requester_) rc_requester_->hold(held);
  if (unreliable_) unreliable_->hold(held);
}

void EndpointImpl::reset() {
  shared_.attributes = {};
  shared_.log.clear();
  if (rc_requester_) rc_requester_->reset();
  if (unreliable_) unreliable_->reset();
  if (rc_responder_) rc_responder_->silence();
  if (sink_) sink_->reset();
  if (uc_responder_) uc_responder_->reset();
  if (ud_responder_) ud_responder_->reset();
  send_queue_.reset();
  receive_queue_.reset();
  failure_ = "";
  answers_error_ = established_ = false;
  first_event_.reset();
  error_event_.reset();
  drain_notice_ = last_receive_notice_ = false;
  notification_.reset();
}

void EndpointImpl::fail() {
  if (state() == QpState::kError || state() == QpState::kReset) return;
  raise(Violation::kProgram, false);
  answers_error_ = false;
  if (rc_responder_) rc_responder_->silence();
}

// Receiving.

bool EndpointImpl::may_receive() const {
  switch (state()) {
    case QpState::kRtr:
    case QpState::kRts:
    case QpState::kSqd:
    case QpState::kSqe:
      return true;
    case QpState::kError:
      return answers_error_;
    case QpState::kReset:
    case QpState::kInit:
      break;
  }
  return false;
}

bool EndpointImpl::may_send() const { return state() == QpState::kRts || state() == QpState::kSqd; }

/// A queue pair listens to its partition alone and, when it is connected, to its peer.
bool EndpointImpl::is_admitted(Pkey pkey, const PacketOrigin& origin) const {
  if (((pkey.value() ^ shared_.attributes.pkey.value()) & kPartitionMask) != 0) return false;
  if (!is_connected(shared_.config.type)) return true;
  return origin.source == shared_.attributes.address.destination &&
         origin.destination == shared_.attributes.address.source;
}

bool EndpointImpl::is_for_us(const RocePacket& packet, const PacketOrigin& origin) const {
  if (!may_receive()) return false;
  const bool notification = packet.info->operation == Operation::kCongestionNotification;
  if (packet.info->service != shared_.service && !notification) return false;
  return is_admitted(packet.pkey, origin);
}

void EndpointImpl::on_packet(const RocePacket& packet, const PacketOrigin& origin, Time now) {
  ++shared_.stats.packets_received;
  if (!is_for_us(packet, origin)) {
    ++shared_.stats.dropped;
    return;
  }
  if (packet.info->operation == Operation::kCongestionNotification) {
    ++shared_.stats.notifications_received;
    if (rc_requester_) rc_requester_->on_congestion(now);
    return;
  }
  note_congestion(packet, origin, now);
  if (packet.info->is_request) {
    on_request(packet, origin);
  } else if (rc_requester_ && may_send()) {
    rc_requester_->on_response(packet, now);
  } else {
    ++shared_.stats.dropped;
  }
  raise_faults();
}

void EndpointImpl::on_request(const RocePacket& packet, const PacketOrigin& origin) {
  if (ud_responder_) return ud_responder_->on_datagram(packet, origin);
  communication_established();
  if (uc_responder_) return uc_responder_->on_request(packet);
  if (rc_responder_) return rc_responder_->on_request(packet);
  ++shared_.stats.dropped;  // the initiator of an XRC connection answers nobody
}

/// The peer is ready to send; who waits to hear so from elsewhere need not (IBTA 11.6.3.1).
void EndpointImpl::communication_established() {
  if (std::exchange(established_, true)) return;
  if (state() == QpState::kRtr) first_event_ = QpEvent::kCommunicationEstablished;
}

void EndpointImpl::on_unreadable(const wire::RoceParseError& error, const PacketOrigin& origin) {
  constexpr unsigned kServiceShift = 5;
  const bool ours = error.fault == wire::RoceFault::kOpcode && may_receive() && rc_responder_ &&
                    error.opcode >> kServiceShift == static_cast<unsigned>(shared_.service) &&
                    is_admitted(error.pkey, origin);
  ++shared_.stats.packets_received;
  if (!ours) {
    ++shared_.stats.dropped;
    return;
  }
  rc_responder_->on_unknown_opcode(error.psn);
  raise_faults();
}

void EndpointImpl::note_congestion(const RocePacket& packet, const PacketOrigin& origin, Time now) {
  const bool marked =
      packet.fecn || (origin.traffic_class & kCongestionExperienced) == kCongestionExperienced;
  if (!marked || now < notification_allowed_) return;
  if (is_connected(shared_.config.type)) {
    notification_ = Notification{shared_.attributes.address, shared_.attributes.remote_qpn};
  } else {
    // From a group's address nothing is sent, and all its members would.
    if (origin.destination.is_multicast()) return;
    notification_ =
        Notification{{.source = origin.destination, .destination = origin.source}, packet.source};
  }
  notification_allowed_ = now + kNotificationInterval;
}

// Sending.

bool EndpointImpl::may_transmit() const {
  if (rc_responder_ && may_receive() && rc_responder_->may_transmit()) return true;
  if (notification_) return true;
  if (!may_send()) return false;
  return (rc_requester_ && rc_requester_->may_transmit()) ||
         (unreliable_ && unreliable_->may_transmit());
}

bool EndpointImpl::can_wait() const {
  if (!rc_responder_ || state() == QpState::kError || !rc_responder_->can_wait()) return false;
  if (notification_ || (rc_requester_ && may_send() && rc_requester_->may_transmit())) {
    return false;
  }
  return std::ranges::any_of(shared_.log.entries(), &model::Completion::receive);
}

bool EndpointImpl::poll_transmit(PacketBatch& batch, Time now) {
  release();
  if (is_connected(shared_.config.type)) {
    batch.set_destination(shared_.attributes.address);
    batch.expect_payload(shared_.mtu());
  }
  if (notification_) add_notification(batch);
  // An acknowledgement goes behind requests: as the last and shortest packet it is part of their
  // send on a network.
  const bool requests_first = rc_responder_ && rc_responder_->acknowledges_only();
  if (!requests_first) answer(batch);
  if (may_send()) {
    if (rc_requester_) rc_requester_->fill(batch, now);
    if (unreliable_) unreliable_->fill(batch);
  }
  if (requests_first) answer(batch);
  raise_faults();
  return !batch.empty();
}

void EndpointImpl::answer(PacketBatch& batch) {
  if (rc_responder_ && may_receive()) rc_responder_->fill(batch);
}

void EndpointImpl::add_notification(PacketBatch& batch) {
  RocePacket packet;
  packet.info = &wire::cnp_info();
  packet.becn = true;
  packet.migrated = true;
  packet.pkey = shared_.attributes.pkey;
  packet.destination = notification_->qpn;
  batch.set_destination(notification_->address);
  notification_.reset();
  OutPacket& out = batch.next();
  out.owner = PacketOwner::kResponder;
  finish_packet(shared_, batch, out, packet);
  ++shared_.stats.notifications_sent;
}

void EndpointImpl::on_unsent(const OutPacket& packet) {
  if (packet.owner == PacketOwner::kResponder) {
    if (rc_responder_ && state() != QpState::kError) rc_responder_->on_unsent(packet);
  } else {
    if (rc_requester_) rc_requester_->on_unsent(packet);
    if (unreliable_) unreliable_->on_unsent(packet);
  }
  raise_faults();
}

void EndpointImpl::on_deadline(Time now) {
  if (rc_requester_ && may_send()) rc_requester_->on_deadline(now);
  raise_faults();
}

std::optional<Time> EndpointImpl::next_deadline() const {
  if (!rc_requester_ || !may_send()) return std::nullopt;
  return rc_requester_->next_deadline();
}

// Failing.

void EndpointImpl::raise_faults() {
  if (state() == QpState::kError || state() == QpState::kReset) return;
  if (rc_responder_) {
    if (const auto violation = rc_responder_->failure()) {
      answers_error_ = true;
      const bool of_receive =
          violation == Violation::kReceiveTooSmall || violation == Violation::kReceiveBuffer;
      return raise(*violation, of_receive);
    }
  }
  if (uc_responder_) {
    if (const auto violation = uc_responder_->failure()) return raise(*violation, true);
  }
  if (ud_responder_) {
    if (const auto violation = ud_responder_->failure()) return raise(*violation, true);
  }
  if (rc_requester_) {
    if (const auto violation = rc_requester_->due_fault()) raise(*violation, false);
  }
}

void EndpointImpl::raise(Violation violation, bool of_receive) {
  const ViolationInfo& its = info(violation);
  failure_ = its.text;
  error_event_ = its.event;
  enter_error(of_receive ? its.local : WcStatus::kFlushError);
}

void EndpointImpl::enter_error(WcStatus first_receive) {
  shared_.attributes.state = QpState::kError;
  last_receive_notice_ = shared_.config.shared_receives != nullptr;
  if (unreliable_) (void)unreliable_->settle();
  flush(first_receive);
}

void EndpointImpl::flush(WcStatus first_receive) {
  if (rc_requester_) rc_requester_->flush();
  if (unreliable_) unreliable_->flush();
  if (sink_) sink_->flush(first_receive);
  if (ud_responder_) ud_responder_->flush(first_receive);
}

void EndpointImpl::release() {
  if (rc_requester_) rc_requester_->release();
  if (sink_) sink_->release();
  if (ud_responder_) ud_responder_->release();
}

// Outputs.

std::span<const model::Completion> EndpointImpl::completions() {
  release();
  if (state() == QpState::kError) {
    flush(WcStatus::kFlushError);
  } else if (unreliable_) {
    if (const auto violation = unreliable_->settle()) {
      failure_ = info(*violation).text;
      shared_.attributes.state = QpState::kSqe;
    }
  }
  return shared_.log.entries();
}

std::optional<QpEvent> EndpointImpl::poll_event() {
  if (first_event_) return std::exchange(first_event_, std::nullopt);
  if (error_event_) return std::exchange(error_event_, std::nullopt);
  if (drain_notice_ && state() == QpState::kSqd && sends_drained()) {
    drain_notice_ = false;
    return QpEvent::kSqDrained;
  }
  if (std::exchange(last_receive_notice_, false)) return QpEvent::kLastWqeReached;
  return std::nullopt;
}

bool EndpointImpl::sends_drained() const {
  if (rc_requester_) return rc_requester_->drained();
  return !unreliable_ || unreliable_->drained();
}

QpAttributes EndpointImpl::attributes() const {
  QpAttributes now = shared_.attributes;
  if (rc_requester_ && may_send()) now.sq_psn = rc_requester_->send_psn();
  if (unreliable_ && may_send()) now.sq_psn = unreliable_->send_psn();
  if (rc_responder_ && may_receive()) now.rq_psn = psn_of(rc_responder_->expected());
  if (uc_responder_ && may_receive()) now.rq_psn = psn_of(uc_responder_->expected());
  return now;
}

}  // namespace airdma::rocev2
