// SPDX-License-Identifier: MIT
#include "engine/cm/mpa_connection.h"

#include <algorithm>
#include <utility>

namespace airdma::mpa {
namespace {

using wire::kMpaDepthNotNegotiated;

SetupError error_of(wire::MpaError error) {
  switch (error) {
    case wire::MpaError::kWrongKey:
      return SetupError::kBadKey;
    case wire::MpaError::kPrivateDataTooLong:
    case wire::MpaError::kEnhancedTooShort:
      return SetupError::kBadLength;
  }
  return SetupError::kBadKey;
}

std::vector<std::byte> bytes_of(const wire::MpaFrame& frame) {
  std::vector<std::byte> out(wire::mpa_frame_bytes(frame));
  out.resize(wire::emit_mpa(out, frame));
  return out;
}

bool revision_known(std::uint8_t revision) { return revision == 1 || revision == 2; }

bool asks_for_crc(CrcPolicy policy) {
  return policy == CrcPolicy::kPrefer || policy == CrcPolicy::kRequire;
}

std::uint16_t depth_field(std::uint16_t depth) { return std::min(depth, kMpaDepthNotNegotiated); }

// Peer: the reserved flag in which the kernel's siw says that it takes FPDUs of more than one TCP
// segment, and which others ignore (RFC 5044 7.1). docs/decisions/0008.
constexpr std::uint8_t kLargeFpdus = 0x8;
// Of ours, in replies alone: siw answers with the flags of the request, so what a request had would
// tell nothing.
constexpr std::uint8_t kReadsFromTheStart = 0x4;

std::uint8_t reserved_flags(const Offer& offer) { return offer.large_fpdus ? kLargeFpdus : 0; }

/// The wished one if it is offered, else the cheapest for both ends: a WRITE needs neither a
/// receive nor a READ slot.
Rtr chosen_rtr(const Request& request, std::optional<Rtr> wish) {
  if (wish == Rtr::kNone) return Rtr::kNone;
  if (wish == Rtr::kSend && request.rtr_send) return Rtr::kSend;
  if (wish == Rtr::kRead && request.rtr_read) return Rtr::kRead;
  if (request.rtr_write) return Rtr::kWrite;
  if (request.rtr_read) return Rtr::kRead;
  if (request.rtr_send) return Rtr::kSend;
  return Rtr::kNone;
}

/// The request's word; what a reply may pick from is the same.
wire::MpaEnhanced offered(const Offer& offer) {
  wire::MpaEnhanced word;
  word.ird = depth_field(offer.ird);
  word.ord = depth_field(offer.ord);
  word.peer_to_peer = offer.peer_to_peer && offer.rtr != Rtr::kNone;
  if (!word.peer_to_peer) return word;
  word.rtr_send = offer.rtr == Rtr::kSend;
  word.rtr_write = !offer.rtr || offer.rtr == Rtr::kWrite;
  word.rtr_read = !offer.rtr || offer.rtr == Rtr::kRead;
  return word;
}

wire::MpaFrame reply_to(const Request& request) {
  wire::MpaFrame reply;
  reply.kind = wire::MpaFrameKind::kReply;
  reply.revision = request.revision;
  if (request.enhanced) reply.enhanced.emplace();
  return reply;
}

// A peer that was told no depth cannot keep to one: it may have as many READs outstanding as there
// are resources for.
std::uint16_t unannounced_ird(const Offer& offer) { return std::max(offer.ird, offer.max_ird); }

}  // namespace

std::size_t FrameCollector::feed(Bytes bytes) {
  std::size_t used = 0;
  while (!done()) {
    wire::MpaParse parse = wire::parse_mpa(received_, kind_);
    if (parse.error) {
      error_ = error_of(*parse.error);
    } else if (parse.frame) {
      frame_ = parse.frame;
    } else {
      // The frame is at most 532 bytes, so the peer does not decide how much is kept.
      const std::size_t missing = parse.needed_bytes - received_.size();
      const Bytes taken = bytes.subspan(used, std::min(missing, bytes.size() - used));
      if (taken.empty()) break;
      received_.insert(received_.end(), taken.begin(), taken.end());
      used += taken.size();
    }
  }
  return used;
}

Initiator::Initiator(const Offer& offer, Bytes private_data) : offer_(offer) {
  wire::MpaFrame request;
  request.kind = wire::MpaFrameKind::kRequest;
  request.revision = offer.revision;
  request.crc = asks_for_crc(offer.crc);
  request.markers = offer.markers;
  request.reserved = reserved_flags(offer);
  request.private_data = private_data;
  if (offer.revision >= 2) request.enhanced = offered(offer);
  transmit_ = bytes_of(request);
  if (transmit_.empty()) fail(SetupError::kBadLength);
}

std::vector<std::byte> Initiator::take_transmit() { return std::exchange(transmit_, {}); }

std::size_t Initiator::on_bytes(Bytes bytes) {
  if (state_ != SetupState::kWaiting) return 0;
  const std::size_t used = collector_.feed(bytes);
  if (collector_.error() != SetupError::kNone) fail(collector_.error());
  if (collector_.frame()) on_reply(*collector_.frame());
  return used;
}

void Initiator::on_reply(const wire::MpaFrame& reply) {
  private_data_.assign(reply.private_data.begin(), reply.private_data.end());
  if (!revision_known(reply.revision)) return fail(SetupError::kBadRevision);
  // A rejection counts in whatever revision it comes: a peer that does not know ours answers in
  // the one it knows (RFC 6581 10).
  if (reply.reject) {
    state_ = SetupState::kRejected;
    return;
  }
  if (reply.revision != offer_.revision) return fail(SetupError::kBadRevision);
  if (reply.crc && offer_.crc == CrcPolicy::kRefuse) return fail(SetupError::kCrcMismatch);
  agreement_.revision = reply.revision;
  agreement_.crc = reply.crc || asks_for_crc(offer_.crc);
  agreement_.send_markers = reply.markers;
  agreement_.receive_markers = offer_.markers;
  agreement_.large_fpdus = (reply.reserved & kLargeFpdus) != 0;
  agreement_.reads_from_the_start = (reply.reserved & kReadsFromTheStart) != 0;
  agreement_.ird = offer_.ird;
  agreement_.ord = offer_.ord;
  state_ = SetupState::kEstablished;
  if (!reply.enhanced) {
    agreement_.ird = unannounced_ird(offer_);
    return;
  }
  agreement_.enhanced = true;
  agree_depths(*reply.enhanced);
  agree_rtr(*reply.enhanced);
}

// RFC 6581 9.1: our ORD goes down to the responder's IRD; our IRD goes up to the responder's ORD,
// or the connection is given up.
void Initiator::agree_depths(const wire::MpaEnhanced& theirs) {
  if (theirs.ird != kMpaDepthNotNegotiated) agreement_.ord = std::min(offer_.ord, theirs.ird);
  if (theirs.ord == kMpaDepthNotNegotiated || theirs.ord <= offer_.ird) return;
  if (theirs.ord > offer_.max_ird) return fail(SetupError::kNoResources);
  agreement_.ird = theirs.ord;
}

void Initiator::agree_rtr(const wire::MpaEnhanced& theirs) {
  const wire::MpaEnhanced ours = offered(offer_);
  if (!theirs.peer_to_peer || !ours.peer_to_peer) return;
  Request both;
  both.rtr_send = ours.rtr_send && theirs.rtr_send;
  both.rtr_write = ours.rtr_write && theirs.rtr_write;
  both.rtr_read = ours.rtr_read && theirs.rtr_read;
  agreement_.rtr = chosen_rtr(both, std::nullopt);
  if (agreement_.rtr == Rtr::kNone) fail(SetupError::kNoMatchingRtr);
}

void Initiator::fail(SetupError error) {
  state_ = SetupState::kFailed;
  error_ = error;
}

std::size_t Responder::on_bytes(Bytes bytes) {
  if (state_ != SetupState::kWaiting) return 0;
  const std::size_t used = collector_.feed(bytes);
  if (collector_.error() != SetupError::kNone) fail(collector_.error());
  if (collector_.frame()) on_request(*collector_.frame());
  return used;
}

void Responder::on_request(const wire::MpaFrame& frame) {
  if (!revision_known(frame.revision)) return fail(SetupError::kBadRevision);
  if (frame.reject) return fail(SetupError::kBadFlags);
  request_.revision = frame.revision;
  request_.crc = frame.crc;
  request_.markers = frame.markers;
  request_.large_fpdus = (frame.reserved & kLargeFpdus) != 0;
  request_.private_data.assign(frame.private_data.begin(), frame.private_data.end());
  if (frame.enhanced) {
    request_.enhanced = true;
    request_.ird = frame.enhanced->ird;
    request_.ord = frame.enhanced->ord;
    if (frame.enhanced->peer_to_peer) {
      request_.rtr_send = frame.enhanced->rtr_send;
      request_.rtr_write = frame.enhanced->rtr_write;
      request_.rtr_read = frame.enhanced->rtr_read;
    }
    request_.peer_to_peer = request_.rtr_send || request_.rtr_write || request_.rtr_read;
  }
  state_ = SetupState::kRequested;
}

void Responder::accept(const Offer& offer, Bytes private_data) {
  if (state_ != SetupState::kRequested) return;
  if (request_.crc && offer.crc == CrcPolicy::kRefuse) {
    reject({});
    return fail(SetupError::kCrcMismatch);
  }
  agree_on(offer);
  wire::MpaFrame reply = reply_to(request_);
  reply.crc = agreement_.crc;
  reply.markers = offer.markers;
  reply.reserved = reserved_flags(offer);
  if (offer.reads_from_the_start) reply.reserved |= kReadsFromTheStart;
  reply.private_data = private_data;
  if (reply.enhanced) {
    reply.enhanced = wire::MpaEnhanced{.ird = depth_field(agreement_.ird),
                                       .ord = depth_field(agreement_.ord),
                                       .peer_to_peer = agreement_.rtr != Rtr::kNone,
                                       .rtr_send = agreement_.rtr == Rtr::kSend,
                                       .rtr_write = agreement_.rtr == Rtr::kWrite,
                                       .rtr_read = agreement_.rtr == Rtr::kRead};
  }
  transmit_ = bytes_of(reply);
  state_ = SetupState::kEstablished;
  if (transmit_.empty()) fail(SetupError::kBadLength);
}

void Responder::agree_on(const Offer& offer) {
  agreement_.revision = request_.revision;
  agreement_.crc = request_.crc || offer.crc == CrcPolicy::kRequire;
  agreement_.send_markers = request_.markers;
  agreement_.receive_markers = offer.markers;
  agreement_.large_fpdus = request_.large_fpdus;
  agreement_.enhanced = request_.enhanced;
  agreement_.rtr = chosen_rtr(request_, offer.rtr);
  agreement_.ird = request_.enhanced ? offer.ird : unannounced_ird(offer);
  agreement_.ord = offer.ord;
  if (request_.enhanced) agree_depths(offer);
}

// RFC 6581 9.1: the responder's ORD may not exceed the initiator's IRD, and its IRD should be
// enough for the initiator's ORD when it has the resources.
void Responder::agree_depths(const Offer& offer) {
  if (request_.ird != kMpaDepthNotNegotiated) agreement_.ord = std::min(offer.ord, request_.ird);
  if (request_.ord == kMpaDepthNotNegotiated || offer.ird == kMpaDepthNotNegotiated) return;
  agreement_.ird = std::max(offer.ird, std::min(request_.ord, offer.max_ird));
}

void Responder::reject(Bytes private_data) {
  if (state_ != SetupState::kRequested) return;
  wire::MpaFrame reply = reply_to(request_);
  reply.reject = true;
  reply.private_data = private_data;
  transmit_ = bytes_of(reply);
  state_ = SetupState::kRejected;
}

std::vector<std::byte> Responder::take_transmit() { return std::exchange(transmit_, {}); }

void Responder::fail(SetupError error) {
  state_ = SetupState::kFailed;
  error_ = error;
}

}  // namespace airdma::mpa
