// SPDX-License-Identifier: MIT
// Whose a management datagram is, of the processes that share QP 1: requests name a service (IBTA
// vol. 1, 12.6.5), everything else the id of a connection, whose upper 12 bits are a block of queue
// pair numbers of the process that chose it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace airdma::runtime {

struct MadRoute {
  /// Of a request: port space << 16 | port, as the service ids of RDMA's connection manager have
  /// them (annex A11). Nothing when the datagram goes to a block.
  std::optional<std::uint32_t> service;
  /// Of a peer that gives up before it has heard of our id, and names itself alone (12.6.7): who
  /// has the connection is known to its process only.
  bool nameless = false;
  std::uint32_t block = 0;
};

/// Nothing for a datagram of another class, or a request for a service of another kind.
std::optional<MadRoute> route_mad(Bytes mad);

}  // namespace airdma::runtime
