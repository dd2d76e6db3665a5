// SPDX-License-Identifier: MIT
#include "base/memory_reserve.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/spin_lock.h"

namespace airdma {
namespace {

constexpr std::size_t kGrains = MemoryReserve::kBytes / MemoryReserve::kGrain;

// Pages that nobody touches cost nothing, so the reserve needs no memory until it is used.
alignas(MemoryReserve::kGrain) constinit std::byte storage[MemoryReserve::kBytes] = {};
// For the first grain of each piece, how many it has; 0 elsewhere.
constinit std::array<std::uint16_t, kGrains> length{};
constinit SpinLock lock;
constinit std::size_t used_grains = 0;

/// The first grain of a free stretch; kGrains when there is none.
std::size_t find_room(std::size_t wanted) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < kGrains;) {
    if (length[at] != 0) {
      at += length[at];
      begin = at;
    } else if (++at - begin == wanted) {
      return begin;
    }
  }
  return kGrains;
}

}  // namespace

void* MemoryReserve::take(std::size_t bytes) {
  const std::size_t wanted = std::max<std::size_t>((bytes + kGrain - 1) / kGrain, 1);
  if (bytes > kBytes / 2) return nullptr;
  std::lock_guard guard(lock);
  const std::size_t at = find_room(wanted);
  if (at == kGrains) return nullptr;
  length[at] = static_cast<std::uint16_t>(wanted);
  used_grains += wanted;
  return storage + at * kGrain;
}

bool MemoryReserve::give_back(void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto first = reinterpret_cast<std::uintptr_t>(storage);
  if (address < first || address >= first + kBytes) return false;
  std::lock_guard guard(lock);
  std::uint16_t& grains = length[(address - first) / kGrain];
  used_grains -= grains;
  grains = 0;
  return true;
}

std::size_t MemoryReserve::used() const {
  std::lock_guard guard(lock);
  return used_grains * kGrain;
}

MemoryReserve& MemoryReserve::instance() {
  static constinit MemoryReserve only;
  return only;
}

}  // namespace airdma

// The sanitizers bring operators of their own, and the C++ library with them as a shared object,
// whose memory these could not give back.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

using airdma::MemoryReserve;

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  bytes = std::max<std::size_t>(bytes, 1);
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return ::malloc(bytes);
  void* memory = nullptr;
  return ::posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

/// Without an exception, and without waiting: null is an answer.
void* try_allocate(std::size_t bytes, std::size_t alignment) noexcept {
  void* memory = allocate(bytes, alignment);
  if (memory != nullptr || airdma::memory_may_run_out) return memory;
  return alignment <= MemoryReserve::kGrain ? MemoryReserve::instance().take(bytes) : nullptr;
}

constexpr long kLookAgainNs = 1'000'000;

void* must_allocate(std::size_t bytes, std::size_t alignment) {
  for (;;) {
    void* memory = try_allocate(bytes, alignment);
    if (memory != nullptr) return memory;
    if (airdma::memory_may_run_out) throw std::bad_alloc();
    const timespec pause{0, kLookAgainNs};
    ::syscall(SYS_nanosleep, &pause, nullptr);
  }
}

void release(void* memory) noexcept {
  if (memory != nullptr && !MemoryReserve::instance().give_back(memory)) ::free(memory);
}

constexpr std::size_t kPlain = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

void* operator new(std::size_t bytes) { return must_allocate(bytes, kPlain); }
void* operator new[](std::size_t bytes) { return must_allocate(bytes, kPlain); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return must_allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return must_allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return try_allocate(bytes, kPlain);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return try_allocate(bytes, kPlain);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return try_allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return try_allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  release(memory);
}

#endif
