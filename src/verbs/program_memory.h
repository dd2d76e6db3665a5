// SPDX-License-Identifier: MIT
// Memory that a program hands out itself, by the functions of a parent domain. They are the
// program's code, so they are called without any lock.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace airdma::verbs {

struct ProgramAllocator {
  decltype(ibv_parent_domain_init_attr::alloc) alloc = nullptr;  // null: there is none
  decltype(ibv_parent_domain_init_attr::free) free = nullptr;
  ibv_pd* domain = nullptr;
  void* context = nullptr;
};

/// What the functions are told that it is for. The driver's number, in the upper half, is 0: none
/// of the kernel's.
inline constexpr std::uint64_t kCompletionEntries = 1;

/// One piece of it; empty when the program has no allocator or left it to us.
class ProgramMemory {
 public:
  ProgramMemory() = default;
  ProgramMemory(ProgramMemory&& other) noexcept
      : from_(other.from_), data_(std::exchange(other.data_, nullptr)) {}
  ProgramMemory& operator=(ProgramMemory&& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(data_, other.data_);
    return *this;
  }
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;
  ~ProgramMemory() {
    if (data_ != nullptr) from_.free(from_.domain, from_.context, data_, kCompletionEntries);
  }

  /// ENOMEM when the program gives none.
  static Result<ProgramMemory> take(const ProgramAllocator& from, std::size_t bytes,
                                    std::size_t alignment) {
    ProgramMemory memory;
    if (from.alloc == nullptr) return memory;
    void* data = from.alloc(from.domain, from.context, bytes, alignment, kCompletionEntries);
    if (data == nullptr) return fail(ENOMEM);
    if (data == IBV_ALLOCATOR_USE_DEFAULT) return memory;
    memory.from_ = from;
    memory.data_ = data;
    return memory;
  }

  [[nodiscard]] void* data() const { return data_; }

 private:
  ProgramAllocator from_;
  void* data_ = nullptr;
};

}  // namespace airdma::verbs
