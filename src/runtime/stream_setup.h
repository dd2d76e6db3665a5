// SPDX-License-Identifier: MIT
// From a finished negotiation to the parameters of the FPDU stream.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/cm/mpa_connection.h"
#include "engine/iwarp/endpoint.h"
#include "io/tcp_socket.h"
#include "runtime/mpa_settings.h"
#include "trace/tcp_tap.h"

namespace airdma::runtime {

/// What decides how long our FPDUs are.
struct FpduRoom {
  bool within_host = false;
  bool peer_takes_large = false;
  bool markers = false;  // in what we send
  std::size_t segment_bytes = 536;
};
/// Longest ULPDU of the FPDUs we send: nearly 64 KiB within one host and to peers that say they
/// like it, one FPDU per TCP segment elsewhere (RFC 5044 3: receivers without a reassembly buffer
/// want them aligned), unless the user has chosen. docs/decisions/0008.
std::size_t max_ulpdu(const FpduRoom& room, const FpduLimit& limit);

/// The addresses of a connected socket.
struct Ends {
  io::Address local;
  io::Address peer;
};

/// Parameters for a stream over `socket`.
iwarp::StreamParams stream_params(const mpa::Agreement& agreement, bool initiator,
                                  const io::TcpSocket& socket, const Ends& ends);

/// The trace tap of a connection; null when tracing is off.
std::unique_ptr<trace::TcpTap> open_tap(const Ends& ends, bool initiator);

}  // namespace airdma::runtime
