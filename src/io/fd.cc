// SPDX-License-Identifier: MIT
#include "io/fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/event_wait.h"
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

namespace {

/// A program that closes the read end would be sent a SIGPIPE with the next event: an end that is
/// open both ways is a reader itself. Without /proc it is the plain one.
int keep_reader(int write_end) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", write_end);
  const int both_ways = raw::open(path, O_RDWR);
  if (both_ways < 0) return write_end;
  raw::close(write_end);
  return both_ways;
}

}  // namespace

Result<EventCounter> EventCounter::create() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return fail(errno, "pipe2");
  EventCounter counter;
  // The read end is not fork-private: the number is the program's to poll, in a child too.
  counter.read_end_ = Fd(ends[0], false);
  counter.write_end_ = Fd(keep_reader(ends[1]));
  if (!counter.read_end_ || !counter.write_end_) return fail(EMFILE, "fcntl");
  counter.counts_ = std::make_unique<Counts>();
  return counter;
}

EventCounter::~EventCounter() {
  if (read_end_ && !has_read_end()) read_end_.abandon();
}

/// Whether the number is still the pipe's: programs close it, and it becomes some other descriptor.
bool EventCounter::has_read_end() const {
  struct stat one{};
  struct stat other{};
  return ::fstat(read_end_.get(), &one) == 0 && ::fstat(write_end_.get(), &other) == 0 &&
         one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

std::unexpected<Error> EventCounter::read_error(int error) const {
  return fail(error == EINTR || has_read_end() ? error : EBADF, "read");
}

// Keeps a byte in the pipe for each event, up to a number that no pipe is too small for.
void EventCounter::fill_pipe() {
  constexpr std::int64_t kMostBytes = 2048;
  while (counts_->bytes < std::min(counts_->events, kMostBytes)) {
    const char byte = 0;
    if (raw::write(write_end_.get(), &byte, 1) != 1) return;
    ++counts_->bytes;
  }
}

void EventCounter::post() {
  add();
  settle();
}

void EventCounter::add() {
  counts_->lock.lock();
  ++counts_->events;
  counts_->lock.unlock();
}

void EventCounter::settle() {
  counts_->lock.lock();
  fill_pipe();
  counts_->lock.unlock();
}

Status EventCounter::read_byte() {
  if (EventWait* wait = EventWait::current) {
    if (wait->state == EventWait::State::kDone) {
      wait->state = EventWait::State::kFresh;
      if (wait->error == 0) return {};
      return read_error(wait->error);
    }
    wait->state = EventWait::State::kWanted;
    wait->fd = read_end_.get();
    return fail(EINPROGRESS, "wait");
  }
  char byte = 0;
  const ssize_t got = ::read(read_end_.get(), &byte, 1);
  if (got > 0) return {};
  return read_error(got < 0 ? errno : EBADF);
}

Status EventCounter::consume() {
  if (auto status = read_byte(); !status) return status;
  counts_->lock.lock();
  --counts_->bytes;
  --counts_->events;
  fill_pipe();
  counts_->lock.unlock();
  return {};
}

bool EventCounter::consume_if_any() {
  counts_->lock.lock();
  char byte = 0;
  iovec piece{&byte, 1};
  const bool in_pipe = counts_->bytes >= counts_->events;
  // A reader that has taken the byte already is about to lower both counts.
  const bool taken = counts_->events > 0 &&
                     (!in_pipe || (has_read_end() && raw::read_now(read_end_.get(), &piece) == 1));
  if (taken) {
    --counts_->events;
    if (in_pipe) --counts_->bytes;
  }
  counts_->lock.unlock();
  return taken;
}

}  // namespace airdma::io
