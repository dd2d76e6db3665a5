// SPDX-License-Identifier: MIT
// The invariant CRC of RoCEv2 (IBTA A17.3.2; vol. 1, 7.8.1): CRC32 over eight bytes of ones, the IP
// header, the UDP header, BTH, extended headers, payload and pad, with ones in place of all that a
// router may change. So a sender computes it over headers that it does not make itself, and a
// receiver over headers that it does not see; what of them has to be known, or guessed, is here.
//
//     std::uint32_t crc = flow.start(bytes, identification);    // IP and UDP headers
//     crc = icrc_headers(crc, headers);                         // BTH and extended headers
//     crc = crc32_extend(crc, piece);                           // payload, in any pieces
//     crc = icrc_pad(crc, pad_bytes);
//     store_icrc(field, crc);
//
// A receiver whose packet lies in one piece gives icrc_headers() all of it, and one that moves the
// payload uses crc32_copy(). Not here: IPv4 options and IPv6 extension headers, which no RoCEv2
// sender has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/bth.h"
#include "wire/crc32.h"

namespace airdma::wire {

inline constexpr std::size_t kIcrcBytes = 4;

/// An IPv6 address in network order, or an IPv4 address as ::ffff:a.b.c.d.
using IpAddress = std::array<std::byte, 16>;
[[nodiscard]] bool is_mapped_v4(const IpAddress& address);

/// What a receiver of an IPv4 packet cannot see, and the ICRC covers.
struct Ipv4Hidden {
  std::uint16_t identification = 0;
  bool dont_fragment = true;
  friend bool operator==(const Ipv4Hidden&, const Ipv4Hidden&) = default;
};

/// The part of the ICRC that all packets between two UDP ports share. Small, and cheap to copy.
class IcrcFlow {
 public:
  IcrcFlow(const IpAddress& source, const IpAddress& destination, std::uint16_t source_port,
           std::uint16_t destination_port = kRoceUdpPort);

  [[nodiscard]] bool is_v4() const { return is_v4_; }

  /// CRC of what lies before the BTH of a packet whose UDP payload has that many bytes, BTH and
  /// ICRC included. An IPv4 packet has the "do not fragment" flag and this identification: 0 from
  /// a socket that is not connected and never fragments, i in segment i of a UDP_SEGMENT send.
  [[nodiscard]] std::uint32_t start(std::size_t udp_payload_bytes,
                                    std::uint16_t identification = 0) const;

  /// Whether the field of a received packet can be right: `computed` is the CRC with any
  /// identification, best the most likely one. Over IPv6 the two must be equal. Over IPv4 it is
  /// enough that some identification, with or without "do not fragment", makes them equal: CRCs are
  /// linear, so the difference tells which, and one random difference in 2^15 names one.
  [[nodiscard]] bool accepts(std::uint32_t received, std::uint32_t computed,
                             std::size_t udp_payload_bytes) const;

 private:
  std::uint32_t fixed_;  // lengths and identification taken for zero
  bool is_v4_;
};

/// The identification and flag of an IPv4 packet by its ICRC: nothing when no such packet has that
/// ICRC, or when it is longer than RoCEv2's largest. `computed` as in IcrcFlow::accepts().
[[nodiscard]] std::optional<Ipv4Hidden> find_hidden_v4(std::uint32_t received,
                                                       std::uint32_t computed,
                                                       std::size_t udp_payload_bytes);

/// Continues over `bytes`, which begin with a whole BTH and go on as far as the caller likes. The
/// byte of the BTH that routers mark congestion in counts as ones.
[[nodiscard]] std::uint32_t icrc_headers(std::uint32_t crc, Bytes bytes);

/// Continues over that many zeros, 0..3.
[[nodiscard]] std::uint32_t icrc_pad(std::uint32_t crc, std::size_t pad_bytes);

/// The field's four bytes, the least significant first.
[[nodiscard]] std::uint32_t load_icrc(const std::byte* field);
void store_icrc(std::byte* field, std::uint32_t crc);

}  // namespace airdma::wire
