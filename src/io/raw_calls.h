// SPDX-License-Identifier: MIT
// System calls that are not cancellation points. Programs cancel threads that sit in our calls; the
// C library's wrappers would then unwind through our locks. Only calls that are meant to block on a
// program's behalf (reading an event) use the wrappers. Results and errno are as the wrappers'.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>

#ifdef __SANITIZE_THREAD__
#include <pthread.h>
#include <sanitizer/tsan_interface.h>
#endif

struct epoll_event;

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif

namespace airdma::io::raw {

// The kernel orders what was done before bytes were sent and after they were received. The thread
// sanitizer knows that of the C library's calls and must be told of these.
#ifdef __SANITIZE_THREAD__
inline char kernel_order;
inline void before_sending() { __tsan_release(&kernel_order); }
inline void after_receiving() { __tsan_acquire(&kernel_order); }
#else
inline void before_sending() {}
inline void after_receiving() {}
#endif

#ifdef __SANITIZE_THREAD__
// The sanitizer notes who opened a descriptor until it sees the descriptor's end. One that it does
// not see makes the next owner of the number, unseen where opendir() made it, a race with the last.
// That a program ends what another thread of its own waits for is no race of this library's.
inline int close(int fd) {
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  const int result = ::close(fd);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  pthread_setcancelstate(before, nullptr);
  return result;
}
#else
inline int close(int fd) { return static_cast<int>(::syscall(SYS_close, fd)); }
#endif

/// Opens for reading, or as `flags` say, and closes at exec().
inline int open(const char* path, int flags = O_RDONLY) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0));
}

inline ssize_t read(int fd, void* data, std::size_t size) {
  return ::syscall(SYS_read, fd, data, size);
}

inline ssize_t write(int fd, const void* data, std::size_t size) {
  return ::syscall(SYS_write, fd, data, size);
}

inline ssize_t send(int fd, const void* data, std::size_t size, int flags) {
  before_sending();
  return ::syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
}

inline ssize_t send(int fd, const msghdr* message, int flags) {
  before_sending();
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

inline ssize_t receive(int fd, void* data, std::size_t size, int flags) {
  const auto result = ::syscall(SYS_recvfrom, fd, data, size, flags, nullptr, nullptr);
  after_receiving();
  return result;
}

inline int send_messages(int fd, mmsghdr* messages, unsigned count, int flags) {
  before_sending();
  return static_cast<int>(::syscall(SYS_sendmmsg, fd, messages, count, flags));
}

inline int receive_messages(int fd, mmsghdr* messages, unsigned count, int flags) {
  const auto result = ::syscall(SYS_recvmmsg, fd, messages, count, flags, nullptr);
  after_receiving();
  return static_cast<int>(result);
}

inline ssize_t send_message(int fd, const msghdr* message, int flags) {
  before_sending();
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

/// Takes bytes out of a pipe if there are any; EAGAIN otherwise, whatever O_NONBLOCK says.
inline ssize_t take_from_pipe(int fd, iovec* piece) {
  // SPLICE_F_NONBLOCK is bit 1.
  return ::syscall(SYS_vmsplice, fd, piece, 1UL, 2UL);
}

/// The same through the call that is made for it, where pipes know it: Linux 6.4.
inline ssize_t read_now(int fd, iovec* piece) {
  // Position -1: the descriptor's own; RWF_NOWAIT is bit 3.
  const ssize_t got = ::syscall(SYS_preadv2, fd, piece, 1UL, -1L, -1L, 8UL);
  const bool unknown = got < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EPERM);
  return unknown ? take_from_pipe(fd, piece) : got;
}

inline int epoll_now(int set, epoll_event* events, int count) {
  return static_cast<int>(::syscall(SYS_epoll_pwait, set, events, count, 0, nullptr, 8));
}

/// At least `ns` nanoseconds, below a second, unless a signal is handled.
inline void sleep(long ns) {
  const timespec duration{0, ns};
  ::syscall(SYS_nanosleep, &duration, nullptr);
}

/// Sleeps while `word` has the value `seen`, below a second, until somebody wakes its sleepers.
inline void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, long ns) {
  const timespec duration{0, ns};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &duration, nullptr, 0);
}

inline void wake_sleepers(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace airdma::io::raw
