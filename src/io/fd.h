// SPDX-License-Identifier: MIT
// Owned file descriptors. All are close-on-exec and never 0, 1 or 2. Those marked private are
// closed in a fork() child, so that the child does not keep the parent's connections open.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/result.h"
#include "base/spin_lock.h"

namespace airdma::io {

class Fd {
 public:
  Fd() = default;
  /// Takes ownership. `fork_private`: closed in children made by fork().
  explicit Fd(int fd, bool fork_private = true);
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  void reset();
  /// Forgets the number, which somebody else has closed and may have got anew.
  void abandon() { fd_ = -1; }

 private:
  int fd_ = -1;
};

/// A counting event: each post() makes one consume() succeed. The descriptor is readable while the
/// count is positive and never writable (it is the read end of a pipe, as programs that ask for any
/// readiness expect of an event channel); programs poll it and may make it non-blocking.
/// Thread-safe. Two descriptors. Threads that sleep by EventWait go on sleeping when it is
/// destroyed, as with a kernel's event channel: programs destroy channels under their event
/// threads. A program may close the descriptor: consume() is EBADF then, and posting does no harm.
class EventCounter {
 public:
  static Result<EventCounter> create();
  EventCounter() = default;
  EventCounter(EventCounter&&) = default;
  EventCounter& operator=(EventCounter&&) = default;
  ~EventCounter();

  [[nodiscard]] int fd() const { return read_end_.get(); }
  void post();
  /// post() in two steps, for events that are announced under a lock which their readers take, too:
  /// add() counts under the lock, and settle() wakes readers after it. An event that is taken back
  /// in between wakes nobody.
  void add();
  void settle();
  /// Takes one; blocks unless the descriptor is non-blocking. EAGAIN, EINTR as read(2) gives them.
  /// Within a call that waits by EventWait: EINPROGRESS instead of blocking, with the wait filled
  /// in.
  Status consume();
  /// Takes one if there is one, never blocks (for the owner that has just removed an event). False
  /// when there was none: a reader has it already.
  bool consume_if_any();

 private:
  struct Counts {
    SpinLock lock;
    std::int64_t events = 0;
    std::int64_t bytes = 0;  // in the pipe
  };
  Status read_byte();
  void fill_pipe();
  [[nodiscard]] bool has_read_end() const;
  [[nodiscard]] std::unexpected<Error> read_error(int error) const;

  Fd read_end_;
  Fd write_end_;
  std::unique_ptr<Counts> counts_;
};

}  // namespace airdma::io
