// SPDX-License-Identifier: MIT
// How airdma uses the eight bytes of an Immediate Data message (RFC 7306 6), which the RFC leaves
// to the ULP. The first four are the verbs' immediate, as the program gave it (network order). The
// last four say which verb it was:
//   0                      WRITE_WITH_IMM: consumes a receive, follows the RDMA Write it reports;
//   kSendImmediateMarker   SEND_WITH_IMM: consumes no receive, belongs to the Send that follows.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/be.h"
#include "wire/rdmap.h"

namespace airdma::iwarp {

/// "simm".
inline constexpr std::uint32_t kSendImmediateMarker = 0x73696d6d;

/// `immediate` as the work request holds it: its bytes go on the wire as they lie in memory.
[[nodiscard]] inline wire::Immediate make_immediate(std::uint32_t immediate, std::uint32_t marker) {
  be32 value;
  static_assert(sizeof value == sizeof immediate);
  std::memcpy(static_cast<void*>(&value), &immediate, sizeof value);
  return {.data = std::uint64_t{value.get()} << 32 | marker};
}

/// The program's immediate out of the eight bytes.
[[nodiscard]] inline std::uint32_t immediate_value(const wire::Immediate& immediate) {
  const be32 value(static_cast<std::uint32_t>(immediate.data >> 32));
  std::uint32_t in_network_order;
  std::memcpy(&in_network_order, &value, sizeof in_network_order);
  return in_network_order;
}

[[nodiscard]] inline bool belongs_to_send(const wire::Immediate& immediate) {
  return static_cast<std::uint32_t>(immediate.data) == kSendImmediateMarker;
}

}  // namespace airdma::iwarp
