// SPDX-License-Identifier: MIT
#include "model/memory.h"

#include <utility>

namespace airdma::model {
namespace {

constexpr std::uint32_t kEmpty = 0;
constexpr std::uint32_t kTombstone = ~0u;
constexpr std::size_t kFirstCapacity = 64;
/// The part of a window's key that its owner chooses anew for each binding.
constexpr std::uint32_t kWindowKeyMask = 0xff;
constexpr AccessMask kRemote = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

// Keys are random already; the multiplication only spreads the ones a test chose.
std::size_t first_slot(std::uint32_t key, std::size_t mask) {
  return (key * std::size_t{0x9e3779b1}) >> 7 & mask;
}

}  // namespace

MemoryTable::MemoryTable(void (*pause)()) : pause_(pause) {
  generations_.push_back(std::make_unique<Generation>(kFirstCapacity));
  current_.store(generations_.back().get(), std::memory_order_release);
}

MemoryTable::~MemoryTable() = default;

Region* MemoryTable::find_slot(std::uint32_t key) const {
  const Generation& table = *current_.load(std::memory_order_acquire);
  for (std::size_t i = first_slot(key, table.mask);; i = (i + 1) & table.mask) {
    const std::uint32_t found = table.slots[i].key.load(std::memory_order_acquire);
    if (found == kEmpty) return nullptr;
    if (found == key) return table.slots[i].region.load(std::memory_order_acquire);
  }
}

/// A window is in the table once, under the first of its keys, so binding leaves the table alone.
Region* MemoryTable::find(Stag key) const {
  if (Region* region = find_slot(key.value())) return region;
  if ((key.value() & kWindowKeyMask) == kEmpty) return nullptr;
  Region* window = find_slot(key.value() & ~kWindowKeyMask);
  return window != nullptr && window->kind != RegionKind::kRegion ? window : nullptr;
}

bool MemoryTable::insert(Generation& table, std::uint32_t key, Region* region) {
  std::size_t i = first_slot(key, table.mask);
  std::uint32_t found = table.slots[i].key.load(std::memory_order_relaxed);
  while (found != kEmpty && found != kTombstone) {
    i = (i + 1) & table.mask;
    found = table.slots[i].key.load(std::memory_order_relaxed);
  }
  // A reader that still sees the slot's former key may get this region: pin() compares the keys.
  table.slots[i].region.store(region, std::memory_order_release);
  table.slots[i].key.store(key, std::memory_order_release);
  return found == kEmpty;
}

void MemoryTable::grow() {
  const Generation& old = *generations_.back();
  // Twice the size even when tombstones alone filled it: generations are never freed, and this way
  // all of them together are no larger than twice the last.
  auto next = std::make_unique<Generation>((old.mask + 1) * 2);
  for (std::size_t i = 0; i <= old.mask; ++i) {
    const std::uint32_t key = old.slots[i].key.load(std::memory_order_relaxed);
    if (key == kEmpty || key == kTombstone) continue;
    insert(*next, key, old.slots[i].region.load(std::memory_order_relaxed));
  }
  used_ = live_;
  generations_.push_back(std::move(next));
  current_.store(generations_.back().get(), std::memory_order_release);
}

void MemoryTable::add(std::uint32_t key, Region& region) {
  if ((used_ + 1) * 2 > generations_.back()->mask + 1) grow();
  region.slot_key = key;
  if (insert(*generations_.back(), key, &region)) ++used_;
  ++live_;
}

bool MemoryTable::publish(Stag key, Region& region) {
  if (key.value() == kEmpty || key.value() == kTombstone || find(key) != nullptr) return false;
  region.kind = RegionKind::kRegion;
  region.key.store(key.value(), std::memory_order_release);
  add(key.value(), region);
  return true;
}

bool MemoryTable::publish_window(Stag key, Region& window) {
  const std::uint32_t first = key.value() & ~kWindowKeyMask;
  if (first == kEmpty || first == (kTombstone & ~kWindowKeyMask)) return false;
  for (std::uint32_t low = 0; low <= kWindowKeyMask; ++low) {
    if (find_slot(first | low) != nullptr) return false;
  }
  window.last_key = key.value();
  window.key.store(0, std::memory_order_release);
  add(first, window);
  return true;
}

void MemoryTable::retract(Region& region) {
  region.key.store(0, std::memory_order_seq_cst);
  const std::uint32_t key = std::exchange(region.slot_key, 0);
  if (key == 0) return;
  Generation& table = *generations_.back();
  for (std::size_t i = first_slot(key, table.mask);; i = (i + 1) & table.mask) {
    const std::uint32_t found = table.slots[i].key.load(std::memory_order_relaxed);
    if (found == kEmpty) return;
    if (found != key) continue;
    --live_;
    table.slots[i].key.store(kTombstone, std::memory_order_release);
    return empty_tombstones(table, i);
  }
}

// Where nothing follows no search needs to pass: tombstones at the end of a run become empty again,
// so registering and deregistering for ever does not fill the table with them.
void MemoryTable::empty_tombstones(Generation& table, std::size_t last) {
  if (table.slots[(last + 1) & table.mask].key.load(std::memory_order_relaxed) != kEmpty) return;
  for (std::size_t i = last;; i = (i - 1) & table.mask) {
    if (table.slots[i].key.load(std::memory_order_relaxed) != kTombstone) return;
    table.slots[i].key.store(kEmpty, std::memory_order_release);
    --used_;
  }
}

std::expected<Pin, AccessFault> MemoryTable::pin(Stag key, PdId pd, std::uint64_t addr,
                                                 std::uint64_t length, AccessMask needed,
                                                 Qpn qpn) const {
  if (length == 0) return Pin{};
  Region* region = find(key);
  if (region == nullptr) return std::unexpected(AccessFault::kInvalidKey);
  // Pin first, then look at the key: retract() clears the key before it reads the pins, so one of
  // the two sides always sees the other.
  region->pins.fetch_add(1, std::memory_order_seq_cst);
  Pin pin(region, nullptr);
  if (region->key.load(std::memory_order_seq_cst) != key.value()) {
    return std::unexpected(AccessFault::kInvalidKey);
  }
  if (region->kind != RegionKind::kRegion) {
    if ((needed & kRemote) == 0) return std::unexpected(AccessFault::kInvalidKey);
    if (region->kind == RegionKind::kWindow2 && region->qpn != qpn) {
      return std::unexpected(AccessFault::kOtherPd);
    }
  }
  const auto data = place(*region, pd, addr, length, needed);
  if (!data) return std::unexpected(data.error());
  pin.data_ = *data;
  return pin;
}

}  // namespace airdma::model
