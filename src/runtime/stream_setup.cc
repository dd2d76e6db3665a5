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

bool within_host(const io::TcpSocket& socket) {
  const io::Address local = socket.local_address().unmapped();
  return local.is_loopback() || local.same_host(socket.peer_address().unmapped());
}

std::size_t max_ulpdu(const io::TcpSocket& socket, bool markers) {
  if (within_host(socket)) return kLocalUlpdu;
  std::size_t room = socket.segment_size();
  // A marker of four bytes in each 512 of the stream, and one more for an unlucky start.
  if (markers) room -= std::min(room, 4 * (room / 512 + 1));
  room = (room & ~std::size_t{3}) - std::min(room, kFramingBytes);
  return std::clamp(room, kLeastUlpdu, kLocalUlpdu);
}

}  // namespace

iwarp::StreamParams stream_params(const mpa::Agreement& agreement, bool initiator,
                                  const io::TcpSocket& socket) {
  iwarp::StreamParams params;
  params.initiator = initiator;
  params.crc = agreement.crc;
  params.send_markers = agreement.send_markers;
  params.ird = agreement.ird;
  params.ord = agreement.ord;
  params.max_ulpdu = max_ulpdu(socket, agreement.send_markers);
  params.rtr = convert(agreement.rtr);
  return params;
}

std::unique_ptr<trace::TcpTap> open_tap(const io::TcpSocket& socket, bool initiator) {
  return trace::open_tcp_tap(socket.local_address().unmapped().storage(),
                             socket.peer_address().unmapped().storage(), initiator);
}

}  // namespace airdma::runtime
