// SPDX-License-Identifier: MIT
// Abstract unix sockets between the processes of one user in one network namespace: names that are
// gone when their owner is, and connections that carry whole messages in order.
//
// Connections (SOCK_SEQPACKET) and not datagrams: the kernel vouches for who is at the other end
// of each, both ways; each has its own room, so that a process that is stopped holds up nobody
// else's messages; and its end is seen at once. Of datagram sockets a receiver queues only ten, by
// default.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "io/fd.h"

namespace airdma::io {

/// One direction of messages to or from a process of the same user.
class LocalConnection {
 public:
  /// The longest message that fits in twice the smallest limit of send buffers that systems are set
  /// up for; the kernel doubles what is asked for. Long ones carry more than short ones: 250 KiB at
  /// a time moved half as much again as 68 KiB.
  static constexpr std::size_t kMaxBytes = 250 * 1024;

  LocalConnection() = default;
  explicit LocalConnection(Fd fd) : fd_(std::move(fd)) {}
  /// To the listener of that name, which need not be awake. Errors: ECONNREFUSED (nobody has the
  /// name), EACCES (another user has), EAGAIN (too many wait to be accepted), EMFILE.
  static Result<LocalConnection> connect(std::string_view name);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }
  /// Sends one message, whole. Errors: EAGAIN (full), EPIPE and ECONNRESET (the other end is gone),
  /// EMSGSIZE (longer than the send buffer), EFAULT, ENOBUFS.
  Status send(std::span<iovec> pieces);
  /// The next message's bytes; EAGAIN, ENODATA at the end, EMSGSIZE (it did not fit and is gone).
  Result<std::size_t> receive(MutableBytes into);
  /// The other end is gone.
  [[nodiscard]] bool ended() const;

 private:
  Fd fd_;
};

/// A name and who connects to it.
class LocalListener {
 public:
  LocalListener() = default;
  /// Errors: EADDRINUSE, EMFILE.
  static Result<LocalListener> open(std::string_view name);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }
  Fd release() { return std::move(fd_); }
  /// The next connection of a process of this user; those of others are closed. EAGAIN.
  Result<LocalConnection> accept();

 private:
  explicit LocalListener(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

/// All abstract names of this network namespace that begin with `prefix` and have a listener, as
/// /proc/net/unix tells: whose they are is not known. Empty where it cannot be read.
std::vector<std::string> local_names(std::string_view prefix);

}  // namespace airdma::io
