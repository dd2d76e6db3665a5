// SPDX-License-Identifier: MIT
#include "runtime/sink_table.h"

#include <algorithm>
#include <cerrno>
#include <mutex>

namespace airdma::runtime {

void SinkTable::add_block(std::uint32_t block) {
  auto fresh = std::make_unique<Block>();
  fresh->block = block;
  std::lock_guard lock(lock_);
  blocks_.push_back(std::move(fresh));
}

bool SinkTable::owns(std::uint32_t block) {
  std::lock_guard lock(lock_);
  return std::ranges::any_of(blocks_, [block](const auto& one) { return one->block == block; });
}

std::vector<std::uint32_t> SinkTable::blocks() {
  std::vector<std::uint32_t> result;
  std::lock_guard lock(lock_);
  for (const auto& one : blocks_) result.push_back(one->block);
  return result;
}

// With the lock.
SinkTable::Block* SinkTable::block_of(Qpn qpn) {
  for (const auto& one : blocks_) {
    if (one->block == QpnLease::block_of(qpn)) return one.get();
  }
  return nullptr;
}

void SinkTable::set(Qpn qpn, std::weak_ptr<PacketSink> sink) {
  std::lock_guard lock(lock_);
  Block* block = block_of(qpn);
  if (block != nullptr) block->sinks[qpn.value() % QpnLease::kNumbers].swap(sink);
}

std::shared_ptr<PacketSink> SinkTable::find(Qpn qpn) {
  std::lock_guard lock(lock_);
  Block* block = block_of(qpn);
  return block == nullptr ? nullptr : block->sinks[qpn.value() % QpnLease::kNumbers].lock();
}

Result<bool> SinkTable::join(const Group& group, Qpn qpn) {
  std::lock_guard lock(lock_);
  auto& members = groups_[group];
  if (std::ranges::find(members, qpn) != members.end()) return fail(EINVAL, "join");
  members.push_back(qpn);
  return members.size() == 1;
}

Result<bool> SinkTable::leave(const Group& group, Qpn qpn) {
  std::lock_guard lock(lock_);
  const auto found = groups_.find(group);
  if (found == groups_.end() || std::erase(found->second, qpn) == 0) return fail(EINVAL, "leave");
  if (!found->second.empty()) return false;
  groups_.erase(found);
  return true;
}

std::vector<Qpn> SinkTable::members(const Group& group) {
  std::lock_guard lock(lock_);
  const auto found = groups_.find(group);
  return found == groups_.end() ? std::vector<Qpn>{} : found->second;
}

}  // namespace airdma::runtime
