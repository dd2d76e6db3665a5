// SPDX-License-Identifier: MIT
// The rest of a stream whose queue pair is gone: sends what was framed, then FIN, and reads until
// the peer's FIN, because closing a socket with unread bytes resets the connection and takes what
// the peer has not read yet with it. Bounded in time. Driven by the progress thread.
#pragma once

#include <memory>
#include <mutex>

#include "io/tcp_socket.h"
#include "runtime/backlog.h"
#include "runtime/progress.h"

namespace airdma::runtime {

class LingeringSocket : public Pollable, public std::enable_shared_from_this<LingeringSocket> {
 public:
  /// `backlog` is still to be sent; it may be empty.
  static void start(Progress& progress, io::TcpSocket socket, Backlog backlog);
  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  explicit LingeringSocket(Progress& progress) : progress_(progress) {}
  bool send_rest();
  bool read_rest();
  void finish();

  Progress& progress_;
  std::mutex mutex_;  // start() against the progress thread
  WatchId watch_ = 0;
  io::TcpSocket socket_;
  Backlog backlog_;
  bool shutdown_sent_ = false;
};

}  // namespace airdma::runtime
