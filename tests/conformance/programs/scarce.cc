// SPDX-License-Identifier: MIT
// scarce.so, to be preloaded: memory that runs out at a chosen allocation.
// A program arms it through the exported functions; until then, and without the preload, nothing
// changes. All threads count. Allocations of libc for itself (stdio, threads) count, too.
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include <atomic>
#include <cstddef>

namespace {

constexpr long kNever = -1;
std::atomic<long> countdown{kNever};
std::atomic<bool> goes_on{false};  // fail all that follow, too
std::atomic<bool> failed{false};

// True when this allocation is to fail.
bool runs_out() {
  long left = countdown.load(std::memory_order_relaxed);
  do {
    if (left == kNever) return false;
    if (left == 0) break;
  } while (!countdown.compare_exchange_weak(left, left - 1));
  if (left > 1) return false;
  if (left == 1) {
    failed.store(true);
    if (!goes_on.load()) countdown.store(kNever);
  }
  return true;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void* out_of_memory() {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

/// The nth allocation from now on fails; with `all`, those behind it, too. 0: none does.
__attribute__((visibility("default"))) void scarce_arm(long nth, int all) {
  failed.store(false);
  goes_on.store(all != 0);
  countdown.store(nth > 0 ? nth : kNever);
}
/// Ends it; returns whether one has failed since scarce_arm().
__attribute__((visibility("default"))) int scarce_disarm() {
  countdown.store(kNever);
  return failed.load() ? 1 : 0;
}

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  return runs_out() ? out_of_memory() : __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t bytes) {
  return runs_out() ? out_of_memory() : __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* old, std::size_t bytes) {
  return bytes != 0 && runs_out() ? out_of_memory() : __libc_realloc(old, bytes);
}
__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t bytes) {
  return runs_out() ? out_of_memory() : __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t bytes) {
  return runs_out() ? out_of_memory() : __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, std::size_t alignment,
                                                          std::size_t bytes) {
  void* memory = runs_out() ? nullptr : __libc_memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"
