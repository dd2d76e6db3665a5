// SPDX-License-Identifier: MIT
#include "runtime/local_groups.h"

#include <charconv>
#include <cstdio>
#include <utility>

#include "runtime/progress.h"

namespace airdma::runtime {
namespace {

// Reading the names takes tens of microseconds, on a host with many sockets more.
constexpr Duration kKeep = std::chrono::milliseconds(1);
// Limit: a program that sends to ever new groups would fill the memory with them.
constexpr std::size_t kMostKnown = 64;

std::string prefix_of(const model::Gid& group) {
  std::string name = "airdma/mcg/";
  for (const std::uint8_t byte : group.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    name += digits;
  }
  return name + "/";
}

std::vector<std::uint32_t> read_members(const model::Gid& group) {
  std::vector<std::uint32_t> blocks;
  const std::string prefix = prefix_of(group);
  for (const std::string& name : io::local_names(prefix)) {
    std::uint32_t block = 0;
    const char* const end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + prefix.size(), end, block);
    if (result.ec == std::errc{} && result.ptr == end) blocks.push_back(block);
  }
  return blocks;
}

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
  Known& known = known_[group];
  const Time now = Progress::now();
  if (known.read_at == Time{} || now - known.read_at > kKeep) {
    known.blocks = read_members(group);
    known.read_at = now;
  }
  return known.blocks;
}

}  // namespace airdma::runtime
