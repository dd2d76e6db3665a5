// SPDX-License-Identifier: MIT
#include "engine/cm/ib_connection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <variant>

#include "base/be.h"

namespace airdma::ibcm {
namespace {

using wire::CmAnswered;
using wire::CmRejectReason;

// What the RDMA CM of the kernel asks for: a program has 4.3 s to answer, and 16 times that in all.
constexpr std::uint8_t kResponseTimeout = 20;
constexpr std::uint8_t kMaxCmRetries = 15;
/// How long an MRA says that an answer may take: 69 s, as the kernel's.
constexpr std::uint8_t kServiceTimeout = 24;
/// A peer that does not answer a DREQ is gone: its program is not asked.
constexpr Duration kDisconnectTimeout = std::chrono::seconds(1);
constexpr unsigned kDisconnectTries = 7;
/// Peer: limits for its REQ's times, 17 s, and for how long a name and a queue pair stay taken.
constexpr std::uint8_t kLongestResponse = 22;
constexpr std::uint8_t kLongestTimewait = 20;
constexpr std::uint8_t kShortestTimewait = 12;

// A peer that finds our queue pair's number in an old connection of its own ends that one, and
// refuses the new one (IBTA vol. 1, 12.9.8.3.1). The next request finds the way free, at the latest
// when the old connection's time is over.
constexpr unsigned kStaleTries = 7;
constexpr Duration kStalePause = std::chrono::milliseconds(50);

/// What the kernel gives as acknowledgement delay of a device that names none.
constexpr std::uint8_t kTargetAckDelay = 15;
constexpr Pkey kDefaultPkey{0xffff};
constexpr std::uint16_t kNoLid = 0xffff;

Duration timewait_of(std::uint8_t ack_timeout) {
  return wire_time(std::clamp(ack_timeout, kShortestTimewait, kLongestTimewait));
}

wire::CmPath path_of(const ConnectParams& params) {
  wire::CmPath path;
  path.local_lid = kNoLid;
  path.remote_lid = kNoLid;
  path.local_gid = params.path.source.bytes;
  path.remote_gid = params.path.destination.bytes;
  path.flow_label = params.path.flow_label;
  path.traffic_class = params.path.traffic_class;
  path.hop_limit = params.path.hop_limit;
  path.service_level = params.path.service_level;
  path.ack_timeout = params.ack_timeout;
  return path;
}

wire::CmReq request_of(CommunicationId id, const ConnectParams& params) {
  wire::CmReq req;
  req.local_id = id;
  req.service_id = params.service;
  req.local_ca_guid = params.ca_guid;
  req.local_qpn = params.qpn;
  req.responder_resources = params.responder_resources;
  req.initiator_depth = params.initiator_depth;
  req.remote_response_timeout = kResponseTimeout;
  req.local_response_timeout = kResponseTimeout;
  req.transport = params.transport;
  req.flow_control = params.flow_control;
  req.starting_psn = params.starting_psn;
  req.retry_count = params.retry_count;
  req.pkey = kDefaultPkey;
  req.path_mtu = params.path_mtu;
  req.rnr_retry_count = params.rnr_retry_count;
  req.max_cm_retries = kMaxCmRetries;
  req.srq = params.srq;
  req.primary = path_of(params);
  req.private_data = params.private_data;
  return req;
}

/// The queue pair of an XRC target is where a reliable datagram's context would be.
Qpn qpn_of(const wire::CmRep& rep, wire::CmTransport transport) {
  return transport == wire::CmTransport::kXrc ? Qpn{rep.local_eecn} : rep.local_qpn;
}

std::array<std::byte, 8> bytes_of(std::uint64_t guid) {
  return std::bit_cast<std::array<std::byte, 8>>(be64(guid));
}

}  // namespace

Connection::Connection(Outbox& outbox, CommunicationId id, std::uint64_t transaction_id,
                       const ConnectParams& params, Time now)
    : outbox_(outbox),
      state_(State::kReqSent),
      id_(id),
      transaction_id_(transaction_id),
      path_(params.path),
      ca_guid_(params.ca_guid),
      qpn_(params.qpn),
      transport_(params.transport),
      active_(true),
      response_timeout_(wire_time(kResponseTimeout)),
      max_cm_retries_(kMaxCmRetries),
      timewait_(timewait_of(params.ack_timeout)) {
  [[maybe_unused]] const bool fits = send(request_of(id, params));
  resend_.start(now, response_timeout_, max_cm_retries_);
}

Connection::Connection(Outbox& outbox, CommunicationId id, const wire::CmMad& parsed,
                       const model::AddressVector& way_back, ListenerId listener)
    : outbox_(outbox),
      state_(State::kReqReceived),
      id_(id),
      transaction_id_(parsed.transaction_id),
      path_(way_back),
      listener_(listener) {
  const auto& req = std::get<wire::CmReq>(parsed.message);
  remote_id_ = req.local_id;
  remote_ca_guid_ = req.local_ca_guid;
  remote_qpn_ = req.local_qpn;
  remote_psn_ = req.starting_psn;
  transport_ = req.transport;
  response_timeout_ = wire_time(std::min(req.local_response_timeout, kLongestResponse));
  max_cm_retries_ = req.max_cm_retries;
  timewait_ = timewait_of(req.primary.ack_timeout);
  report(EventKind::kRequest, parsed);
}

// Calls of the program.

bool Connection::ready(Bytes private_data) {
  if (state_ != State::kRepReceived) return false;
  if (!send(wire::CmRtu{id_, remote_id_, private_data})) return false;
  state_ = State::kEstablished;
  return true;
}

bool Connection::accept(const AcceptParams& params, Time now) {
  if (state_ != State::kReqReceived) return false;
  const bool xrc = transport_ == wire::CmTransport::kXrc;
  wire::CmRep rep;
  rep.local_id = id_;
  rep.remote_id = remote_id_;
  if (xrc) {
    rep.local_eecn = params.qpn.value();
  } else {
    rep.local_qpn = params.qpn;
  }
  rep.starting_psn = params.starting_psn;
  rep.responder_resources = params.responder_resources;
  rep.initiator_depth = params.initiator_depth;
  rep.target_ack_delay = kTargetAckDelay;
  rep.flow_control = params.flow_control;
  rep.rnr_retry_count = params.rnr_retry_count;
  rep.srq = params.srq || xrc;
  rep.local_ca_guid = params.ca_guid;
  rep.private_data = params.private_data;
  if (!send(rep)) return false;
  qpn_ = params.qpn;
  ca_guid_ = params.ca_guid;
  state_ = State::kRepSent;
  resend_.start(now, response_timeout_, max_cm_retries_);
  return true;
}

bool Connection::reject(CmRejectReason reason, Bytes additional, Bytes private_data) {
  if (state_ != State::kReqReceived && state_ != State::kRepReceived) return false;
  if (additional.size() > wire::kAdditionalInfoBytes) return false;
  if (private_data.size() > wire::kRejPrivateBytes) return false;
  send_rej(active_ ? CmAnswered::kRep : CmAnswered::kReq, reason, additional, private_data);
  end();
  return true;
}

bool Connection::disconnect(Bytes private_data, std::uint64_t transaction_id, Time now) {
  if (private_data.size() > wire::kDreqPrivateBytes) return false;
  switch (state_) {
    case State::kEstablished:
      send_dreq(private_data, transaction_id, now);
      return true;
    case State::kDreqReceived:
      answer_dreq(private_data, now);
      return true;
    case State::kRepSent:
      // A peer that waits for the REP would not understand a DREQ.
      send_rej(CmAnswered::kOther, CmRejectReason::kConsumer, {}, {});
      report(EventKind::kDisconnected);
      end();
      return true;
    case State::kReqSent:
    case State::kRepReceived:
    case State::kReqReceived:
    case State::kDreqSent:
    case State::kTimewait:
    case State::kOver:
      return false;
  }
  return false;
}

bool Connection::traffic_seen() {
  if (state_ != State::kRepSent) return false;
  resend_.stop();
  state_ = State::kEstablished;
  report(EventKind::kEstablished);
  return true;
}

void Connection::release(std::uint64_t transaction_id, Time now) {
  released_ = true;
  switch (state_) {
    case State::kReqSent:
      send_cancel();
      return end();
    case State::kReqReceived:
      send_rej(CmAnswered::kReq, CmRejectReason::kConsumer, {}, {});
      return end();
    case State::kRepReceived:
      send_rej(CmAnswered::kRep, CmRejectReason::kConsumer, {}, {});
      return end();
    case State::kRepSent:
      send_rej(CmAnswered::kOther, CmRejectReason::kConsumer, {}, {});
      return end();
    case State::kEstablished:
      return send_dreq({}, transaction_id, now);
    case State::kDreqReceived:
      return answer_dreq({}, now);
    case State::kDreqSent:
    case State::kTimewait:
    case State::kOver:
      return;
  }
}

// What the network brings.

void Connection::on_message(const wire::CmMad& mad, Time now) {
  struct Visitor {
    Connection& self;
    const wire::CmMad& mad;
    Time now;
    void operator()(const wire::CmRep& rep) { self.on(rep, mad); }
    void operator()(const wire::CmRtu& rtu) { self.on(rtu); }
    void operator()(const wire::CmMra& mra) { self.on(mra, now); }
    void operator()(const wire::CmRej& rej) { self.on(rej, mad, now); }
    void operator()(const wire::CmDreq& dreq) { self.on(dreq, mad, now); }
    void operator()(const wire::CmDrep& drep) { self.on(drep, now); }
    // The manager's, or no message of a connection.
    void operator()(const wire::CmReq&) {}
    void operator()(const wire::CmSidrReq&) {}
    void operator()(const wire::CmSidrRep&) {}
    void operator()(const wire::CmLap&) {}
    void operator()(const wire::CmApr&) {}
  };
  std::visit(Visitor{*this, mad, now}, mad.message);
}

void Connection::on(const wire::CmRep& rep, const wire::CmMad& mad) {
  switch (state_) {
    case State::kReqSent:
      resend_.stop();
      remote_id_ = rep.local_id;
      remote_ca_guid_ = rep.local_ca_guid;
      remote_qpn_ = qpn_of(rep, transport_);
      remote_psn_ = rep.starting_psn;
      state_ = State::kRepReceived;
      return report(EventKind::kReply, mad);
    case State::kRepReceived:
      return send_once(wire::CmMra{id_, remote_id_, CmAnswered::kRep, kServiceTimeout, {}},
                       transaction_id_);
    case State::kEstablished:
      if (active_) send_again();  // the RTU got lost
      return;
    case State::kReqReceived:
    case State::kRepSent:
    case State::kDreqSent:
    case State::kDreqReceived:
    case State::kTimewait:
    case State::kOver:
      return;
  }
}

void Connection::on(const wire::CmRtu&) { traffic_seen(); }

void Connection::on(const wire::CmMra& mra, Time now) {
  const bool of_req = state_ == State::kReqSent && mra.answered == CmAnswered::kReq;
  const bool of_rep = state_ == State::kRepSent && mra.answered == CmAnswered::kRep;
  if (of_req) mra_id_ = mra.local_id;
  if (of_req || of_rep) resend_.patience(now, wire_time(mra.service_timeout));
}

void Connection::on(const wire::CmRej& rej, const wire::CmMad& mad, Time now) {
  switch (state_) {
    case State::kReqSent:
      if (try_later(rej.reason, now)) return;
      report(EventKind::kRejected, mad);
      return end();
    case State::kReqReceived:
      report(EventKind::kRequestLost);
      return end();
    case State::kRepReceived:
    case State::kRepSent:
      report(EventKind::kRejected, mad);
      return end();
    case State::kEstablished:
    case State::kDreqSent:
      report(EventKind::kDisconnected);
      return wait_out(now);
    case State::kDreqReceived:
    case State::kTimewait:
    case State::kOver:
      return;
  }
}

void Connection::on(const wire::CmDreq& dreq, const wire::CmMad& mad, Time now) {
  if (dreq.remote_qpn != qpn_) return;
  dreq_id_ = mad.transaction_id;
  switch (state_) {
    case State::kRepSent:
      traffic_seen();  // the RTU got lost
      break;
    case State::kRepReceived:
    case State::kEstablished:
      break;
    case State::kDreqSent:  // both at once
      answer_dreq({}, now);
      return report(EventKind::kDisconnected);
    case State::kTimewait:
      return send_once(wire::CmDrep{id_, remote_id_, {}}, dreq_id_);
    case State::kReqSent:
    case State::kReqReceived:
    case State::kDreqReceived:
    case State::kOver:
      return;
  }
  resend_.stop();
  state_ = State::kDreqReceived;
  report(EventKind::kDisconnected);
}

void Connection::on(const wire::CmDrep&, Time now) {
  if (state_ != State::kDreqSent) return;
  report(EventKind::kDisconnected);
  wait_out(now);
}

void Connection::on_duplicate_request() {
  switch (state_) {
    case State::kReqReceived:
      return send_once(wire::CmMra{id_, remote_id_, CmAnswered::kReq, kServiceTimeout, {}},
                       transaction_id_);
    case State::kRepSent:
      return send_again();
    case State::kReqSent:
    case State::kRepReceived:
    case State::kEstablished:
    case State::kDreqSent:
    case State::kDreqReceived:
    case State::kTimewait:
    case State::kOver:
      return;
  }
}

void Connection::on_peer_restarted() {
  switch (state_) {
    case State::kReqReceived:
      report(EventKind::kRequestLost);
      return end();
    case State::kRepSent:
    case State::kReqSent:
    case State::kRepReceived:
      report(EventKind::kUnreachable);
      return end();
    case State::kEstablished:
    case State::kDreqSent:
      report(EventKind::kDisconnected);
      return end();
    case State::kDreqReceived:
    case State::kTimewait:
      return end();
    case State::kOver:
      return;
  }
}

// As if it had asked for the end. What it was asked before it went is answered by time.
void Connection::on_peer_gone(Time now) {
  switch (state_) {
    case State::kRepReceived:
    case State::kEstablished:
      resend_.stop();
      state_ = State::kDreqReceived;
      return report(EventKind::kDisconnected);
    case State::kDreqSent:
      report(EventKind::kDisconnected);
      return wait_out(now);
    case State::kReqSent:
    case State::kReqReceived:
    case State::kRepSent:
    case State::kDreqReceived:
    case State::kTimewait:
    case State::kOver:
      return;
  }
}

void Connection::on_refused(Time now) {
  switch (state_) {
    case State::kReqSent: {
      const wire::CmRej rej{{}, id_, CmAnswered::kReq, CmRejectReason::kInvalidServiceId, {}, {}};
      return on(rej, {transaction_id_, rej}, now);
    }
    case State::kRepSent:
      report(EventKind::kUnreachable);
      return end();
    case State::kDreqSent:
      report(EventKind::kDisconnected);
      return end();
    case State::kRepReceived:
    case State::kReqReceived:
    case State::kEstablished:
    case State::kDreqReceived:
    case State::kTimewait:
    case State::kOver:
      return;
  }
}

void Connection::on_deadline(Time now) {
  if (timewait_end_ && *timewait_end_ <= now) {
    report(EventKind::kTimewaitOver);
    return end();
  }
  if (!resend_.next() || *resend_.next() > now) return;
  if (resend_.again(now)) return send_again();
  give_up(now);
}

std::optional<Time> Connection::next_deadline() const {
  return timewait_end_ ? timewait_end_ : resend_.next();
}

void Connection::give_up(Time now) {
  resend_.stop();
  switch (state_) {
    case State::kReqSent:
      send_cancel();
      report(EventKind::kUnreachable);
      return end();
    case State::kRepSent:
      send_rej(CmAnswered::kRep, CmRejectReason::kTimeout, bytes_of(ca_guid_), {});
      report(EventKind::kUnreachable);
      return end();
    case State::kDreqSent:
      report(EventKind::kDisconnected);
      return wait_out(now);
    case State::kRepReceived:
    case State::kReqReceived:
    case State::kEstablished:
    case State::kDreqReceived:
    case State::kTimewait:
    case State::kOver:
      return;
  }
}

bool Connection::try_later(CmRejectReason reason, Time now) {
  if (reason == CmRejectReason::kInvalidServiceId && refusals_ < std::size(kRefusedPauses)) {
    resend_.next_at(now + kRefusedPauses[refusals_++]);
    return true;
  }
  if (reason == CmRejectReason::kStaleConnection && refusals_ < kStaleTries) {
    resend_.next_at(now + kStalePause * (1 << refusals_++));
    return true;
  }
  return false;
}

// Sending and reporting.

bool Connection::send(const wire::CmMessage& message, std::uint64_t transaction_id) {
  OutMad out{.bytes = {}, .destination = path_, .id = id_};
  if (!wire::emit_cm(out.bytes, {transaction_id, message})) return false;
  sent_ = out;
  send_again();
  return true;
}

void Connection::send_once(const wire::CmMessage& message, std::uint64_t transaction_id) {
  OutMad out{.bytes = {}, .destination = path_, .id = id_};
  if (wire::emit_cm(out.bytes, {transaction_id, message})) outbox_.send(out);
}

void Connection::send_again() { outbox_.send(sent_); }

void Connection::send_dreq(Bytes private_data, std::uint64_t transaction_id, Time now) {
  send(wire::CmDreq{id_, remote_id_, remote_qpn_, private_data}, transaction_id);
  state_ = State::kDreqSent;
  resend_.start(now, kDisconnectTimeout, kDisconnectTries);
}

void Connection::send_rej(CmAnswered answered, CmRejectReason reason, Bytes additional,
                          Bytes private_data) {
  send(wire::CmRej{id_, remote_id_, answered, reason, additional, private_data});
}

// The peer's name for the request is known from its MRA, if there was one. Without, it may know
// ours by the GUID behind it.
void Connection::send_cancel() {
  const auto guid = bytes_of(ca_guid_);
  send(wire::CmRej{id_, mra_id_, CmAnswered::kReq, CmRejectReason::kTimeout, guid, {}});
}

void Connection::report(EventKind kind) {
  if (released_) return;
  outbox_.report({.kind = kind, .id = id_, .path = path_, .listener = listener_});
}

void Connection::report(EventKind kind, const wire::CmMad& mad) {
  if (released_) return;
  Event event{.kind = kind, .id = id_, .path = path_, .listener = listener_};
  if (wire::emit_cm(event.mad, mad)) outbox_.report(event);
}

void Connection::answer_dreq(Bytes private_data, Time now) {
  send_once(wire::CmDrep{id_, remote_id_, private_data}, dreq_id_);
  wait_out(now);
}

void Connection::wait_out(Time now) {
  resend_.stop();
  state_ = State::kTimewait;
  timewait_end_ = now + timewait_;
}

void Connection::end() {
  resend_.stop();
  timewait_end_.reset();
  state_ = State::kOver;
}

}  // namespace airdma::ibcm
