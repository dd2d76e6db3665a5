// SPDX-License-Identifier: MIT
// Non-blocking TCP sockets. Every call is one system call; errors are errno and its name.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "io/address.h"
#include "io/fd.h"

namespace airdma::io {

/// Choices of an application that reach the IP and TCP layers.
struct SocketOptions {
  bool reuse_address = false;
  bool v6_only = false;
  std::optional<int> type_of_service;
};

class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(Fd fd) : fd_(std::move(fd)) {}

  /// A socket bound to `local` (port 0: the kernel chooses). A port that is only held by
  /// connections in TIME_WAIT is free. Errors: EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE, ...
  static Result<TcpSocket> bound(const Address& local, const SocketOptions& options);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(fd_); }
  Status listen(int backlog);
  /// The next connection, non-blocking, and its peer's address; EAGAIN when there is none.
  Result<TcpSocket> accept(Address& peer);
  /// Starts connecting: EINPROGRESS is success.
  Status connect(const Address& peer);
  /// Outcome of a connect once writable: 0 or the errno it failed with.
  [[nodiscard]] int connect_error() const;
  /// Sets what `options` asks for on a socket that is bound already; no effect without one.
  void set(const SocketOptions& options);
  /// Options of a stream that carries FPDUs: no delay, fast congestion control on local paths.
  void tune_for_stream(const Address& local, const Address& peer);

  /// Bytes taken; 0 when the socket is full. Errors: ECONNRESET, EPIPE, ...
  Result<std::size_t> send(Bytes bytes);
  /// The same for pieces of memory. EFAULT: the first byte is not there to be read.
  Result<std::size_t> send(std::span<iovec> pieces);
  /// Bytes received; 0 when there are none now; ENODATA at the end of the stream.
  Result<std::size_t> receive(MutableBytes into);
  void shutdown_send();
  /// Closes with a RST instead of a FIN.
  void abort();
  void close() { fd_.reset(); }

  [[nodiscard]] Address local_address() const;
  [[nodiscard]] Address peer_address() const;
  /// Sender's maximum segment size now, 536 when unknown.
  [[nodiscard]] std::size_t segment_size() const;
  /// Whether the peer's TCP has not taken all that was sent.
  [[nodiscard]] bool has_unacknowledged() const;

 private:
  Fd fd_;
};

}  // namespace airdma::io
