// SPDX-License-Identifier: MIT
// A lock for sections of a few hundred instructions, with try_lock for "whoever is free does the
// work". It yields after a short spin, because two cores are the normal case and the holder may be
// off the processor.
#pragma once

#include <sched.h>

#include <atomic>

namespace airdma {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class SpinLock {
 public:
  [[nodiscard]] bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void lock() {
    for (int spins = 0; !try_lock(); ++spins) {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins < 128) {
          cpu_relax();
        } else {
          ::sched_yield();
        }
      }
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace airdma
