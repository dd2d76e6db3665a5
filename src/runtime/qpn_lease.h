// SPDX-License-Identifier: MIT
// Queue pair numbers of one host, shared out among its processes without a daemon: whoever listens
// at the abstract unix socket "airdma/qpn/<block>" owns the 4096 numbers that begin with <block>,
// until it closes the socket or ends, however it ends. Packets between processes of the host go to
// that socket.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "io/local_socket.h"

namespace airdma::runtime {

/// Not thread-safe.
class QpnLease {
 public:
  static constexpr std::uint32_t kNumberBits = 12;
  static constexpr std::uint32_t kNumbers = 1u << kNumberBits;
  // The first block has the management queue pairs, 0 and 1, and the last one the number that
  // stands for a multicast group (IBTA vol. 1, 9.2.3): nobody gets them.
  static constexpr std::uint32_t kFirstBlock = 1;
  static constexpr std::uint32_t kLastBlock = (1u << (24 - kNumberBits)) - 2;

  static constexpr const char* kNamePrefix = "airdma/qpn/";

  static std::uint32_t block_of(Qpn qpn) { return qpn.value() >> kNumberBits; }
  static std::string name_of(std::uint32_t block);

  /// A block that nobody has. Errors: EMFILE, ENOMEM; EADDRNOTAVAIL when there is none.
  static Result<std::unique_ptr<QpnLease>> take();

  [[nodiscard]] std::uint32_t block() const { return block_; }
  /// What holds the block: the lease lasts as long as the listener.
  io::LocalListener take_listener() { return std::move(listener_); }
  /// A number that has rested for longest; nothing when all are in use.
  std::optional<Qpn> allocate();
  void release(Qpn qpn);

 private:
  QpnLease(std::uint32_t block, io::LocalListener listener);

  const std::uint32_t block_;
  io::LocalListener listener_;
  std::deque<std::uint16_t> free_;
};

}  // namespace airdma::runtime
