// SPDX-License-Identifier: MIT
// Records RoCEv2 packets, BTH to pad, as frames in a pcapng file: with the ICRC, UDP, IP and
// Ethernet headers that they have, or would have on a network. Packets that a process of this host
// gets without a network are so recorded too.
//
// AIRDMA_TRACE=FILE turns tracing on. A packet between two processes that record in the same file
// would be there twice: the sender tells the receiver which file it is in, by mark().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/bytes.h"
#include "trace/pcapng.h"
#include "wire/icrc.h"

namespace airdma::trace {

/// How packets go: addresses, and what the IP header says besides.
struct RocePath {
  wire::IpAddress source{};  // IPv4 as ::ffff:a.b.c.d
  wire::IpAddress destination{};
  std::uint16_t source_port = 0;  // 0: the packets go without UDP; shown as 49152
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
};

/// Thread-safe.
class RoceTap {
 public:
  /// Unix time in nanoseconds.
  using Clock = std::function<std::uint64_t()>;

  RoceTap(PcapngFile& file, Clock clock);

  [[nodiscard]] std::uint64_t now() const { return clock_(); }

  /// A packet: its headers (all of it, where it lies in one piece), payload, pad. One that is sent
  /// is recorded when it has been, with the time before: the answer is not earlier. Payload in
  /// memory of the program may be gone: then there is no frame; nor is there one of a packet longer
  /// than any is.
  void record(std::uint64_t unix_time_ns, FrameDirection direction, const RocePath& path,
              Bytes headers, std::span<const Bytes> payload = {}, std::size_t pad_bytes = 0);

  /// Says which file this is, on this host: not 0.
  [[nodiscard]] std::uint64_t mark() const { return mark_; }

 private:
  PcapngFile& file_;
  Clock clock_;
  std::uint64_t mark_;
};

/// The tap of this process; null when AIRDMA_TRACE is unset or its file cannot be used (logged
/// once). Cheap when unset. Thread-safe.
[[nodiscard]] RoceTap* process_roce_tap();

}  // namespace airdma::trace
