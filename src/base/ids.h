// SPDX-License-Identifier: MIT
// Every identifier is a type of its own, so that a key cannot be passed for a number.
#pragma once

#include <compare>
#include <cstdint>

namespace airdma {

template <class Tag, class Rep = std::uint32_t>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_ = 0;
};

/// Queue pair number (24 bits used).
using Qpn = Id<struct QpnTag>;
/// Steering tag: lkey and rkey of a memory region are its STag.
using Stag = Id<struct StagTag>;
/// Protection domain.
using PdId = Id<struct PdIdTag>;
/// Queue key: what a datagram must name to reach a queue pair (IBTA vol. 1, 10.2.5).
using Qkey = Id<struct QkeyTag>;
/// Partition key: bit 15 is full membership (IBTA vol. 1, 10.9).
using Pkey = Id<struct PkeyTag, std::uint16_t>;
/// Number of an XRC shared receive queue (24 bits used).
using Srqn = Id<struct SrqnTag>;

}  // namespace airdma
