// SPDX-License-Identifier: MIT
#include "tests/interop/replay/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace airdma::interop {
namespace {

using model::AccessMask;
using wire::TerminateCause;

constexpr AccessMask kEvery =
    model::kAccessLocalWrite | model::kAccessRemoteWrite | model::kAccessRemoteRead;
// Limit: one key whose accesses lie further apart than this is taken for several registrations.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr std::byte kUntouched{0xa5};

struct Access {
  Stag key;
  std::uint64_t addr = 0;
  std::uint64_t bytes = 0;
};

/// The memory that an offending segment wanted.
std::optional<Access> wanted_by(const Fpdu& fpdu) {
  if (fpdu.header.tagged) {
    return Access{fpdu.header.stag, fpdu.header.tagged_offset, fpdu.payload().size()};
  }
  if (const auto request = wire::parse_read_request(fpdu.payload())) {
    return Access{request->source_stag, request->source_offset, request->read_bytes};
  }
  return std::nullopt;
}

bool about_bounds(const TerminateCause& cause) {
  return cause == wire::cause::kBounds || cause == wire::cause::kTaggedBounds;
}
bool about_key(const TerminateCause& cause) {
  return cause == wire::cause::kInvalidStag || cause == wire::cause::kTaggedInvalidStag;
}
bool about_stream(const TerminateCause& cause) {
  return cause == wire::cause::kStagOfOtherStream || cause == wire::cause::kTaggedStagOfOtherStream;
}

}  // namespace

Memory::Block* Memory::find(Stag key) {
  const auto found = blocks_.find(key);
  return found == blocks_.end() ? nullptr : found->second.get();
}

void Memory::cover(Stag key, std::uint64_t addr, std::uint64_t bytes, AccessMask access) {
  if (bytes == 0) return;
  auto& block = blocks_[key];
  if (!block) {
    block = std::make_unique<Block>();
    block->base = addr;
  }
  block->base = std::min(block->base, addr);
  block->end = std::max(block->end, addr + bytes);
  block->access |= access;
}

void Memory::cover_script(const Script& script) {
  const auto& fpdus = script.peer->fpdus.fpdus;
  const std::size_t offender =
      script.offence && script.offence->fpdu ? *script.offence->fpdu : fpdus.size();
  for (std::size_t i = 0; i < offender; ++i) {
    if (!fpdus[i].valid) continue;
    const auto access = wanted_by(fpdus[i]);
    if (!access) continue;
    switch (static_cast<wire::Opcode>(fpdus[i].header.opcode)) {
      case wire::Opcode::kWrite:
        cover(access->key, access->addr, access->bytes, model::kAccessRemoteWrite);
        break;
      case wire::Opcode::kReadRequest:
        cover(access->key, access->addr, access->bytes, model::kAccessRemoteRead);
        break;
      default:  // a READ response goes where this side's own request says
        break;
    }
  }
  for (const Post& post : script.posts) {
    if (post.opcode != model::SendOpcode::kRead) continue;
    cover(post.read.sink_stag, post.read.sink_offset, post.read.read_bytes,
          model::kAccessLocalWrite);
  }
}

bool Memory::publish(Stag key, Block& block) {
  block.bytes.assign(block.end - block.base, kUntouched);
  block.shadow = block.bytes;
  block.region.start = block.bytes.data();
  block.region.base = block.base;
  block.region.length = block.bytes.size();
  block.region.pd = kReplayPd;
  block.region.access = block.access;
  return table_.publish(key, block.region);
}

std::string Memory::build(const Script& script) {
  cover_script(script);
  for (auto& [key, block] : blocks_) {
    if (block->end < block->base || block->end - block->base > kMostBytes) {
      return "accesses under one STag lie more than 1 GiB apart";
    }
    if (!publish(key, *block)) return "STag 0 or ~0, which airdma gives to no memory";
  }
  return "";
}

