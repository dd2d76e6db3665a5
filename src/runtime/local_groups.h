// SPDX-License-Identifier: MIT
// Multicast groups of IPv6 on the loopback interface. The kernel has no route to them there, so
// packets for one go to its members by the sockets between the processes of this host. Who they are
// is said by the abstract names that they hold:
//   airdma/mcg/<group, in hex>/<block of queue pair numbers>
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/local_socket.h"
#include "model/address_vector.h"
#include "runtime/known_blocks.h"

namespace airdma::runtime {

/// Thread-safe.
class LocalGroups {
 public:
  /// This process, whose numbers are of that block, has a member. Errors: EADDRINUSE, EMFILE.
  Status join(const model::Gid& group, std::uint32_t block);
  /// It has none any more.
  void leave(const model::Gid& group);
  /// The blocks of all processes that have members, this one's too. May be a millisecond old.
  std::vector<std::uint32_t> members(const model::Gid& group);

 private:
  std::mutex mutex_;
  std::map<model::Gid, io::LocalListener> joined_;
  std::map<model::Gid, KnownBlocks> known_;  // of groups that this process sends to
};

}  // namespace airdma::runtime
