// SPDX-License-Identifier: MIT
// Reads a capture file and puts its TCP connections back together, or lists its UDP datagrams.
// Classic pcap in either byte order (micro- or nanoseconds) and pcapng; Ethernet with VLAN tags,
// Linux cooked (SLL), raw IP; IPv4 and IPv6. Retransmitted, overlapping and reordered segments are
// put right. For tests: it holds the whole file in memory.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace airdma::interop {

using ByteVector = std::vector<std::byte>;

/// One link-layer frame of a capture file.
struct Frame {
  std::uint32_t link_type = 1;       // LINKTYPE_*: 1 Ethernet, 101 raw IP, 113 Linux cooked
  std::uint64_t time_ns = 0;         // since the epoch
  std::uint32_t original_bytes = 0;  // before the capture's snap length
  ByteVector bytes;
};

/// The frames of a file in file order, or what is wrong with it.
[[nodiscard]] std::expected<std::vector<Frame>, std::string> read_frames(Bytes file);
[[nodiscard]] std::expected<std::vector<Frame>, std::string> read_frames(const std::string& path);

/// Who speaks: the client is the end that sent the SYN, or the first sender where no SYN was
/// captured.
enum class Direction : std::uint8_t { kFromClient, kFromServer };

struct Endpoint {
  ByteVector address;  // 4 or 16 bytes
  std::uint16_t port = 0;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// A TCP segment that brought something new, in the order that its receiver could use it: bytes
/// that arrived early appear when the gap before them closes.
struct Segment {
  Direction direction = Direction::kFromClient;
  std::uint64_t time_ns = 0;
  std::size_t frame = 0;  // index among read_frames()
  ByteVector bytes;       // new bytes only
  bool syn = false;
  bool fin = false;
  bool rst = false;
};

struct Connection {
  Endpoint client;
  Endpoint server;
  std::vector<Segment> segments;
  ByteVector client_stream;  // all bytes the client sent, in order
  ByteVector server_stream;
  std::size_t retransmissions = 0;  // segments that brought only bytes already seen
  std::size_t lost_bytes = 0;       // captured after a gap that never closed
};

/// The TCP connections among the frames, in order of their first segment. A new SYN on the same
/// ports begins another connection. Frames that are no TCP, or damaged, are passed over.
[[nodiscard]] std::vector<Connection> tcp_connections(const std::vector<Frame>& frames);

/// A UDP datagram, whole: fragments are passed over. Checksums are not looked at.
struct Datagram {
  Endpoint source;
  Endpoint destination;
  std::uint64_t time_ns = 0;
  std::size_t frame = 0;             // index among read_frames()
  std::uint8_t traffic_class = 0;    // IPv4's type of service
  std::uint8_t hop_limit = 0;        // IPv4's time to live
  std::uint16_t identification = 0;  // IPv4's
  bool dont_fragment = false;        // IPv4's
  ByteVector bytes;
};

/// The UDP datagrams among the frames, in file order.
[[nodiscard]] std::vector<Datagram> udp_datagrams(const std::vector<Frame>& frames);

/// Both steps for one file.
[[nodiscard]] std::expected<std::vector<Connection>, std::string> read_connections(
    const std::string& path);

}  // namespace airdma::interop
