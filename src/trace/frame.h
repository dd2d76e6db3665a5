// SPDX-License-Identifier: MIT
// Ethernet, IP and TCP or UDP headers around bytes that the kernel carried for us. It does not show
// its own headers to an unprivileged process, so a trace makes equivalent ones: the addresses,
// ports, order and bytes are real; the cut of a stream into segments is the trace's.
// RFC 791, RFC 8200, RFC 9293, RFC 768, RFC 1071 (checksums).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

struct sockaddr_storage;

namespace airdma::trace {

/// An IPv4 or IPv6 address and a port. IPv4-mapped IPv6 addresses count as IPv4, which is what
/// such a socket puts on the wire.
struct Host {
  bool is_v6 = false;
  std::array<std::byte, 16> address{};  // network order; IPv4 uses the first four
  std::uint16_t port = 0;

  [[nodiscard]] static Host from(const sockaddr_storage& address);
};

enum TcpFlag : std::uint8_t { kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16 };

struct TcpSegment {
  Host source;
  Host destination;
  std::uint32_t sequence = 0;
  std::uint32_t acknowledgement = 0;
  std::uint8_t flags = 0;
  Bytes payload;
};

struct UdpDatagram {
  Host source;
  Host destination;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // IPv6
  Bytes payload;
};

/// Ethernet (14) + IPv6 (40) + TCP (20) + options of a SYN (8).
constexpr std::size_t kMaxHeaderBytes = 82;

struct FrameHeader {
  std::array<std::byte, kMaxHeaderBytes> storage{};
  std::size_t length = 0;
  [[nodiscard]] Bytes bytes() const { return Bytes(storage).first(length); }
};

/// The most payload that one IP packet to `host` can hold next to an option-free TCP header:
/// IPv4 counts its own header in the 16-bit length, IPv6 does not.
[[nodiscard]] constexpr std::size_t max_payload_bytes(bool is_v6) {
  return is_v6 ? 65535 - 20 : 65535 - 20 - 20;
}

/// All headers in front of the payload, checksums filled in. An IPv4 packet has the identification
/// 0 and may not be fragmented.
[[nodiscard]] FrameHeader make_frame_header(const TcpSegment& segment);
[[nodiscard]] FrameHeader make_frame_header(const UdpDatagram& datagram);

/// RFC 1071: the ones' complement sum of `data`, added to `initial`; not yet inverted. Every part
/// of a sum but the last must be of even length.
[[nodiscard]] std::uint32_t checksum_add(Bytes data, std::uint32_t initial);

}  // namespace airdma::trace
