// SPDX-License-Identifier: MIT
#include "tests/interop/replay/setup_player.h"

#include <algorithm>
#include <utility>

#include "wire/print.h"

namespace airdma::interop {
namespace {

// What revision 1 does not say: enough for any program that was captured.
constexpr std::uint16_t kUnsaidDepth = 128;

iwarp::Rtr convert(mpa::Rtr rtr) {
  switch (rtr) {
    case mpa::Rtr::kNone:
      return iwarp::Rtr::kNone;
    case mpa::Rtr::kSend:
      return iwarp::Rtr::kSend;
    case mpa::Rtr::kWrite:
      return iwarp::Rtr::kWrite;
    case mpa::Rtr::kRead:
      return iwarp::Rtr::kRead;
  }
  return iwarp::Rtr::kNone;
}

std::string text_of(mpa::SetupState state) {
  constexpr const char* kNames[] = {"waiting", "requested", "established", "rejected", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace

SetupPlayer::SetupPlayer(const Conversation& conversation, const Script& script, Deviations& used)
    : conversation_(conversation), script_(script), used_(used) {
  const auto& request = conversation.initiator.mpa;
  if (!request) {
    unsupported_ = "the MPA request is not whole";
    return;
  }
  if (script.role != Role::kInitiator) return;
  if (request->revision >= 2 && !request->enhanced) {
    unsupported_ = "a request of revision 2 without IRD and ORD";
  }
  const auto& enhanced = request->enhanced;
  if (enhanced && enhanced->peer_to_peer &&
      (enhanced->rtr_send || !enhanced->rtr_write || !enhanced->rtr_read)) {
    unsupported_ = "this choice of RTR frames on offer (airdma offers WRITE and READ)";
  }
}

mpa::Offer SetupPlayer::initiator_offer() const {
  const wire::MpaFrame& request = *script_.own->mpa;
  mpa::Offer offer;
  offer.revision = request.revision;
  offer.crc = request.crc ? mpa::CrcPolicy::kPrefer : mpa::CrcPolicy::kOff;
  offer.ird = request.enhanced ? request.enhanced->ird : kUnsaidDepth;
  offer.ord = request.enhanced ? request.enhanced->ord : kUnsaidDepth;
  offer.peer_to_peer = request.enhanced && request.enhanced->peer_to_peer;
  return offer;
}

mpa::Offer SetupPlayer::responder_offer() const {
  const wire::MpaFrame& request = *script_.peer->mpa;
  const wire::MpaFrame& reply = *script_.own->mpa;
  mpa::Offer offer;
  offer.crc = reply.crc && !request.crc ? mpa::CrcPolicy::kRequire : mpa::CrcPolicy::kOff;
  offer.ird = offer.max_ird = reply.enhanced ? reply.enhanced->ird : kUnsaidDepth;
  offer.ord = reply.enhanced ? reply.enhanced->ord : kUnsaidDepth;
  return offer;
}

Bytes SetupPlayer::peer_bytes(const Event& event) const {
  return script_.peer->raw.subspan(event.begin, event.end - event.begin);
}

std::size_t SetupPlayer::run() {
  const std::size_t event = script_.role == Role::kInitiator ? run_initiator() : run_responder();
  const bool refused = conversation_.responder.mpa && conversation_.responder.mpa->reject;
  if (refused && !difference_ && script_.own->raw.size() > script_.own->mpa_bytes) {
    difference_ = Difference{script_.own->mpa_bytes, "after a rejection", "nothing",
                             std::to_string(script_.own->raw.size() - script_.own->mpa_bytes) +
                                 " more bytes were captured"};
  }
  // An acceptance that the capture does not show cannot be compared further.
  if (!conversation_.accepted()) established_ = false;
  return event;
}

std::size_t SetupPlayer::run_initiator() {
  mpa::Initiator initiator(initiator_offer(), script_.own->mpa->private_data);
  const auto request = initiator.take_transmit();
  identical_ = std::ranges::equal(request, script_.own->raw.first(script_.own->mpa_bytes));
  difference_ = compare_frames(script_, request, used_);
  for (std::size_t i = 0; i < script_.events.size() && !difference_; ++i) {
    const Event& event = script_.events[i];
    if (event.kind != EventKind::kPeerBytes) continue;
    used_of_event_ = initiator.on_bytes(peer_bytes(event));
    if (initiator.state() == mpa::SetupState::kWaiting) continue;
    agreement_ = initiator.agreement();
    judge_reply(initiator);
    return i;
  }
  return script_.events.size();
}

void SetupPlayer::judge_reply(const mpa::Initiator& initiator) {
  established_ = initiator.state() == mpa::SetupState::kEstablished;
  if (!script_.peer->mpa) return;
  const wire::MpaFrame& reply = *script_.peer->mpa;
  const auto expected = reply.reject ? mpa::SetupState::kRejected : mpa::SetupState::kEstablished;
  if (initiator.state() != expected) {
    // An initiator that sent nothing after the reply may have given up as well.
    if (script_.own->raw.size() == script_.own->mpa_bytes) return;
    return differ("setup", text_of(expected), text_of(initiator.state()));
  }
  if (!std::ranges::equal(initiator.private_data(), reply.private_data)) {
    return differ("private data of the reply", wire::to_text(reply),
                  std::to_string(initiator.private_data().size()) + " other bytes");
  }
  if (established_ && agreement_.crc != conversation_.crc()) {
    differ("use of CRC", conversation_.crc() ? "on" : "off", agreement_.crc ? "on" : "off");
  }
}

std::size_t SetupPlayer::run_responder() {
  mpa::Responder responder;
  for (std::size_t i = 0; i < script_.events.size(); ++i) {
    const Event& event = script_.events[i];
    if (event.kind != EventKind::kPeerBytes) continue;
    used_of_event_ = responder.on_bytes(peer_bytes(event));
    if (responder.state() == mpa::SetupState::kWaiting) continue;
    if (responder.state() != mpa::SetupState::kRequested) {
      // A side that answers nothing has perhaps refused as well.
      if (script_.own->mpa) differ("setup", "requested", text_of(responder.state()));
      return i;
    }
    if (!std::ranges::equal(responder.request().private_data, script_.peer->mpa->private_data)) {
      differ("private data of the request", wire::to_text(*script_.peer->mpa), "other bytes");
    }
    if (script_.own->mpa) answer(responder);
    return i;
  }
  return script_.events.size();
}

void SetupPlayer::answer(mpa::Responder& responder) {
  const wire::MpaFrame& request = *script_.peer->mpa;
  const wire::MpaFrame& reply = *script_.own->mpa;
  if (!reply.reject) {
    responder.accept(responder_offer(), reply.private_data);
  } else if (request.crc && !reply.crc && reply.private_data.empty()) {
    // Refused for the CRC it seems: by policy, without asking the program.
    responder.accept({.crc = mpa::CrcPolicy::kRefuse}, {});
  } else {
    responder.reject(reply.private_data);
  }
  agreement_ = responder.agreement();
  established_ = responder.state() == mpa::SetupState::kEstablished;
  const auto ours = responder.take_transmit();
  identical_ = std::ranges::equal(ours, script_.own->raw.first(script_.own->mpa_bytes));
  if (!difference_) difference_ = compare_frames(script_, ours, used_);
}

void SetupPlayer::differ(std::string what, std::string expected, std::string ours) {
  difference_ = Difference{0, std::move(what), std::move(expected), std::move(ours)};
}

iwarp::StreamParams SetupPlayer::params() const {
  iwarp::StreamParams params;
  params.initiator = script_.role == Role::kInitiator;
  params.crc = agreement_.crc;
  params.send_markers = agreement_.send_markers;
  params.receive_markers = script_.peer->markers;
  params.ird = agreement_.ird;
  params.ord = agreement_.ord;
  params.rtr = convert(agreement_.rtr);
  if (const std::size_t ulpdu = largest_ulpdu(script_.own->fpdus)) params.max_ulpdu = ulpdu;
  return params;
}

std::string SetupPlayer::compared() const {
  if (!script_.own->mpa) return "nothing: this side sent no MPA frame";
  return wire::to_text(*script_.own->mpa) + (identical_ ? " identical" : " compared");
}

}  // namespace airdma::interop
