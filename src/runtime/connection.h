// SPDX-License-Identifier: MIT
// Setting up iWARP connections: TCP, then the MPA request and reply, then the socket goes to the
// queue pair. Objects here belong to the connection manager (which owns ids, events and private
// data rules) and are driven by the progress thread.
// Callbacks come on the progress thread with no runtime lock held, never from inside a call to the
// object, and not after cancel()/close() has returned on the progress thread itself; on other
// threads one that has already begun may still finish, so observers are weak pointers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "engine/cm/mpa_connection.h"
#include "io/address.h"
#include "io/tcp_socket.h"
#include "runtime/stream_queue_pair.h"

namespace airdma::runtime {

/// The active side's outcome; exactly one of the three calls, once.
class ConnectObserver {
 public:
  /// The queue pair is in RTS and owns the stream, if there is one.
  virtual void on_connected(const mpa::Agreement& agreement, Bytes private_data) = 0;
  /// The peer's MPA reply rejects.
  virtual void on_rejected(Bytes private_data) = 0;
  /// errno of TCP (ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ECONNRESET: the peer closed during
  /// setup) or EPROTO for an MPA reply that makes no sense.
  virtual void on_connect_failed(int error) = 0;

 protected:
  ~ConnectObserver() = default;
};

/// An active connection attempt.
class ActiveConnection {
 public:
  virtual ~ActiveConnection() = default;
  /// Starts. `socket` may be bound already (or empty: any local port). The queue pair must be in
  /// INIT, or null: then the stream waits for hand_over() after on_connected. `stream_observer`
  /// hears of the stream's end after on_connected. Errors at once: EINVAL, EMFILE, ENETUNREACH, ...
  /// (then no callback comes). `timeout` bounds the whole setup.
  static Result<std::shared_ptr<ActiveConnection>> start(
      io::TcpSocket socket, const io::Address& peer, const mpa::Offer& offer, Bytes private_data,
      Duration timeout, std::shared_ptr<StreamQueuePair> queue_pair,
      std::weak_ptr<ConnectObserver> observer, std::weak_ptr<StreamObserver> stream_observer);
  [[nodiscard]] virtual io::Address local_address() const = 0;
  /// Gives the waiting stream to a queue pair. ECONNABORTED when none waits (any more).
  virtual Status hand_over(std::shared_ptr<StreamQueuePair> queue_pair) = 0;
  /// Gives up: closes the socket. Harmless at any time.
  virtual void cancel() = 0;
};

/// An incoming connection whose MPA request is complete and waits for an answer.
class PassiveConnection {
 public:
  virtual ~PassiveConnection() = default;
  [[nodiscard]] virtual const mpa::Request& request() const = 0;
  [[nodiscard]] virtual io::Address local_address() const = 0;
  [[nodiscard]] virtual io::Address peer_address() const = 0;
  /// Answers with acceptance. The queue pair must be in INIT; when the call succeeds it is in RTS
  /// and owns the stream. ECONNRESET when the peer is gone already.
  virtual Result<mpa::Agreement> accept(const mpa::Offer& offer, Bytes private_data,
                                        std::shared_ptr<StreamQueuePair> queue_pair,
                                        std::weak_ptr<StreamObserver> stream_observer) = 0;
  /// Answers with a rejection and closes. Harmless when the peer is gone.
  virtual void reject(Bytes private_data) = 0;
  /// Closes without an answer.
  virtual void cancel() = 0;
};

class ListenObserver {
 public:
  /// A complete, valid request. Requests that never complete or make no sense are dropped by the
  /// listener. When `on_request` finds the backlog full it lets the connection go (RST or FIN).
  virtual void on_request(std::shared_ptr<PassiveConnection> connection) = 0;
  /// A connection announced by on_request lost its peer before it was answered.
  virtual void on_request_lost(PassiveConnection& connection) = 0;

 protected:
  ~ListenObserver() = default;
};

class Listener {
 public:
  virtual ~Listener() = default;
  /// Listens on a bound socket. `setup_timeout` bounds how long a peer may take to send its
  /// request; at most a fixed number of half-open setups is kept, the oldest is dropped.
  static Result<std::shared_ptr<Listener>> start(io::TcpSocket socket, int backlog,
                                                 Duration setup_timeout,
                                                 std::weak_ptr<ListenObserver> observer);
  [[nodiscard]] virtual io::Address local_address() const = 0;
  virtual void close() = 0;
};

}  // namespace airdma::runtime
