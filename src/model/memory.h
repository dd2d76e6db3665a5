// SPDX-License-Identifier: MIT
// Registered memory: regions, windows into them, the table of keys, and the checks every access
// passes.
// Lookups take no lock and may run on any thread while regions come and go: a reader pins a region
// before it touches the memory, and deregistration waits until the pins are gone.
// Access rules: RFC 5040 5.1 and 8.1.1 (STag, tagged offset, bounds, rights, protection domain).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <utility>
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

/// Rights that a window can give.
inline constexpr AccessMask kWindowAccess =
    kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic | kAccessZeroBased;

/// A window of type 1 is bound through any queue pair and open to all of its protection domain; one
/// of type 2 is open only to the queue pair that bound it, and can be invalidated.
enum class RegionKind : std::uint8_t { kRegion, kWindow1, kWindow2 };

/// One registered region, or a window: then start to access, and qpn, say what it is bound to, and
/// change only while the key is 0 and nothing is pinned. Storage must outlive every table it was
/// published in (regions are recycled, never unmapped), because a late reader may still look at the
/// counter.
struct Region {
  std::byte* start = nullptr;  // first byte in this process
  std::uint64_t base = 0;      // address a peer or an SGE uses for the first byte
  std::uint64_t length = 0;    // bytes
  PdId pd;
  AccessMask access = 0;
  std::atomic<std::uint32_t> key{0};   // 0 while not published, or not bound
  std::atomic<std::uint32_t> pins{0};  // accesses in progress
  std::uint32_t slot_key = 0;          // where the table has it; 0: nowhere
  /// Of a null region, whose bytes are the same at every address: where writes go. Then `start` is
  /// where reads come from, and both have room for the longest of accesses.
  std::byte* sink = nullptr;
  RegionKind kind = RegionKind::kRegion;
  std::atomic<std::uint32_t> windows{0};  // of a region: bound to it
  // Of a window:
  Qpn qpn{};                   // type 2: the queue pair it is open to
  std::uint32_t last_key = 0;  // the next one must differ
  Region* parent = nullptr;    // what it is bound to
  std::atomic<bool> changing{false};
};

/// What a window is to be bound to, and by whom.
struct WindowBind {
  Stag key;                  // the window's new key: its first 24 bits say which window
  Stag lkey;                 // of the region
  std::uint64_t addr = 0;    // in terms of the region
  std::uint64_t length = 0;  // bytes; 0 unbinds a window of type 1
  AccessMask access = 0;
  PdId pd;
  Qpn qpn;
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

/// Gives up a pin at its end.
class PinScope {
 public:
  explicit PinScope(Pin& pin) : pin_(pin) {}
  ~PinScope() { pin_ = {}; }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

 private:
  Pin& pin_;
};

/// Keys to regions. find/pin: any thread, wait-free. publish/retract: callers serialise them.
class MemoryTable {
 public:
  /// `pause` is called again and again while a window waits for accesses in progress or for another
  /// change of it: their thread may be off the processor, and this one on its. May be null.
  explicit MemoryTable(void (*pause)() = nullptr);
  ~MemoryTable();
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  /// Makes `region` reachable under `key` (chosen at random by the caller; 0 and ~0 are not keys).
  /// False when the key is taken or not allowed: choose another.
  [[nodiscard]] bool publish(Stag key, Region& region);
  /// The same for a window, which is not bound yet. Its keys are all that begin like `key`.
  [[nodiscard]] bool publish_window(Stag key, Region& window);
  /// No access begins under the region's key from now on. Wait for idle() before the memory is
  /// given back.
  void retract(Region& region);
  /// True when no access of this region is in progress.
  [[nodiscard]] static bool idle(const Region& region) {
    return region.pins.load(std::memory_order_seq_cst) == 0;
  }

