// SPDX-License-Identifier: MIT
// Records one TCP connection that carries MPA as packets in a pcapng file.
//
// The bytes are those given to and taken from the kernel's TCP; a TcpTap puts Ethernet, IP and TCP
// around them, opening handshake, acknowledgements and closing included, one packet per MPA frame
// or FPDU, so that a reader sees each RDMAP message at a glance.
//
// AIRDMA_TRACE=FILE turns tracing on. All processes that inherit it append to the one file. When
// both ends of a connection would record it there, the first to open its tap does: it holds the
// abstract unix socket "airdma/trace/...", named after file and connection, until it closes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/bytes.h"
#include "trace/fpdu_splitter.h"
#include "trace/frame.h"
#include "trace/pcapng.h"

struct sockaddr_storage;

namespace airdma::trace {

/// One connection. Not thread-safe: whoever owns the connection calls it.
class TcpTap {
 public:
  /// Unix time in nanoseconds.
  using Clock = std::function<std::uint64_t()>;

  /// Writes the three-way handshake; `initiator` says whether this side sent the SYN. `claim` is a
  /// descriptor that the tap closes at its end, or -1.
  TcpTap(PcapngFile& file, const Host& local, const Host& peer, bool initiator, Clock clock,
         int claim = -1);
  TcpTap(const TcpTap&) = delete;
  TcpTap& operator=(const TcpTap&) = delete;
  /// Ends the recording without closing the connection.
  ~TcpTap();

  /// Bytes that the socket took, or gave, in stream order. Any cut will do.
  void sent(Bytes bytes);
  void received(Bytes bytes);
  /// The connection is over: a FIN each way, or an RST of this side. Later calls do nothing.
  void closed(bool reset);

 private:
  enum class Side : std::uint8_t { kLocal, kPeer };
  struct Half {
    Host host;
    FrameDirection direction;
    FpduSplitter splitter;
    std::uint32_t next_sequence = 0;
    std::uint32_t acknowledged = 0;  // up to where the other side's packets acknowledged
  };

  Half& half(Side side) { return side == Side::kLocal ? local_ : peer_; }
  Half& other(Side side) { return side == Side::kLocal ? peer_ : local_; }
  void stream(Side side, Bytes bytes);
  void emit_unit(Side side, Bytes unit);
  void emit(Side side, std::uint8_t flags, Bytes payload);

  PcapngFile& file_;
  Clock clock_;
  Half local_;
  Half peer_;
  int claim_;
  bool closed_ = false;
};

/// A tap on a connected socket; null when AIRDMA_TRACE is unset, its file cannot be used (logged
/// once), or the other end of the connection records it already. Cheap when unset. Thread-safe.
[[nodiscard]] std::unique_ptr<TcpTap> open_tcp_tap(const sockaddr_storage& local,
                                                   const sockaddr_storage& peer, bool initiator);

}  // namespace airdma::trace
