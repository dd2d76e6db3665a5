// SPDX-License-Identifier: MIT
#include "io/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/process_global.h"
#include "io/raw_calls.h"

namespace airdma::io {
namespace {

// Which descriptors a fork() child must close: a bit each, so that marking is one atomic operation
// and the child's handler needs no lock. Limit: descriptors above this stay open in children.
constexpr int kTracked = 1 << 20;
std::atomic<std::uint64_t> fork_private[kTracked / 64];
std::atomic<int> highest_tracked{0};

void close_in_child() {
  const int words = highest_tracked.load(std::memory_order_relaxed) / 64;
  for (int word = 0; word <= words; ++word) {
    std::uint64_t bits = fork_private[word].exchange(0, std::memory_order_relaxed);
    while (bits != 0) {
      raw::close(word * 64 + __builtin_ctzll(bits));
      bits &= bits - 1;
    }
  }
}

void track(int fd) {
  if (fd >= kTracked) return;
  static std::atomic<bool> registered{false};
  if (!registered.exchange(true)) on_fork_child(&close_in_child);
  fork_private[fd / 64].fetch_or(std::uint64_t{1} << (fd % 64), std::memory_order_relaxed);
  int highest = highest_tracked.load(std::memory_order_relaxed);
  while (fd > highest && !highest_tracked.compare_exchange_weak(highest, fd)) {
  }
}

void untrack(int fd) {
  if (fd >= kTracked) return;
  fork_private[fd / 64].fetch_and(~(std::uint64_t{1} << (fd % 64)), std::memory_order_relaxed);
}

}  // namespace

Fd::Fd(int fd, bool is_fork_private) : fd_(fd) {
  if (fd_ < 0) return;
  if (fd_ <= STDERR_FILENO) {
    // A program that closed its standard streams must not find ours in their place.
    const int higher = ::fcntl(fd_, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    raw::close(fd_);
    fd_ = higher;
    if (fd_ < 0) return;
  }
  if (is_fork_private) track(fd_);
}

void Fd::reset() {
  if (fd_ < 0) return;
  untrack(fd_);
  raw::close(fd_);
  fd_ = -1;
}

Result<EventCounter> EventCounter::create() {
  EventCounter counter;
  // Not fork-private: the number is the program's to poll, in a child too.
  counter.fd_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE), false);
  if (!counter.fd_) return fail(errno, "eventfd");
  return counter;
}

void EventCounter::post() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = raw::write(fd_.get(), &one, sizeof one);
}

Status EventCounter::consume() {
  std::uint64_t value = 0;
  if (::read(fd_.get(), &value, sizeof value) == sizeof value) return {};
  return fail(errno, "read");
}

bool EventCounter::consume_if_any() {
  std::uint64_t value = 0;
  iovec piece{&value, sizeof value};
  if (raw::read_now(fd_.get(), &piece) >= 0) return true;
  if (errno == EAGAIN) return false;
  // A kernel without RWF_NOWAIT on event descriptors: ask first.
  pollfd readable{fd_.get(), POLLIN, 0};
  return ::poll(&readable, 1, 0) == 1 && consume().has_value();
}

}  // namespace airdma::io
