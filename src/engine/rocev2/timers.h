// SPDX-License-Identifier: MIT
// Times that InfiniBand writes as codes, and the estimate of the round trip.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace airdma::rocev2 {

/// RNR NAK timer field, five bits (IBTA vol. 1, table 45).
[[nodiscard]] constexpr Duration rnr_delay(std::uint8_t code) {
  // In units of 10 us.
  constexpr std::array<std::uint32_t, 32> kDelays{
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::chrono::microseconds(10) * kDelays[code & 31];
}

/// Transport timer (9.7.6.1.3): 4.096 us * 2^code, or up to four times that, as the standard lets
/// us choose; 0 is no timer. A peer in software is off its processor for longer than short timers
/// say, and what the timer brings is worse than a delay: the end. So short ones are drawn out, to
/// half a second at most. Limit: codes below 11 wait as long as 11, 34 ms.
[[nodiscard]] constexpr std::optional<Duration> ack_timeout(std::uint8_t code) {
  if (code == 0) return std::nullopt;
  constexpr std::uint8_t kLeast = 11;
  constexpr Duration kLongEnough = std::chrono::milliseconds(500);
  const Duration named =
      std::chrono::nanoseconds(4096) * (std::int64_t{1} << std::max<int>(code & 31, kLeast));
  return std::max(named, std::min(4 * named, kLongEnough));
}

/// Smoothed round trip time, as TCP computes it (RFC 6298).
class RoundTrip {
 public:
  void reset() { known_ = false; }
  void sample(Duration time) {
    if (!known_) {
      smoothed_ = time;
      deviation_ = time / 2;
      known_ = true;
      return;
    }
    const Duration error = time > smoothed_ ? time - smoothed_ : smoothed_ - time;
    deviation_ += (error - deviation_) / 4;
    smoothed_ += (time - smoothed_) / 8;
  }
  /// How long to wait for an answer before asking again, which costs little and says nothing about
  /// the peer.
  [[nodiscard]] Duration patience() const {
    if (!known_) return kUnknown;
    return std::clamp(smoothed_ + 4 * deviation_, kLeast, kMost);
  }
  /// No answer comes sooner than this.
  [[nodiscard]] Duration shortest() const { return known_ ? smoothed_ / 2 : kSoon; }

 private:
  static constexpr Duration kSoon = std::chrono::microseconds(50);
  static constexpr Duration kUnknown = std::chrono::milliseconds(20);
  static constexpr Duration kLeast = std::chrono::milliseconds(2);
  static constexpr Duration kMost = std::chrono::milliseconds(500);

  bool known_ = false;
  Duration smoothed_{};
  Duration deviation_{};
};

}  // namespace airdma::rocev2
