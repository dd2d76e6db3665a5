// SPDX-License-Identifier: MIT
// Where the next FPDU goes, and how much payload it may carry (DDP segmentation, RFC 5041 5.1).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "engine/iwarp/fpdu_writer.h"

namespace airdma::iwarp {

struct Room {
  MutableBytes out;
  bool fresh = false;          // nothing is in this output yet: better a short FPDU than none
  std::uint64_t position = 0;  // of out's first byte in the stream
  std::size_t max_ulpdu = 0;   // bytes
};

/// Payload bytes of the next segment of a message that has `remaining` left; nothing when it must
/// wait for more room.
[[nodiscard]] inline std::optional<std::size_t> segment_payload(const FpduWriter& writer,
                                                                const Room& room,
                                                                std::size_t header_bytes,
                                                                std::size_t remaining) {
  const std::size_t limit = writer.max_ulpdu(room.out.size());
  const std::size_t wanted = std::min(remaining, room.max_ulpdu - header_bytes);
  if (wanted + header_bytes <= limit) return wanted;
  if (!room.fresh || limit <= header_bytes) return std::nullopt;
  return limit - header_bytes;
}

/// True when a ULPDU of this size fits as a whole.
[[nodiscard]] inline bool fits(const FpduWriter& writer, const Room& room, std::size_t ulpdu) {
  return ulpdu <= writer.max_ulpdu(room.out.size());
}

}  // namespace airdma::iwarp