Memory::Place Memory::next_place() {
  while (blocks_.contains(Stag{next_key_})) ++next_key_;
  // Far from zero and from where programs have their memory, so that a mixed-up address shows.
  const Place place{Stag{next_key_}, std::uint64_t{next_key_} << 24};
  ++next_key_;
  return place;
}

Memory::Place Memory::place(Bytes content) {
  const Place at = next_place();
  auto block = std::make_unique<Block>();
  block->base = at.addr;
  block->end = at.addr + content.size();
  block->access = kEvery;
  if (!publish(at.key, *block)) std::abort();
  blocks_[at.key] = std::move(block);
  store(at.key, at.addr, content);
  return at;
}

Memory::Place Memory::publish(MutableBytes bytes, model::Region& region) {
  const Place at = next_place();
  region.start = bytes.data();
  region.base = at.addr;
  region.length = bytes.size();
  region.pd = kReplayPd;
  region.access = kEvery;
  if (!table_.publish(at.key, region)) std::abort();
  return at;
}

void Memory::expect(Stag key, std::uint64_t addr, Bytes bytes) {
  Block* block = find(key);
  if (block == nullptr || !block->holds(addr, bytes.size())) return;
  std::ranges::copy(bytes, block->shadow.begin() + static_cast<std::ptrdiff_t>(addr - block->base));
}

void Memory::store(Stag key, std::uint64_t addr, Bytes bytes) {
  expect(key, addr, bytes);
  Block* block = find(key);
  if (block == nullptr || !block->holds(addr, bytes.size())) return;
  std::ranges::copy(bytes, block->bytes.begin() + static_cast<std::ptrdiff_t>(addr - block->base));
}

std::optional<std::string> Memory::difference(Stag key, const Block& block, std::size_t at,
                                              std::size_t bytes) {
  const Bytes ought = Bytes(block.shadow).subspan(at, bytes);
  const Bytes is = Bytes(block.bytes).subspan(at, bytes);
  if (std::ranges::equal(ought, is)) return std::nullopt;
  const auto wrong = static_cast<std::size_t>(std::ranges::mismatch(ought, is).in1 - ought.begin());
  char text[128];
  (void)std::snprintf(text, sizeof text, "memory of STag 0x%x at 0x%llx: %02x expected, is %02x",
                      key.value(), static_cast<unsigned long long>(block.base + at + wrong),
                      std::to_integer<unsigned>(ought[wrong]),
                      std::to_integer<unsigned>(is[wrong]));
  return text;
}

std::optional<std::string> Memory::difference(Stag key, std::uint64_t addr,
                                              std::uint64_t bytes) const {
  const auto found = blocks_.find(key);
  if (found == blocks_.end() || !found->second->holds(addr, bytes)) return std::nullopt;
  return difference(key, *found->second, addr - found->second->base, bytes);
}

std::optional<std::string> Memory::difference() const {
  for (const auto& [key, block] : blocks_) {
    if (auto wrong = difference(key, *block, 0, block->bytes.size())) return wrong;
  }
  return std::nullopt;
}

void Memory::offend(const Script& script) {
  const Fpdu* fpdu = script.offender();
  if (fpdu == nullptr || !fpdu->valid) return;
  const auto access = wanted_by(*fpdu);
  if (!access || access->bytes == 0) return;
  const TerminateCause cause = script.offence->terminate.cause;
  if (about_key(cause)) {
    if (Block* block = find(access->key)) table_.retract(block->region);
    return;
  }
  const bool bounds = about_bounds(cause);
  if (find(access->key) == nullptr) {
    // Under this key there is memory, but not as much as is wanted (or not for this).
    const std::uint64_t first = bounds && access->bytes == 1 ? access->addr + 1 : access->addr;
    const std::uint64_t less = bounds && access->bytes > 1 ? 1 : 0;
    cover(access->key, first, access->bytes - less, kEvery);
    if (!publish(access->key, *find(access->key))) return;
  }
  Block& block = *find(access->key);
  if (about_stream(cause)) block.region.pd = kStrangerPd;
  if (cause == wire::cause::kAccess) block.region.access = model::kAccessLocalWrite;
}

}  // namespace airdma::interop
