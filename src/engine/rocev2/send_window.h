// SPDX-License-Identifier: MIT
// How many packets a requester may have on their way. UDP has no flow control: what exceeds the
// receiver's socket buffer is lost, and with it, by go-back-N, all that follows. So the window
// starts well inside of a buffer, grows while acknowledgements come, and shrinks with each loss and
// each congestion notification (IBTA A17.9).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace airdma::rocev2 {

class SendWindow {
 public:
  void reset(std::uint32_t mtu, std::uint32_t most_bytes) {
    // What a packet costs a socket buffer is more than its payload.
    constexpr std::uint32_t kOverhead = 512;
    const std::uint32_t cost = mtu + kOverhead;
    most_ = std::clamp(most_bytes / cost, kLeast, kMostPackets);
    packets_ = std::min(most_, kFirstBytes / cost);
    credit_ = 0;
    last_cut_ = Time{};
  }

  [[nodiscard]] std::uint32_t packets() const { return packets_; }
  /// Packets after which an acknowledgement is asked for, so that the window keeps moving.
  [[nodiscard]] std::uint32_t ack_interval() const { return std::max(packets_ / 4, 1u); }

  /// So many packets were acknowledged. `limited`: the window was what held others back; one that
  /// is not used says nothing about what could be.
  void on_progress(std::uint64_t packets, bool limited) {
    if (!limited) return;
    credit_ += std::min<std::uint64_t>(packets, most_);
    packets_ = std::min(most_, packets_ + static_cast<std::uint32_t>(credit_ / 2));
    credit_ %= 2;
  }
  void on_loss() { packets_ = std::max(kLeast, packets_ - packets_ / 4); }
  void on_silence() { packets_ = kLeast; }
  /// A notification of congestion; false when it belongs to the one before.
  bool on_congestion(Time now) {
    if (now - last_cut_ < kCutInterval) return false;
    last_cut_ = now;
    packets_ = std::max(kLeast, packets_ / 2);
    return true;
  }

 private:
  static constexpr std::uint32_t kFirstBytes = 1u << 18;
  // Limit: packets of any size; a socket buffer is spent on small ones too.
  static constexpr std::uint32_t kMostPackets = 1024;
  static constexpr std::uint32_t kLeast = 8;
  static constexpr Duration kCutInterval = std::chrono::microseconds(50);

  std::uint32_t most_ = kLeast;
  std::uint32_t packets_ = kLeast;
  std::uint64_t credit_ = 0;
  Time last_cut_{};
};

}  // namespace airdma::rocev2
