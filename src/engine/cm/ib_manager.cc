// SPDX-License-Identifier: MIT
#include "engine/cm/ib_manager.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "base/be.h"

namespace airdma::ibcm {
namespace {

constexpr std::uint32_t kCounterMask = (1u << kIdCounterBits) - 1;

using State = Connection::State;
using wire::CmAnswered;
using wire::CmRejectReason;

/// Where both ends of a message say which connection it is about.
struct Ends {
  CommunicationId ours;    // the receiver's
  CommunicationId theirs;  // the sender's
};

std::optional<Ends> ends_of(const wire::CmMessage& message) {
  return std::visit(
      [](const auto& one) -> std::optional<Ends> {
        if constexpr (requires { one.remote_id; }) return Ends{one.remote_id, one.local_id};
        return std::nullopt;
      },
      message);
}

bool supported(wire::CmTransport transport) {
  switch (transport) {
    case wire::CmTransport::kRc:
    case wire::CmTransport::kUc:
    case wire::CmTransport::kXrc:
      return true;
    case wire::CmTransport::kRd:
      return false;
  }
  return false;
}

std::optional<std::uint64_t> guid_in(Bytes additional) {
  be64 guid;
  if (additional.size() < sizeof guid) return std::nullopt;
  std::memcpy(static_cast<void*>(&guid), additional.data(), sizeof guid);
  return guid.get();
}

}  // namespace

Manager::Manager(const ManagerConfig& config)
    : config_(config),
      next_counter_(static_cast<std::uint32_t>(config.seed) & kCounterMask),
      next_transaction_(config.seed >> 32) {}

// Tables.

std::optional<CommunicationId> Manager::new_id() {
  for (std::uint32_t tries = 0; tries <= kCounterMask; ++tries) {
    const std::uint32_t value = config_.id_block << kIdCounterBits | next_counter_;
    next_counter_ = (next_counter_ + 1) & kCounterMask;
    if (value != 0 && !connections_.contains(value) && !lookups_.contains(value)) {
      return CommunicationId{value};
    }
  }
  return std::nullopt;
}

std::uint64_t Manager::new_transaction_id(CommunicationId id) {
  return (next_transaction_++ & 0xffffffff) << 32 | id.value();
}

const Connection* Manager::find(CommunicationId id) const {
  const auto found = connections_.find(id.value());
  return found != connections_.end() ? found->second.connection.get() : nullptr;
}

Connection* Manager::live(CommunicationId id) {
  const auto found = connections_.find(id.value());
  return found != connections_.end() ? found->second.connection.get() : nullptr;
}

RemoteName Manager::name_of(const Connection& connection) {
  return {connection.path().destination, connection.remote_ca_guid(), connection.remote_id()};
}

void Manager::set_deadline(std::optional<Time>& known, std::optional<Time> wanted,
                           CommunicationId id) {
  if (known == wanted) return;
  if (known) deadlines_.erase({*known, id.value()});
  if (wanted) deadlines_.insert({*wanted, id.value()});
  known = wanted;
}

void Manager::release_room(ListenerId listener, bool& pending) {
  if (!std::exchange(pending, false)) return;
  const auto found = listeners_.find(listener.value());
  if (found != listeners_.end()) --found->second.pending;
}

void Manager::settle(CommunicationId id) {
  const auto found = connections_.find(id.value());
  if (found == connections_.end()) return;
  Entry& entry = found->second;
  const Connection& connection = *entry.connection;
  if (connection.state() == State::kOver) return forget(found);
  set_deadline(entry.deadline, connection.next_deadline(), id);
  if (connection.state() != State::kReqReceived) {
    release_room(connection.listener(), entry.pending);
  }
  if (!entry.qp && connection.knows_remote_id()) {
    const RemoteQp qp{connection.path().destination, connection.remote_ca_guid(),
                      connection.remote_qpn()};
    if (remote_qps_.try_emplace(qp, id).second) entry.qp = qp;
  }
}

void Manager::forget(Entries::iterator found) {
  Entry& entry = found->second;
  const CommunicationId id = entry.connection->id();
  set_deadline(entry.deadline, std::nullopt, id);
  release_room(entry.connection->listener(), entry.pending);
  if (entry.named) names_.erase(name_of(*entry.connection));
  if (entry.qp) remote_qps_.erase(*entry.qp);
  connections_.erase(found);
}

std::optional<ListenerId> Manager::listener_for(ServiceId service,
                                                const model::Gid& address) const {
  std::optional<ListenerId> narrowest;
  auto width = model::AddressScope::Kind::kEvery;
  for (const auto& [id, listener] : listeners_) {
    if (listener.service != service || !listener.scope.covers(address)) continue;
    if (narrowest && listener.scope.kind >= width) continue;
    narrowest = ListenerId{id};
    width = listener.scope.kind;
  }
  return narrowest;
}

// Calls.

ListenerId Manager::listen(ServiceId service, const model::AddressScope& scope,
                           std::size_t most_pending) {
  const ListenerId id{++last_listener_};
  listeners_[id.value()] = {service, scope, most_pending, 0};
  const auto met = [&](const EarlyRequest& one) {
    return listener_for(one.service, one.way_back.source).has_value();
  };
  for (const EarlyRequest& early : ended_.take_if(met)) {
    const auto mad = wire::parse_cm(early.mad);
    const auto listener = listener_for(service, early.way_back.source);
    if (mad && listener) take_request(*mad, early.way_back, *listener);
  }
  return id;
}

void Manager::stop_listening(ListenerId listener, Time now) {
  const auto found = listeners_.find(listener.value());
  if (found == listeners_.end()) return;
  ended_.ended(found->second.service, now);
  listeners_.erase(found);
}

std::optional<CommunicationId> Manager::connect(const ConnectParams& params, Time now) {
  if (params.private_data.size() > wire::kReqPrivateBytes) return std::nullopt;
  const auto id = new_id();
  if (!id) return std::nullopt;
  connections_[id->value()].connection = std::make_unique<Connection>(
      static_cast<Outbox&>(*this), *id, new_transaction_id(*id), params, now);
  settle(*id);
  return id;
}

bool Manager::ready(CommunicationId id, Bytes private_data) {
  Connection* connection = live(id);
  const bool done = connection != nullptr && connection->ready(private_data);
  settle(id);
  return done;
}

bool Manager::accept(CommunicationId id, const AcceptParams& params, Time now) {
  Connection* connection = live(id);
  const bool done = connection != nullptr && connection->accept(params, now);
  settle(id);
  return done;
}

bool Manager::reject(CommunicationId id, CmRejectReason reason, Bytes additional,
                     Bytes private_data, Time now) {
  Connection* connection = live(id);
  if (connection == nullptr || !connection->reject(reason, additional, private_data)) return false;
  keep_answer(*connection, now);
  settle(id);
  return true;
}

bool Manager::disconnect(CommunicationId id, Bytes private_data, Time now) {
  Connection* connection = live(id);
  if (connection == nullptr) return false;
  const bool done = connection->disconnect(private_data, new_transaction_id(id), now);
  keep_answer(*connection, now);
  settle(id);
  return done;
}

bool Manager::traffic_seen(CommunicationId id) {
  Connection* connection = live(id);
  const bool done = connection != nullptr && connection->traffic_seen();
  settle(id);
  return done;
}

void Manager::release(CommunicationId id, Time now) {
  if (const auto found = lookups_.find(id.value()); found != lookups_.end()) {
    if (found->second.active) return forget(found);
    answer(id, {.status = wire::CmSidrStatus::kRejected}, now);
    return;
  }
  Connection* connection = live(id);
  if (connection == nullptr) return;
  connection->release(new_transaction_id(id), now);
  keep_answer(*connection, now);
  settle(id);
}

void Manager::release_all(Time now) {
  std::vector<CommunicationId> all;
  for (const auto& [id, entry] : connections_) all.emplace_back(id);
  for (const auto& [id, lookup] : lookups_) all.emplace_back(id);
  for (const CommunicationId id : all) release(id, now);
  refuse_early(Time::max());
}

/// A request that was refused may come again.
void Manager::keep_answer(const Connection& connection, Time now) {
  if (connection.state() != State::kOver || connection.active()) return;
  answers_.remember(name_of(connection), connection.transaction_id(), connection.last_sent(), now);
}

// What the network brings.

void Manager::on_mad(Bytes bytes, const model::AddressVector& way_back, Time now) {
  const auto mad = wire::parse_cm(bytes);
  if (!mad) {
    ++counters_.malformed;
    return;
  }
  if (std::holds_alternative<wire::CmReq>(mad->message))
    return on_request(*mad, bytes, way_back, now);
  if (std::holds_alternative<wire::CmSidrReq>(mad->message)) return on_lookup(*mad, way_back, now);
  if (std::holds_alternative<wire::CmSidrRep>(mad->message)) {
    return on_lookup_answer(*mad, way_back, now);
  }
  if (const auto* lap = std::get_if<wire::CmLap>(&mad->message)) {
    return answer_path_load(*lap, mad->transaction_id, way_back);
  }
  if (const auto ends = ends_of(mad->message)) {
    on_message(*mad, ends->ours, ends->theirs, way_back, now);
  }
}

void Manager::on_message(const wire::CmMad& mad, CommunicationId ours, CommunicationId theirs,
                         const model::AddressVector& way_back, Time now) {
  const CommunicationId id = addressee(mad, ours, way_back);
  Connection* connection = live(id);
  const bool from_peer =
      connection != nullptr && connection->path().destination == way_back.destination;
  // A REJ may come from someone who has no name for the connection.
  const bool nameless =
      theirs == CommunicationId{} && std::holds_alternative<wire::CmRej>(mad.message);
  if (!from_peer ||
      (connection->knows_remote_id() && connection->remote_id() != theirs && !nameless)) {
    ++counters_.unknown_connection;
    return answer_stranger(mad, way_back);
  }
  connection->on_message(mad, now);
  settle(id);
}

/// A peer that gives up before it has heard of our id names itself, with its GUID (12.6.7).
CommunicationId Manager::addressee(const wire::CmMad& mad, CommunicationId ours,
                                   const model::AddressVector& way_back) const {
  const auto* rej = std::get_if<wire::CmRej>(&mad.message);
  if (rej == nullptr || rej->reason != CmRejectReason::kTimeout || ours != CommunicationId{}) {
    return ours;
  }
  const auto guid = guid_in(rej->additional);
  if (!guid) return ours;
  const auto found = names_.find({way_back.destination, *guid, rej->local_id});
  return found != names_.end() ? found->second : ours;
}

/// What is about no connection of ours: the sender may stop asking.
void Manager::answer_stranger(const wire::CmMad& mad, const model::AddressVector& way_back) {
  if (const auto* dreq = std::get_if<wire::CmDreq>(&mad.message)) {
    answer_with({mad.transaction_id, wire::CmDrep{dreq->remote_id, dreq->local_id, {}}}, way_back);
  } else if (const auto* rep = std::get_if<wire::CmRep>(&mad.message)) {
    answer_with({mad.transaction_id, wire::CmRej{rep->remote_id,
                                                 rep->local_id,
                                                 CmAnswered::kRep,
                                                 CmRejectReason::kInvalidCommunicationId,
                                                 {},
                                                 {}}},
                way_back);
  }
}

void Manager::answer_path_load(const wire::CmLap& lap, std::uint64_t transaction_id,
                               const model::AddressVector& way_back) {
  const Connection* connection = find(lap.remote_id);
  const bool known = connection != nullptr && connection->remote_id() == lap.local_id &&
                     connection->path().destination == way_back.destination;
  const auto status =
      known ? wire::CmAprStatus::kUnsupported : wire::CmAprStatus::kInvalidCommunicationId;
  answer_with({transaction_id, wire::CmApr{lap.remote_id, lap.local_id, status, {}, {}}}, way_back);
}

void Manager::answer_with(const wire::CmMad& mad, const model::AddressVector& way_back) {
  OutMad out{.bytes = {}, .destination = way_back, .id = {}};
  if (wire::emit_cm(out.bytes, mad)) send(out);
}

void Manager::on_request(const wire::CmMad& mad, Bytes bytes, const model::AddressVector& way_back,
                         Time now) {
  const auto& req = std::get<wire::CmReq>(mad.message);
  if (req.local_id == CommunicationId{}) {
    ++counters_.malformed;
    return;
  }
  const RemoteName name{way_back.destination, req.local_ca_guid, req.local_id};
  if (known_request(mad, name, way_back, now)) return;
  const auto stale = remote_qps_.find({way_back.destination, req.local_ca_guid, req.local_qpn});
  if (stale != remote_qps_.end()) restart_peer(CommunicationId{stale->second});
  if (const auto listener = listener_for(req.service_id, way_back.source)) {
    take_request(mad, way_back, *listener);
  } else if (!keep_early(bytes, req, way_back, now)) {
    refuse(mad, way_back, CmRejectReason::kInvalidServiceId);
  }
}

/// One that may have come between two listeners of its service.
bool Manager::keep_early(Bytes bytes, const wire::CmReq& req, const model::AddressVector& way_back,
                         Time now) {
  EarlyRequest early{.name = {way_back.destination, req.local_ca_guid, req.local_id},
                     .service = req.service_id,
                     .mad = {},
                     .way_back = way_back};
  if (bytes.size() > early.mad.size()) return false;
  std::ranges::copy(bytes, early.mad.begin());
  return ended_.keep(std::move(early), now);
}

void Manager::refuse_early(Time now) {
  const auto due = [&](const EarlyRequest& one) { return one.until <= now; };
  for (const EarlyRequest& early : ended_.take_if(due)) {
    const auto mad = wire::parse_cm(early.mad);
    if (mad) refuse(*mad, early.way_back, CmRejectReason::kInvalidServiceId);
  }
}

void Manager::refuse(const wire::CmMad& mad, const model::AddressVector& way_back,
                     CmRejectReason reason) {
  const auto& req = std::get<wire::CmReq>(mad.message);
  answer_with({mad.transaction_id, wire::CmRej{{}, req.local_id, CmAnswered::kReq, reason, {}, {}}},
              way_back);
}

/// The same request as before, answered or not. Another one by the same name is from a peer that
/// has begun anew.
bool Manager::known_request(const wire::CmMad& mad, const RemoteName& name,
                            const model::AddressVector& way_back, Time now) {
  if (const auto* answer = answers_.find(name, mad.transaction_id, now)) {
    send({.bytes = *answer, .destination = way_back, .id = {}});
    return true;
  }
  const auto found = names_.find(name);
  if (found == names_.end()) return false;
  const CommunicationId id = found->second;
  Connection& connection = *live(id);
  const auto& req = std::get<wire::CmReq>(mad.message);
  const bool same = connection.transaction_id() == mad.transaction_id &&
                    connection.remote_qpn() == req.local_qpn &&
                    connection.remote_psn() == req.starting_psn;
  if (same) {
    connection.on_duplicate_request();
  } else {
    restart_peer(id);
  }
  return same;
}

void Manager::restart_peer(CommunicationId id) {
  live(id)->on_peer_restarted();
  settle(id);
}

void Manager::take_request(const wire::CmMad& mad, const model::AddressVector& way_back,
                           ListenerId listener) {
  const auto& req = std::get<wire::CmReq>(mad.message);
  if (!supported(req.transport))
    return refuse(mad, way_back, CmRejectReason::kInvalidTransportType);
  Listener& room = listeners_[listener.value()];
  // It asks again.
  const auto id = room.pending < room.most_pending ? new_id() : std::nullopt;
  if (!id) {
    ++counters_.no_room;
    return;
  }
  ++room.pending;
  Entry& entry = connections_[id->value()];
  entry.pending = true;
  entry.connection =
      std::make_unique<Connection>(static_cast<Outbox&>(*this), *id, mad, way_back, listener);
  entry.named = names_.try_emplace(name_of(*entry.connection), *id).second;
  settle(*id);
}

void Manager::on_refused(CommunicationId id, Time now) {
  if (const auto found = lookups_.find(id.value()); found != lookups_.end()) {
    const wire::CmMad nobody{
        found->second.transaction_id,
        wire::CmSidrRep{.request_id = id, .status = wire::CmSidrStatus::kUnsupportedService}};
    return on_lookup_answer(nobody, found->second.sent.destination, now);
  }
  if (Connection* connection = live(id)) connection->on_refused(now);
  settle(id);
}

void Manager::on_deadline(Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const CommunicationId id{deadlines_.begin()->second};
    if (const auto found = lookups_.find(id.value()); found != lookups_.end()) {
      on_lookup_deadline(found, now);
      continue;
    }
    live(id)->on_deadline(now);
    settle(id);
  }
  refuse_early(now);
}

