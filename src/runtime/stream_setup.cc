// SPDX-License-Identifier: MIT
#include "runtime/stream_setup.h"

#include <algorithm>

namespace airdma::runtime {
namespace {

// Length field and CRC around a ULPDU. RFC 5044 4.1.
constexpr std::size_t kFramingBytes = 6;
// Fits one IP packet with its headers, so that a trace can show it whole.
constexpr std::size_t kLocalUlpdu = 64512 + 18;
constexpr std::size_t kLeastUlpdu = 128;

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

bool within_host(const Ends& ends) {
  const io::Address local = ends.local.unmapped();
  return local.is_loopback() || local.same_host(ends.peer.unmapped());
}

std::size_t bounded(std::size_t fpdu_bytes) {
  const std::size_t whole_words = fpdu_bytes & ~std::size_t{3};
  return std::clamp(whole_words - std::min(whole_words, kFramingBytes), kLeastUlpdu, kLocalUlpdu);
}

std::size_t segment_ulpdu(const FpduRoom& room) {
  std::size_t bytes = room.segment_bytes;
  // A marker of four bytes in each 512 of the stream, and one more for an unlucky start.
  if (room.markers) bytes -= std::min(bytes, 4 * (bytes / 512 + 1));
  return bounded(bytes);
}

}  // namespace

std::size_t max_ulpdu(const FpduRoom& room, const FpduLimit& limit) {
  switch (limit.kind) {
    case FpduLimit::Kind::kAutomatic:
      return room.within_host || room.peer_takes_large ? kLocalUlpdu : segment_ulpdu(room);
    case FpduLimit::Kind::kSegment:
      return segment_ulpdu(room);
    case FpduLimit::Kind::kBytes:
      return bounded(limit.bytes);
  }
  return segment_ulpdu(room);
}

iwarp::StreamParams stream_params(const mpa::Agreement& agreement, bool initiator,
                                  const io::TcpSocket& socket, const Ends& ends) {
  iwarp::StreamParams params;
  params.initiator = initiator;
  params.within_host = within_host(ends);
  params.crc = agreement.crc;
  params.send_markers = agreement.send_markers;
  params.ird = agreement.ird;
  params.ord = agreement.ord;
  params.receive_markers = agreement.receive_markers;
  params.max_ulpdu = max_ulpdu({.within_host = params.within_host,
                                .peer_takes_large = agreement.large_fpdus,
                                .markers = agreement.send_markers,
                                .segment_bytes = socket.segment_size()},
                               mpa_settings().fpdu);
  params.rtr = convert(agreement.rtr);
  if (agreement.reads_from_the_start) params.nudge_after = Duration::max();
  return params;
}

std::unique_ptr<trace::TcpTap> open_tap(const Ends& ends, bool initiator) {
  return trace::open_tcp_tap(ends.local.unmapped().storage(), ends.peer.unmapped().storage(),
                             initiator);
}

}  // namespace airdma::runtime
