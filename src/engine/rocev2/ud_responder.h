// SPDX-License-Identifier: MIT
// Receive side of datagrams (IBTA vol. 1, 9.8.3): each fills one receive, behind the 40 bytes of
// its global route header, which RoCEv2 makes of the IP header (A17.4.5.1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/rocev2/program_memory.h"
#include "engine/rocev2/shared.h"
#include "engine/rocev2/violation.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

inline constexpr std::size_t kGrhBytes = 40;

/// What a receive buffer begins with: an IPv6 header, or 20 bytes of zeros and an IPv4 header.
/// `udp_bytes`: the UDP header and all behind it.
[[nodiscard]] std::array<std::byte, kGrhBytes> make_grh(const PacketOrigin& origin,
                                                        std::size_t udp_bytes);

class UdResponder {
 public:
  UdResponder(Shared& shared, model::ReceiveQueue& queue);

  void on_datagram(const wire::RocePacket& packet, const PacketOrigin& origin);
  /// Set once: the queue pair must go to ERR with it.
  [[nodiscard]] std::optional<Violation> failure() const { return failure_; }
  void flush(model::WcStatus first = model::WcStatus::kFlushError);
  void reset();
  void release() { scatter_.release(); }

 private:
  [[nodiscard]] bool have_receive() {
    return !queue_.empty() || (shared_.config.shared_receives != nullptr &&
                               shared_.config.shared_receives->take(queue_));
  }

  Shared& shared_;
  model::ReceiveQueue& queue_;
  PdId receive_pd_;
  Scatter scatter_;
  std::optional<Violation> failure_;
};

}  // namespace airdma::rocev2
