// SPDX-License-Identifier: MIT
// Packets between processes of one host: many in one message of a unix socket. A header says how
// long each is and what their IP header would have said; then the packets follow, BTH to padding,
// without the ICRC, which protects against a network. Both ends are this library on one machine:
// numbers are in its byte order, and the version is one byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "engine/rocev2/attributes.h"

namespace airdma::runtime {

struct LocalMessageHeader {
  static constexpr std::uint32_t kMagic = 0x52494131;
  static constexpr std::size_t kMaxPackets = 64;

  std::uint32_t magic = kMagic;
  std::uint16_t packets = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint64_t recorded_in = 0;  // the sender's trace_mark()
  std::uint32_t flow_label = 0;
  std::uint8_t strayed = 0;  // not 0: came by UDP, to a process that passed it on
  std::array<std::uint8_t, 16> source{};
  std::array<std::uint8_t, 16> destination{};
  std::array<std::uint16_t, kMaxPackets> lengths;  // the first `packets` are sent

  explicit LocalMessageHeader(const rocev2::PacketOrigin& origin, bool has_strayed = false);
  /// There is room.
  void add(std::size_t packet_bytes) {
    lengths[packets++] = static_cast<std::uint16_t>(packet_bytes);
  }
  /// What is sent of it.
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend struct LocalMessage;
  LocalMessageHeader() = default;
};

/// A message as it was received.
struct LocalMessage {
  rocev2::PacketOrigin origin;
  std::uint64_t recorded_in = 0;
  bool strayed = false;
  std::array<Bytes, LocalMessageHeader::kMaxPackets> packets;
  std::size_t count = 0;

  /// Nothing when it is no message of this version, or its lengths do not add up.
  static std::optional<LocalMessage> read(Bytes message);
};

}  // namespace airdma::runtime
