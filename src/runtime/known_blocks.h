// SPDX-License-Identifier: MIT
// Blocks of queue pair numbers, and with them processes of this host, by the abstract names that
// these hold: a prefix and the block in decimal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "model/address_vector.h"

namespace airdma::runtime {

/// How an address stands in such names: 32 digits, in hex.
std::string hex_of(const model::Gid& address);

/// Not thread-safe.
class KnownBlocks {
 public:
  /// Not older than that: reading the names takes tens of microseconds, and more on a host with
  /// many sockets.
  const std::vector<std::uint32_t>& look(const std::string& prefix, Duration keep);

 private:
  Time read_at_{};
  std::vector<std::uint32_t> blocks_;
};

}  // namespace airdma::runtime
