// SPDX-License-Identifier: MIT
// Packet sequence numbers of InfiniBand: 24 bits on a circle. Of two numbers neither is the
// smaller one, so there is no operator<; what has meaning is how far one lies ahead of the other
// (IBTA vol. 1, 9.7.1).
#pragma once

#include <cstdint>

namespace airdma {

/// A number modulo 2^24. The tag keeps PSNs and MSNs apart.
template <class Tag>
class Circular24 {
 public:
  static constexpr std::uint32_t kBits = 24;
  static constexpr std::uint32_t kMask = (1u << kBits) - 1;

  constexpr Circular24() = default;
  /// Bits above the 24th are dropped.
  constexpr explicit Circular24(std::uint32_t value) : value_(value & kMask) {}

  [[nodiscard]] constexpr std::uint32_t value() const { return value_; }

  /// The number `count` steps ahead, and behind.
  [[nodiscard]] constexpr Circular24 next(std::uint32_t count = 1) const {
    return Circular24(value_ + count);
  }
  [[nodiscard]] constexpr Circular24 previous(std::uint32_t count = 1) const {
    return Circular24(value_ - count);
  }

  /// Steps from here to `other`, the short way round: positive when `other` lies ahead, in
  /// [-2^23, 2^23). `a.next(a.distance_to(b)) == b`.
  [[nodiscard]] constexpr std::int32_t distance_to(Circular24 other) const {
    const std::uint32_t ahead = (other.value_ - value_) << (32 - kBits);
    return static_cast<std::int32_t>(ahead) >> (32 - kBits);
  }

  friend constexpr bool operator==(Circular24, Circular24) = default;

 private:
  std::uint32_t value_ = 0;
};

/// Packet sequence number.
using Psn = Circular24<struct PsnTag>;
/// Message sequence number of a responder's acknowledgements (IBTA vol. 1, 9.7.7.1). The one of
/// DDP is another: wire/ddp.h.
using AckMsn = Circular24<struct AckMsnTag>;

}  // namespace airdma