std::vector<std::pair<CommunicationId, model::Gid>> Manager::peers_of(
    std::uint32_t id_block) const {
  std::vector<std::pair<CommunicationId, model::Gid>> peers;
  for (const auto& [id, entry] : connections_) {
    const Connection& connection = *entry.connection;
    if (!connection.knows_remote_id() || block_of(connection.remote_id()) != id_block) continue;
    peers.emplace_back(CommunicationId{id}, connection.path().destination);
  }
  return peers;
}

void Manager::on_peer_gone(CommunicationId id, Time now) {
  Connection* connection = live(id);
  if (connection == nullptr) return;
  connection->on_peer_gone(now);
  settle(id);
}

// Outputs.

std::optional<OutMad> Manager::poll_transmit() {
  if (transmit_.empty()) return std::nullopt;
  const OutMad mad = transmit_.front();
  transmit_.pop_front();
  return mad;
}

std::optional<Event> Manager::poll_event() {
  if (events_.empty()) return std::nullopt;
  const Event event = events_.front();
  events_.pop_front();
  return event;
}

std::optional<Time> Manager::next_deadline() const {
  const auto refusal = ended_.next_deadline();
  if (deadlines_.empty()) return refusal;
  const Time first = deadlines_.begin()->first;
  return refusal ? std::min(*refusal, first) : first;
}

}  // namespace airdma::ibcm
