// SPDX-License-Identifier: MIT
// Access to memory that belongs to the program, which may unmap or protect it at any moment, in the
// middle of a copy too. An access runs under a guard: a fault inside the guarded range ends it, and
// the caller is told. Nothing here makes a system call; io/fault_handler.h turns the fault signals
// into the end of a guarded access. Without that handler a fault is the program's, as ever.
#pragma once

#include <setjmp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace airdma {

/// The access that a thread is making; it lives on that thread's stack.
struct FaultGuard {
  std::uintptr_t start;
  std::size_t bytes;
  jmp_buf resume;

  [[nodiscard]] bool covers(const void* addr) const {
    return reinterpret_cast<std::uintptr_t>(addr) - start < bytes;
  }
};

/// The guard this thread is inside of, or null. The model makes it a plain load relative to the
/// thread pointer: a signal handler may not run the allocation that other models can need.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local FaultGuard* current_fault_guard =
    nullptr;

/// Runs `access`, which touches no memory that may be gone but [start, start + bytes). False when
/// the memory was not there for it: then it ended somewhere in between, with no destructor run, so
/// it owns nothing. Its effects on local variables count only when this returns true.
template <class Access>
[[nodiscard, gnu::noinline]] bool guarded(const void* start, std::size_t bytes,
                                          const Access& access) {
  // Signal handlers of the program may post work: the outer guard comes back afterwards.
  FaultGuard* volatile const outer = current_fault_guard;
  FaultGuard guard;
  guard.start = reinterpret_cast<std::uintptr_t>(start);
  guard.bytes = bytes;
  // The variant that does not save the signal mask: that would be a system call for each access.
  if (_setjmp(guard.resume) != 0) {
    current_fault_guard = outer;
    return false;
  }
  current_fault_guard = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  access();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  current_fault_guard = outer;
  return true;
}

/// Copies into memory of the program. False when it is not there to be written.
[[nodiscard]] inline bool copy_to_program(void* to, Bytes from) {
  return guarded(to, from.size(), [=] { std::memcpy(to, from.data(), from.size()); });
}

}  // namespace airdma
