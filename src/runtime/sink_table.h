// SPDX-License-Identifier: MIT
// Who gets the packets of which queue pair number of this process, and who is in which multicast
// group. Thread-safe; a lookup takes one short lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "model/address_vector.h"
#include "runtime/qpn_lease.h"

namespace airdma::runtime {

class PacketSink;

class SinkTable {
 public:
  /// Room for the numbers of a block.
  void add_block(std::uint32_t block);
  [[nodiscard]] bool owns(std::uint32_t block);
  std::vector<std::uint32_t> blocks();

  void set(Qpn qpn, std::weak_ptr<PacketSink> sink);
  void clear(Qpn qpn) { set(qpn, {}); }
  /// Null when nobody is registered.
  std::shared_ptr<PacketSink> find(Qpn qpn);

  /// A multicast group on one interface.
  using Group = std::pair<model::Gid, std::uint32_t>;
  /// Whether the group has a first member by it. EINVAL when it is a member.
  Result<bool> join(const Group& group, Qpn qpn);
  /// Whether the group has no member any more by it. EINVAL when it is no member.
  Result<bool> leave(const Group& group, Qpn qpn);
  std::vector<Qpn> members(const Group& group);

 private:
  struct Block {
    std::uint32_t block = 0;
    std::array<std::weak_ptr<PacketSink>, QpnLease::kNumbers> sinks;
  };
  Block* block_of(Qpn qpn);

  SpinLock lock_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::map<Group, std::vector<Qpn>> groups_;
};

}  // namespace airdma::runtime