  /// Binds a window. False, with nothing changed, when the rules forbid it: a window of type 2 that
  /// is bound or would keep its key, another protection domain, a region without kAccessMwBind, a
  /// range outside of the region, rights that a window or this region cannot give. Any thread.
  [[nodiscard]] bool bind(const WindowBind& wanted) const;
  /// Ends the binding of a window of type 2 that `qpn` bound under `key`; false when there is none.
  [[nodiscard]] bool invalidate(Stag key, PdId pd, Qpn qpn) const;
  /// Ends the binding of a window of type 2 if `qpn` made it.
  void unbind_from(Region& window, Qpn qpn) const;
  /// Like retract(), and ends the window's binding. Nothing is in progress when it returns.
  void retract_window(Region& window);
  /// No access begins until show(): the region is to be changed. Wait for idle().
  static void hide(Region& region) { region.key.store(0, std::memory_order_seq_cst); }
  static void show(Region& region) { region.key.store(region.slot_key, std::memory_order_seq_cst); }

  /// Checks an access of `length` bytes at `addr` under `key` on behalf of protection domain `pd`
  /// with the rights `needed`, and pins the region. A zero-length access passes with any key and
  /// gives an empty pin (data() == nullptr), as the specifications want. `qpn`: the queue pair over
  /// which a peer asks; without it windows of type 2 are closed, and without a remote right all
  /// are.
  [[nodiscard]] std::expected<Pin, AccessFault> pin(Stag key, PdId pd, std::uint64_t addr,
                                                    std::uint64_t length, AccessMask needed,
                                                    Qpn qpn = {}) const;

  /// The same for one of many accesses to local memory in a row: the region stays pinned in `held`,
  /// and the next access to it takes a fraction of the time. Everything is checked each time. Give
  /// up `held` before anything else than such accesses, for deregistration waits for it. `length`
  /// > 0.
  [[nodiscard]] std::expected<std::byte*, AccessFault> access(Pin& held, Stag key, PdId pd,
                                                              std::uint64_t addr,
                                                              std::uint64_t length,
                                                              AccessMask needed) const {
    Region* const region = held.region_;
    if (region == nullptr || region->key.load(std::memory_order_acquire) != key.value()) {
      auto pin = this->pin(key, pd, addr, length, needed);
      if (!pin) return std::unexpected(pin.error());
      held = std::move(*pin);
      return held.data();
    }
    return place(*region, pd, addr, length, needed);
  }

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

  class WindowChange;
  void rest() const {
    if (pause_ != nullptr) pause_();
  }
  void release(Region& window) const;
  /// Where the range is, if domain, rights and bounds allow the access.
  static std::expected<std::byte*, AccessFault> place(const Region& region, PdId pd,
                                                      std::uint64_t addr, std::uint64_t length,
                                                      AccessMask needed) {
    if (region.pd != pd) return std::unexpected(AccessFault::kOtherPd);
    if ((region.access & needed) != needed) return std::unexpected(AccessFault::kDenied);
    const std::uint64_t offset = addr - region.base;
    if (addr < region.base || offset > region.length || length > region.length - offset) {
      return std::unexpected(AccessFault::kBounds);
    }
    if (region.sink != nullptr) [[unlikely]] {
      return (needed & kAccessLocalWrite) != 0 ? region.sink : region.start;
    }
    return region.start + offset;
  }
  [[nodiscard]] Region* find_slot(std::uint32_t key) const;
  [[nodiscard]] Region* find(Stag key) const;
  void add(std::uint32_t key, Region& region);
  /// True when an empty slot was used, false when a tombstone was.
  static bool insert(Generation& generation, std::uint32_t key, Region* region);
  void empty_tombstones(Generation& generation, std::size_t last);
  void grow();

  void (*const pause_)();
  std::atomic<Generation*> current_;
  // Readers may still walk an outgrown generation, so all live as long as the table.
  std::vector<std::unique_ptr<Generation>> generations_;
  std::size_t used_ = 0;  // slots that are not empty, tombstones included
  std::size_t live_ = 0;
};

}  // namespace airdma::model
