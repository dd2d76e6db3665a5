// SPDX-License-Identifier: MIT
#include "tests/interop/replay/schedule.h"

#include <algorithm>

namespace airdma::interop {
namespace {

std::vector<Event> in_capture_order(const Conversation& conversation, Role role) {
  const Direction own = conversation.half(role).direction;
  std::uint64_t at[2] = {0, 0};
  bool ended[2] = {false, false};
  std::vector<Event> events;
  for (const Segment& segment : conversation.connection->segments) {
    const bool ours = segment.direction == own;
    Event event{.kind = ours ? EventKind::kOwnBytes : EventKind::kPeerBytes,
                .begin = at[ours],
                .end = at[ours] + segment.bytes.size(),
                .time_ns = segment.time_ns};
    at[ours] = event.end;
    if (event.begin != event.end) events.push_back(event);
    if (!segment.fin && !segment.rst) continue;
    if (ended[ours] && ours) continue;
    ended[ours] = true;
    const EventKind peer = segment.rst ? EventKind::kPeerReset : EventKind::kPeerFin;
    event.kind = ours ? EventKind::kOwnEnd : peer;
    event.begin = event.end;
    events.push_back(event);
  }
  return events;
}

/// Offsets of the peer's stream where bytes are cut.
std::vector<std::uint64_t> cuts(const Script& script, std::uint64_t ending) {
  std::vector<std::uint64_t> at{ending};
  for (const PeerRead& read : script.peer_reads) at.push_back(read.end);
  std::ranges::sort(at);
  return at;
}

std::vector<Event> cut(const std::vector<Event>& events, const std::vector<std::uint64_t>& at) {
  std::vector<Event> pieces;
  for (Event event : events) {
    if (event.kind == EventKind::kPeerBytes) {
      for (auto place = std::ranges::upper_bound(at, event.begin);
           place != at.end() && *place < event.end; ++place) {
        if (*place == event.begin) continue;
        Event piece = event;
        piece.end = *place;
        pieces.push_back(piece);
        event.begin = *place;
      }
    }
    pieces.push_back(event);
  }
  return pieces;
}

/// First byte of the peer that ends the stream.
std::uint64_t ending_bytes(const Script& script) {
  std::uint64_t ending = ~std::uint64_t{0};
  if (const Fpdu* offender = script.offender()) ending = offender->begin;
  for (const Message* message : script.peer->fpdus.lane(Lane::kTerminate)) {
    ending = std::min(ending, message->begin);
  }
  return ending;
}

std::uint64_t last_post(const Script& script) {
  std::uint64_t last = 0;
  for (const Post& post : script.posts) last = std::max(last, post.begin + 1);
  return last;
}

}  // namespace

std::uint64_t peer_bytes_before(const Conversation& conversation, Role role,
                                std::uint64_t own_offset) {
  std::uint64_t arrived = 0;
  for (const Event& event : in_capture_order(conversation, role)) {
    if (event.kind == EventKind::kOwnBytes && event.end > own_offset) break;
    if (event.kind == EventKind::kPeerBytes) arrived = event.end;
  }
  return arrived;
}

std::vector<Event> make_schedule(const Conversation& conversation, const Script& script) {
  const std::uint64_t ending = ending_bytes(script);
  const std::uint64_t needed = last_post(script);
  std::vector<Event> early;
  std::vector<Event> late;
  bool ended = false;
  std::uint64_t own = 0;
  for (const Event& event :
       cut(in_capture_order(conversation, script.role), cuts(script, ending))) {
    const bool ours = event.kind == EventKind::kOwnBytes || event.kind == EventKind::kOwnEnd;
    if (event.kind == EventKind::kOwnBytes) own = event.end;
    ended = ended || event.kind == EventKind::kPeerFin || event.kind == EventKind::kPeerReset ||
            (event.kind == EventKind::kPeerBytes && event.end > ending);
    if (ended && !ours && own < needed) {
      late.push_back(event);
      continue;
    }
    early.push_back(event);
    if (own >= needed && !late.empty()) {
      early.insert(early.end(), late.begin(), late.end());
      late.clear();
    }
  }
  early.insert(early.end(), late.begin(), late.end());
  return early;
}

}  // namespace airdma::interop
