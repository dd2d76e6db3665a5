// SPDX-License-Identifier: MIT
// A packet on its way out, as both ways out take it: headers, payload in pieces, pad.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"

namespace airdma::runtime {

struct Frame {
  Bytes header;                   // BTH and extended headers
  std::span<const Bytes> pieces;  // memory that may be gone
  std::uint8_t pad_bytes = 0;
  std::size_t bytes = 0;  // of all of it, without ICRC

  /// Of a packet that has a whole BTH.
  static Qpn destination_of(Bytes packet) {
    const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(packet[i]); };
    return Qpn(byte(5) << 16 | byte(6) << 8 | byte(7));
  }
  [[nodiscard]] Qpn destination() const { return destination_of(header); }
};

/// Packets that are sent by one call, at most.
inline constexpr std::size_t kMaxFrames = 64;
/// Pieces that their payload is in, at most.
inline constexpr std::size_t kMaxFramePieces = 256;

}  // namespace airdma::runtime
