// SPDX-License-Identifier: MIT
// Lookups of datagram services: SIDR (IBTA vol. 1, 12.11). A request and an answer, each repeated
// when the request is.
#include <iterator>
#include <variant>

#include "engine/cm/ib_manager.h"

namespace airdma::ibcm {
namespace {

constexpr Pkey kDefaultPkey{0xffff};
// As the RDMA CM of the kernel: 4.3 s for the peer's program, and 16 times that in all.
constexpr Duration kLookupTimeout = wire_time(20);
constexpr unsigned kLookupTries = 15;

}  // namespace

std::optional<CommunicationId> Manager::look_up(const LookupParams& params, Time now) {
  const auto id = new_id();
  if (!id) return std::nullopt;
  const std::uint64_t transaction_id = new_transaction_id(*id);
  Lookup lookup;
  lookup.sent.destination = params.path;
  lookup.sent.id = *id;
  lookup.active = true;
  lookup.transaction_id = transaction_id;
  lookup.service = params.service;
  const wire::CmSidrReq req{*id, kDefaultPkey, params.service, params.private_data};
  if (!wire::emit_cm(lookup.sent.bytes, {transaction_id, req})) return std::nullopt;
  lookup.resend.start(now, kLookupTimeout, kLookupTries);
  send(lookup.sent);
  Lookup& kept = lookups_[id->value()] = lookup;
  set_deadline(kept.deadline, kept.resend.next(), *id);
  return id;
}

bool Manager::answer(CommunicationId id, const LookupAnswer& answer, Time now) {
  const auto found = lookups_.find(id.value());
  if (found == lookups_.end() || found->second.active) return false;
  Lookup& lookup = found->second;
  const wire::CmSidrRep rep{.request_id = lookup.name.id,
                            .status = answer.status,
                            .qpn = answer.qpn,
                            .service_id = lookup.service,
                            .qkey = answer.qkey,
                            .additional = {},
                            .private_data = answer.private_data};
  if (!wire::emit_cm(lookup.sent.bytes, {lookup.transaction_id, rep})) return false;
  send(lookup.sent);
  answers_.remember(lookup.name, lookup.transaction_id, lookup.sent.bytes, now);
  forget(found);
  return true;
}

void Manager::on_lookup(const wire::CmMad& mad, const model::AddressVector& way_back, Time now) {
  const auto& req = std::get<wire::CmSidrReq>(mad.message);
  const RemoteName name{way_back.destination, 0, req.request_id};
  if (const auto* answer = answers_.find(name, mad.transaction_id, now)) {
    return send({.bytes = *answer, .destination = way_back, .id = {}});
  }
  if (lookup_names_.contains(name)) return;
  const auto listener = listener_for(req.service_id, way_back.source);
  if (!listener) {
    return answer_with(
        {mad.transaction_id, wire::CmSidrRep{.request_id = req.request_id,
                                             .status = wire::CmSidrStatus::kUnsupportedService,
                                             .service_id = req.service_id}},
        way_back);
  }
  Listener& room = listeners_[listener->value()];
  const auto id = room.pending < room.most_pending ? new_id() : std::nullopt;
  if (!id) {
    ++counters_.no_room;
    return;
  }
  ++room.pending;
  Lookup lookup;
  lookup.sent.destination = way_back;
  lookup.name = name;
  lookup.transaction_id = mad.transaction_id;
  lookup.service = req.service_id;
  lookup.listener = *listener;
  lookup.pending = true;
  lookups_[id->value()] = lookup;
  lookup_names_[name] = *id;
  Event event{.kind = EventKind::kLookup, .id = *id, .path = way_back, .listener = *listener};
  if (wire::emit_cm(event.mad, mad)) report(event);
}

void Manager::on_lookup_answer(const wire::CmMad& mad, const model::AddressVector& way_back,
                               Time now) {
  const auto& rep = std::get<wire::CmSidrRep>(mad.message);
  const auto found = lookups_.find(rep.request_id.value());
  const bool ours = found != lookups_.end() && found->second.active &&
                    found->second.sent.destination.destination == way_back.destination;
  if (!ours) {
    ++counters_.unknown_connection;
    return;
  }
  if (rep.status == wire::CmSidrStatus::kUnsupportedService && look_up_later(found, now)) return;
  finish_lookup(found, EventKind::kLookupAnswered, &mad);
}

bool Manager::look_up_later(Lookups::iterator found, Time now) {
  Lookup& lookup = found->second;
  if (lookup.refusals == std::size(kRefusedPauses)) return false;
  lookup.resend.next_at(now + kRefusedPauses[lookup.refusals++]);
  set_deadline(lookup.deadline, lookup.resend.next(), lookup.sent.id);
  return true;
}

void Manager::on_lookup_deadline(Lookups::iterator found, Time now) {
  Lookup& lookup = found->second;
  if (!lookup.resend.again(now))
    return finish_lookup(found, EventKind::kLookupUnreachable, nullptr);
  send(lookup.sent);
  set_deadline(lookup.deadline, lookup.resend.next(), lookup.sent.id);
}

void Manager::finish_lookup(Lookups::iterator found, EventKind kind, const wire::CmMad* mad) {
  Event event{.kind = kind, .id = found->second.sent.id, .path = found->second.sent.destination};
  const bool whole = mad == nullptr || wire::emit_cm(event.mad, *mad);
  forget(found);
  if (whole) report(event);
}

void Manager::forget(Lookups::iterator found) {
  Lookup& lookup = found->second;
  set_deadline(lookup.deadline, std::nullopt, CommunicationId{found->first});
  release_room(lookup.listener, lookup.pending);
  if (!lookup.active) lookup_names_.erase(lookup.name);
  lookups_.erase(found);
}

}  // namespace airdma::ibcm
