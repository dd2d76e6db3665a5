// SPDX-License-Identifier: MIT
// What happens when memory runs out (docs/decisions/0009). A call of the program that creates or
// connects something fails with ENOMEM: it runs under MayRunOut. Everything else (the progress
// thread, posting and polling, the end of a stream, an event for the program) has nobody to tell
// and no way back: there `operator new` takes from a reserve, and waits when that is used up, too.
#pragma once

#include <cstddef>

namespace airdma {

/// Whether allocations of this thread may fail. Its own storage must need none: initial-exec.
[[gnu::tls_model("initial-exec")]] inline thread_local bool memory_may_run_out = false;

/// While it lives, a failed allocation of this thread is std::bad_alloc.
class MayRunOut {
 public:
  MayRunOut() : outer_(memory_may_run_out) { memory_may_run_out = true; }
  ~MayRunOut() { memory_may_run_out = outer_; }
  MayRunOut(const MayRunOut&) = delete;
  MayRunOut& operator=(const MayRunOut&) = delete;

 private:
  const bool outer_;
};

/// Inside a MayRunOut, what must be done to its end once it has begun.
class MustNotRunOut {
 public:
  MustNotRunOut() : outer_(memory_may_run_out) { memory_may_run_out = false; }
  ~MustNotRunOut() { memory_may_run_out = outer_; }
  MustNotRunOut(const MustNotRunOut&) = delete;
  MustNotRunOut& operator=(const MustNotRunOut&) = delete;

 private:
  const bool outer_;
};

/// Memory for those who cannot do without, aligned to 64 bytes. Thread-safe; allocates nothing.
class MemoryReserve {
 public:
  static constexpr std::size_t kGrain = 64;
  static constexpr std::size_t kBytes = 256 * 1024;

  /// Null when there is no room for so much.
  void* take(std::size_t bytes);
  /// False when the memory is not the reserve's.
  bool give_back(void* memory);
  /// In use now, in bytes.
  [[nodiscard]] std::size_t used() const;

  /// The one behind `operator new`.
  static MemoryReserve& instance();
};

}  // namespace airdma
