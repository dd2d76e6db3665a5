// SPDX-License-Identifier: MIT
// Storage of the objects whose addresses programs hold as handles (ibv_qp*, rdma_cm_id*, ...).
// Programs pass NULL, destroyed and foreign pointers; find() tells a live object of this pool from
// all of those without touching memory it does not own. Slots are never unmapped, and a slot rests
// before it is used again, so a stale handle is recognised and not mistaken for its successor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace airdma {

/// T needs a member function `auto* handle()` giving the address of the public struct inside it,
/// at the same offset in every object. Thread-safe; find() takes no lock.
template <class T>
class ObjectPool {
 public:
  ObjectPool() = default;
  /// No object of the pool is live any more.
  ~ObjectPool() {
    for (Slot* chunk : chunks_) delete[] chunk;
  }
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;

  /// Null when memory is exhausted. What T's constructor throws comes through.
  template <class... Args>
  T* create(Args&&... args) {
    Slot* slot = take();
    if (slot == nullptr) return nullptr;
    T* object = nullptr;
    try {
      object = new (slot->storage) T(std::forward<Args>(args)...);
    } catch (...) {
      give_back(slot);
      throw;
    }
    handle_offset_.store(offset_of_handle(object), std::memory_order_relaxed);
    slot->live.store(true, std::memory_order_release);
    return object;
  }

  /// From here on find() does not know the object; it is then destroyed.
  void destroy(T* object) {
    Slot* slot = slot_of(object);
    slot->live.store(false, std::memory_order_release);
    object->~T();
    give_back(slot);
  }

  /// The live object whose public struct is at `handle`; null for anything else.
  template <class Handle>
  T* find(const Handle* handle) const {
    const auto address = reinterpret_cast<std::uintptr_t>(handle);
    const std::size_t count = chunk_count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      const auto first = reinterpret_cast<std::uintptr_t>(chunks_[i]);
      if (address < first || address >= first + chunk_slots(i) * sizeof(Slot)) continue;
      const std::size_t inside = (address - first) % sizeof(Slot);
      if (inside != offsetof(Slot, storage) + handle_offset_.load(std::memory_order_relaxed)) {
        return nullptr;
      }
      Slot* slot = chunks_[i] + (address - first) / sizeof(Slot);
      if (!slot->live.load(std::memory_order_acquire)) return nullptr;
      return std::launder(reinterpret_cast<T*>(slot->storage));
    }
    return nullptr;
  }

  /// Calls `visit(T&)` for each live object; the caller keeps them from being destroyed meanwhile.
  template <class Visit>
  void for_each(Visit visit) {
    const std::size_t count = chunk_count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < chunk_slots(i); ++k) {
        Slot& slot = chunks_[i][k];
        if (!slot.live.load(std::memory_order_acquire)) continue;
        visit(*std::launder(reinterpret_cast<T*>(slot.storage)));
      }
    }
  }

 private:
  static constexpr std::size_t kMaxChunks = 20;
  static constexpr std::size_t kFirstChunk = 64;
  static constexpr std::size_t kResting = 64;  // freed slots that stay unused

  struct Slot {
    std::atomic<bool> live{false};
    alignas(alignof(T) > 64 ? alignof(T) : 64) std::byte storage[sizeof(T)];
  };

  static constexpr std::size_t chunk_slots(std::size_t chunk) { return kFirstChunk << chunk; }
  static std::size_t offset_of_handle(T* object) {
    return static_cast<std::size_t>(reinterpret_cast<std::byte*>(object->handle()) -
                                    reinterpret_cast<std::byte*>(object));
  }
  static Slot* slot_of(T* object) {
    return reinterpret_cast<Slot*>(reinterpret_cast<std::byte*>(object) - offsetof(Slot, storage));
  }

  Slot* take() {
    std::lock_guard lock(mutex_);
    if (free_.size() > kResting) {
      Slot* slot = free_.front();
      free_.pop_front();
      return slot;
    }
    std::size_t count = chunk_count_.load(std::memory_order_relaxed);
    if (count == 0 || next_in_chunk_ == chunk_slots(count - 1)) {
      if (count == kMaxChunks) return nullptr;
      chunks_[count] = new (std::nothrow) Slot[chunk_slots(count)];
      if (chunks_[count] == nullptr) return nullptr;
      next_in_chunk_ = 0;
      chunk_count_.store(++count, std::memory_order_release);
    }
    return chunks_[count - 1] + next_in_chunk_++;
  }

  void give_back(Slot* slot) {
    std::lock_guard lock(mutex_);
    free_.push_back(slot);
  }

  std::mutex mutex_;
  std::deque<Slot*> free_;
  Slot* chunks_[kMaxChunks] = {};
  std::atomic<std::size_t> chunk_count_{0};
  std::size_t next_in_chunk_ = 0;
  std::atomic<std::size_t> handle_offset_{0};
};

}  // namespace airdma
