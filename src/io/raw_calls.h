// SPDX-License-Identifier: MIT
// System calls that are not cancellation points. Programs cancel threads that sit in our calls; the
// C library's wrappers would then unwind through our locks. Only calls that are meant to block on a
// program's behalf (reading an event) use the wrappers. Results and errno are as the wrappers'.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>

struct epoll_event;

namespace airdma::io::raw {

inline int close(int fd) { return static_cast<int>(::syscall(SYS_close, fd)); }

inline ssize_t write(int fd, const void* data, std::size_t size) {
  return ::syscall(SYS_write, fd, data, size);
}

inline ssize_t send(int fd, const void* data, std::size_t size, int flags) {
  return ::syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
}

inline ssize_t receive(int fd, void* data, std::size_t size, int flags) {
  return ::syscall(SYS_recvfrom, fd, data, size, flags, nullptr, nullptr);
}

inline ssize_t read_now(int fd, iovec* piece) {
  // Position -1: the descriptor's own; RWF_NOWAIT is bit 3.
  return ::syscall(SYS_preadv2, fd, piece, 1, -1L, -1L, 8);
}

inline int epoll_now(int set, epoll_event* events, int count) {
  return static_cast<int>(::syscall(SYS_epoll_pwait, set, events, count, 0, nullptr, 8));
}

}  // namespace airdma::io::raw
