// SPDX-License-Identifier: MIT
// From a finished negotiation to the parameters of the FPDU stream.
#pragma once

#include <memory>

#include "engine/cm/mpa_connection.h"
#include "engine/iwarp/endpoint.h"
#include "io/tcp_socket.h"
#include "trace/tcp_tap.h"

namespace airdma::runtime {

/// Parameters for a stream over `socket`: FPDUs of nearly 64 KiB within one host, one per TCP
/// segment elsewhere (RFC 5044 3: receivers without a reassembly buffer want them aligned).
iwarp::StreamParams stream_params(const mpa::Agreement& agreement, bool initiator,
                                  const io::TcpSocket& socket);

/// The trace tap of a connected socket; null when tracing is off.
std::unique_ptr<trace::TcpTap> open_tap(const io::TcpSocket& socket, bool initiator);

}  // namespace airdma::runtime
