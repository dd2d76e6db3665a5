// SPDX-License-Identifier: MIT
// The IP packets in the frames of a capture, and the UDP datagrams in those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "tests/interop/capture.h"

namespace airdma::interop {

struct IpPacket {
  ByteVector source;  // 4 or 16 bytes
  ByteVector destination;
  std::uint8_t traffic_class = 0;  // IPv4's type of service
  std::uint8_t hop_limit = 0;      // IPv4's time to live
  std::uint16_t identification = 0;
  bool dont_fragment = false;
  Bytes payload;  // within the frame
};

/// The packet in a frame; nothing when there is none, it is a fragment, or of another protocol.
[[nodiscard]] std::optional<IpPacket> parse_ip(const Frame& frame, unsigned protocol);

/// Big-endian integers of a packet, which must be long enough.
[[nodiscard]] std::uint32_t big_endian(Bytes bytes, std::size_t at, std::size_t n);
[[nodiscard]] inline std::uint16_t u16(Bytes bytes, std::size_t at) {
  return static_cast<std::uint16_t>(big_endian(bytes, at, 2));
}

}  // namespace airdma::interop
