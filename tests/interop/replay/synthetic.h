// SPDX-License-Identifier: MIT
// A connection between two of our own engines, as a capture would show it.
#pragma once

#include <cstddef>

#include "tests/interop/capture.h"

namespace airdma::interop {

struct SyntheticOptions {
  bool initiator_markers = false;  // it asks for markers in what it receives
  bool responder_markers = false;
  bool crc = true;
  bool peer_to_peer = false;
  std::size_t cut = 1448;  // bytes per TCP segment
  std::size_t max_ulpdu = 1442;
};

/// Every operation, both ways, of lengths from zero to several FPDUs, then an orderly end.
[[nodiscard]] Connection synthetic_connection(const SyntheticOptions& options);

/// Puts both streams together again after segments were changed.
void rebuild_streams(Connection& connection);

}  // namespace airdma::interop
