// SPDX-License-Identifier: MIT
// Registered memory: regions, the table of keys, and the checks every access passes.
// Lookups take no lock and may run on any thread while regions come and go: a reader pins a region
// before it touches the memory, and deregistration waits until the pins are gone.
// Access rules: RFC 5040 5.1 and 8.1.1 (STag, tagged offset, bounds, rights, protection domain).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <vector>

#include "base/ids.h"

namespace airdma::model {

/// Rights of a region; values are those of enum ibv_access_flags.
using AccessMask = std::uint32_t;
inline constexpr AccessMask kAccessLocalRead = 0;
inline constexpr AccessMask kAccessLocalWrite = 1u << 0;
inline constexpr AccessMask kAccessRemoteWrite = 1u << 1;
inline constexpr AccessMask kAccessRemoteRead = 1u << 2;
inline constexpr AccessMask kAccessRemoteAtomic = 1u << 3;
inline constexpr AccessMask kAccessMwBind = 1u << 4;
inline constexpr AccessMask kAccessZeroBased = 1u << 5;

/// Why an access is refused, in the order the checks are made.
enum class AccessFault : std::uint8_t { kInvalidKey, kOtherPd, kDenied, kBounds };

/// One registered region. Storage must outlive every table it was published in (regions are
/// recycled, never unmapped), because a late reader may still look at the counter.
struct Region {
  std::byte* start = nullptr;  // first byte in this process
  std::uint64_t base = 0;      // address a peer or an SGE uses for the first byte
  std::uint64_t length = 0;    // bytes
  PdId pd;
  AccessMask access = 0;
  std::atomic<std::uint32_t> key{0};   // 0 while not published
  std::atomic<std::uint32_t> pins{0};  // accesses in progress
};

/// Keeps a region's memory registered while one access runs. Move-only.
class Pin {
 public:
  Pin() = default;
  Pin(Region* region, std::byte* data) : region_(region), data_(data) {}
  Pin(Pin&& other) noexcept : region_(other.region_), data_(other.data_) {
    other.region_ = nullptr;
  }
  Pin& operator=(Pin&& other) noexcept {
    if (this != &other) {
      release();
      region_ = other.region_;
      data_ = other.data_;
      other.region_ = nullptr;
    }
    return *this;
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() { release(); }

  /// First byte of the range that was asked for.
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  void release() {
    if (region_ != nullptr) region_->pins.fetch_sub(1, std::memory_order_release);
    region_ = nullptr;
  }

  friend class MemoryTable;
  Region* region_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Keys to regions. find/pin: any thread, wait-free. publish/retract: callers serialise them.
class MemoryTable {
 public:
  MemoryTable();
  ~MemoryTable();
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  /// Makes `region` reachable under `key` (chosen at random by the caller; 0 and ~0 are not keys).
  /// False when the key is taken or not allowed: choose another.
  [[nodiscard]] bool publish(Stag key, Region& region);
  /// No access begins under the region's key from now on. Wait for idle() before the memory is
  /// given back.
  void retract(Region& region);
  /// True when no access of this region is in progress.
  [[nodiscard]] static bool idle(const Region& region) {
    return region.pins.load(std::memory_order_seq_cst) == 0;
  }

  /// Checks an access of `length` bytes at `addr` under `key` on behalf of protection domain `pd`
  /// with the rights `needed`, and pins the region. A zero-length access passes with any key and
  /// gives an empty pin (data() == nullptr), as the specifications want.
  [[nodiscard]] std::expected<Pin, AccessFault> pin(Stag key, PdId pd, std::uint64_t addr,
                                                    std::uint64_t length, AccessMask needed) const;

  /// Slots of the table and of the outgrown ones, which stay because late readers may hold them.
  [[nodiscard]] std::size_t total_slots() const {
    std::size_t total = 0;
    for (const auto& generation : generations_) total += generation->mask + 1;
    return total;
  }

 private:
  struct Slot {
    std::atomic<std::uint32_t> key{0};
    std::atomic<Region*> region{nullptr};
  };
  struct Generation {
    explicit Generation(std::size_t capacity)
        : mask(capacity - 1), slots(std::make_unique<Slot[]>(capacity)) {}
    std::size_t mask;
    std::unique_ptr<Slot[]> slots;
  };

  [[nodiscard]] Region* find(Stag key) const;
  /// True when an empty slot was used, false when a tombstone was.
  static bool insert(Generation& generation, std::uint32_t key, Region* region);
  void empty_tombstones(Generation& generation, std::size_t last);
  void grow();

  std::atomic<Generation*> current_;
  // Readers may still walk an outgrown generation, so all live as long as the table.
  std::vector<std::unique_ptr<Generation>> generations_;
  std::size_t used_ = 0;  // slots that are not empty, tombstones included
  std::size_t live_ = 0;
};

}  // namespace airdma::model
