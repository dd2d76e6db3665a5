// SPDX-License-Identifier: MIT
#include "runtime/local_groups.h"

#include <utility>

namespace airdma::runtime {
namespace {

constexpr Duration kKeep = std::chrono::milliseconds(1);
// Limit: a program that sends to ever new groups would fill the memory with them.
constexpr std::size_t kMostKnown = 64;

std::string prefix_of(const model::Gid& group) { return "airdma/mcg/" + hex_of(group) + "/"; }

}  // namespace

Status LocalGroups::join(const model::Gid& group, std::uint32_t block) {
  auto name = io::LocalListener::open(prefix_of(group) + std::to_string(block));
  if (!name) return std::unexpected(name.error());
  std::lock_guard lock(mutex_);
  joined_.insert_or_assign(group, std::move(*name));
  known_.erase(group);
  return {};
}

void LocalGroups::leave(const model::Gid& group) {
  std::lock_guard lock(mutex_);
  joined_.erase(group);
  known_.erase(group);
}

std::vector<std::uint32_t> LocalGroups::members(const model::Gid& group) {
  std::lock_guard lock(mutex_);
  if (known_.size() > kMostKnown) known_.clear();
  return known_[group].look(prefix_of(group), kKeep);
}

}  // namespace airdma::runtime
