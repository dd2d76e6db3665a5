// SPDX-License-Identifier: MIT
// READs and atomics of the peer that are still to be answered, in the order of their PSNs, and the
// results of the latest atomics, for requests that come again (IBTA vol. 1, 9.7.4.5.1, 9.7.5.1.5).
// Both are as long as max_dest_rd_atomic says, so a peer cannot make them grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bounded_ring.h"
#include "engine/rocev2/shared.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

/// One answer, of `packets` packets from `sequence` on.
struct Response {
  std::uint64_t sequence = 0;
  std::uint32_t packets = 0;
  std::uint32_t done = 0;  // packets that were put into a batch
  bool atomic = false;
  bool repeated = false;       // it was answered before
  AckMsn msn{};                // after this request
  std::uint64_t original = 0;  // atomic: the value before
  PdId pd{};
  wire::RemoteRange range{};  // READ: of packet 0 on

  [[nodiscard]] std::uint64_t end() const { return sequence + packets; }
};

class Responses {
 public:
  void reset(std::size_t depth);
  void clear() { pending_.clear(); }

  [[nodiscard]] bool empty() const { return pending_.empty(); }
  /// The peer has as many outstanding as it may. Repetitions do not count: the peer may have what
  /// they bring.
  [[nodiscard]] bool full() { return fresh() >= depth_; }
  [[nodiscard]] Response& front() { return pending_.front(); }
  void pop() { pending_.pop(); }
  /// A new request, behind the others. Not when full.
  void push(const Response& response);
  /// A READ request that has come again. What is still to be sent of its answer anyway is not
  /// sent twice; what was sent is sent again.
  void repeat_read(const Response& response, std::uint32_t mtu);
  /// An atomic that has come again, to be answered with the MSN of now; false when its result is no
  /// longer known.
  [[nodiscard]] bool repeat_atomic(std::uint64_t sequence, AckMsn msn);

 private:
  // Limit: answers that can wait to be repeated. Requests beyond are not heard; they come again.
  static constexpr std::size_t kRepeats = 16;

  [[nodiscard]] std::size_t fresh();
  void insert(const Response& response);

  std::size_t depth_ = 0;
  BoundedRing<Response> pending_;
  BoundedRing<Response> atomics_;
};

}  // namespace airdma::rocev2
