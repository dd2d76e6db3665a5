// SPDX-License-Identifier: MIT
// Where the packets of a RoCEv2 queue pair or address handle go: what ibv_ah_attr says once the GID
// index has been looked up. RoCEv2 (InfiniBand Architecture annex A17) has no LIDs: a GID is an IP
// address, and the other fields become fields of the IP header.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace airdma::model {

/// A RoCEv2 GID in network byte order: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d.
struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  static constexpr Gid from_v4(const std::array<std::uint8_t, 4>& address) {
    Gid gid;
    gid.bytes[10] = gid.bytes[11] = 0xff;
    std::copy(address.begin(), address.end(), gid.bytes.begin() + 12);
    return gid;
  }

  [[nodiscard]] constexpr bool is_v4() const {
    return std::all_of(bytes.begin(), bytes.begin() + 10, [](auto byte) { return byte == 0; }) &&
           bytes[10] == 0xff && bytes[11] == 0xff;
  }
  /// The IPv4 address; only when is_v4().
  [[nodiscard]] constexpr std::array<std::uint8_t, 4> v4() const {
    return {bytes[12], bytes[13], bytes[14], bytes[15]};
  }
  /// Of many receivers: 224.0.0.0/4 or ff00::/8.
  [[nodiscard]] constexpr bool is_multicast() const {
    return is_v4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff;
  }
  [[nodiscard]] constexpr bool is_link_local() const {
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
  }
  friend constexpr auto operator<=>(const Gid&, const Gid&) = default;
};

struct AddressVector {
  Gid source;                         // an address of this host
  Gid destination;                    // of the same family
  std::uint32_t interface_index = 0;  // the device's; decides the scope of link-local addresses
  std::uint32_t flow_label = 0;       // 20 bits, IPv6 only
  std::uint8_t traffic_class = 0;     // the whole IP byte: DSCP and the two ECN bits
  std::uint8_t hop_limit = 64;        // the IP time to live; 0 is sent as the system's default
  std::uint8_t service_level = 0;     // 3 bits; no field on Ethernet without a VLAN
  friend constexpr bool operator==(const AddressVector&, const AddressVector&) = default;
};

}  // namespace airdma::model
