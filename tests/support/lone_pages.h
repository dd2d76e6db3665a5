// SPDX-License-Identifier: MIT
// Memory for tests that unmap some of it and expect nothing in its place.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace airdma::test {

/// Maps `bytes` (whole pages of 4096) where the kernel puts no mapping by itself: below the stack
/// of the calling thread, which is to be the first one. Elsewhere the hole that munmap leaves is
/// the next place of any thread's mapping, those of a sanitizer's own threads included. Each call
/// takes another place. Where that one is taken already, anywhere; never MAP_FAILED unless mmap is
/// refused.
inline std::byte* map_lone_pages(std::size_t bytes, int protection = PROT_READ | PROT_WRITE,
                                 int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kStack = std::uintptr_t{16} << 20;  // more than it grows here
  static std::atomic<std::uintptr_t> end{
      (reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - kStack) & ~(kPage - 1)};
  // A page between two places stays free, so that they never become one mapping.
  auto* const place = reinterpret_cast<void*>(end.fetch_sub(bytes + kPage) - bytes);
  void* pages = ::mmap(place, bytes, protection, flags | MAP_FIXED_NOREPLACE, fd, 0);
  if (pages == MAP_FAILED) pages = ::mmap(nullptr, bytes, protection, flags, fd, 0);
  return static_cast<std::byte*>(pages);
}

}  // namespace airdma::test
