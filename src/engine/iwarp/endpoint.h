// SPDX-License-Identifier: MIT
// One end of an iWARP stream for one queue pair: MPA framing (RFC 5044), DDP (RFC 5041) and RDMAP
// (RFC 5040, RFC 7306) above a byte stream it does not own. Sans-IO: bytes and time come in as
// parameters; bytes to send, completions, events and a deadline are drained after every input.
// Not here: connection setup (engine/cm), sockets and threads (runtime), order across queue pairs.
// One progress agent drives it at a time; not thread-safe, except that work may be published to
// the two rings by other threads at any moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/time.h"
#include "engine/iwarp/gather.h"
#include "model/completion.h"
#include "model/memory.h"
#include "model/work.h"

namespace airdma::iwarp {

/// Ready-to-receive frame of peer-to-peer mode (RFC 6581 9.2).
enum class Rtr : std::uint8_t { kNone, kSend, kWrite, kRead };

/// Fixed properties of the queue pair.
struct EndpointConfig {
  Qpn qpn;
  PdId pd;
  model::AccessMask remote_access = model::kAccessRemoteRead | model::kAccessRemoteWrite |
                                    model::kAccessRemoteAtomic;  // what the QP lets peers do
  /// Where receives come from instead of the receive queue, and the domain of their buffers. The
  /// queue then has one slot, for the receive that is being filled; nobody posts to it.
  model::SharedReceives* shared_receives = nullptr;
  PdId receive_pd{};
};

/// What connection setup agreed on.
struct StreamParams {
  bool initiator = false;     // opened the connection
  bool within_host = false;   // the peer is on this host: nothing damages bytes on the way
  bool crc = true;            // FPDUs carry a CRC32C that is checked
  bool send_markers = false;  // the peer wants markers in what we send
  bool receive_markers = false;
  std::uint16_t ird = 1;         // READs the peer may have outstanding with us
  std::uint16_t ord = 1;         // READs we may have outstanding with the peer
  std::size_t max_ulpdu = 1440;  // bytes of ULPDU per FPDU we send, at most 65535
  Rtr rtr = Rtr::kNone;          // initiator: send it first; responder: swallow it
  /// Responder without an RTR frame: how long after start to hold our first FPDU for the
  /// initiator's. RFC 5044 7.1.2 wants the initiator first; programs that wait for us would hang.
  Duration first_fpdu_grace = std::chrono::milliseconds(10);
  /// Initiator: when the peer has sent nothing so long after our first FPDU, a zero-length WRITE
  /// follows, because some peers miss what arrives right behind their MPA reply; two more after
  /// five times as long each, while nothing comes. Duration::max(): the peer is known not to.
  Duration nudge_after = std::chrono::milliseconds(20);
};

enum class EndpointState : std::uint8_t {
  kIdle,         // no stream yet; work may be posted
  kOperational,  // full operation
  kError,        // the queue pair is in ERR: everything posted is flushed
};

/// What the driver should do with the stream once everything from poll_transmit is sent.
enum class StreamRequest : std::uint8_t {
  kKeep,
  kShutdown,  // send a FIN, go on reading until the peer's (its bytes are ignored)
  kAbort,     // reset the connection
};

/// How the stream's receive direction ended.
enum class StreamEnd : std::uint8_t { kFin, kReset };

/// Counters for people.
struct EndpointStats {
  std::uint64_t fpdus_sent = 0;
  std::uint64_t fpdus_received = 0;
  std::uint64_t payload_sent = 0;  // bytes of SEND, WRITE and READ response payload
  std::uint64_t payload_received = 0;
  std::uint64_t payload_written = 0;  // of payload_received, what RDMA WRITEs of the peer placed
};

class EndpointImpl;

class Endpoint {
 public:
  /// The table and the rings outlive the endpoint.
  Endpoint(const EndpointConfig& config, const model::MemoryTable& memory,
           model::SendQueue& send_queue, model::ReceiveQueue& receive_queue);
  ~Endpoint();

  // Inputs. Each may change state; none performs I/O.
  /// The stream is in FPDU mode from here on. Only in kIdle.
  void start(const StreamParams& params, Time now);
  /// Bytes from the peer, any cut. All are used (an incomplete FPDU is kept inside), unless too
  /// many messages wait for receives: then the rest is kept inside too and wants_input() says
  /// false, so the driver stops reading and TCP holds the peer back.
  void on_bytes(Bytes bytes, Time now);
  /// As on_bytes, but leaves an incomplete FPDU at the end with the caller, who can then receive
  /// behind it and need not copy it: returns the bytes used, and the next call begins with the
  /// others.
  [[nodiscard]] std::size_t take_bytes(Bytes bytes, Time now);
  /// TCP has taken `bytes` more of what poll_transmit produced: sends complete by it.
  void on_transmitted(std::size_t bytes, Time now);
  /// The peer's direction of the stream ended. When messages wait for receives, they may still be
  /// posted for a while before that ends everything; not when it is told a second time, or while
  /// wants_input() says false, because then the driver has given them that time.
  void on_stream_end(StreamEnd end, Time now);
  /// Receives were posted. Needed while wants_receives() says true.
  void on_receives_posted(Time now);
  void on_deadline(Time now);
  /// The program disconnects or destroys the connection: what is already framed is still sent,
  /// everything else is flushed, then kShutdown.
  void disconnect(Time now);
  /// The queue pair was moved to ERR by its program (or has lost its CQ): flush, and end the stream
  /// with a Terminate where one is possible. Also works in kIdle.
  void fail(Time now);

  /// What the queue pair lets its peer do from now on.
  void set_remote_access(model::AccessMask access);
  /// Held: work requests that were begun are carried out, no other is begun. `notify`: kSqDrained
  /// is reported when those are complete.
  void hold_sends(bool held, bool notify);

  // Outputs, drained after every input and after work was posted.
  /// False when poll_transmit would give nothing and change nothing: so that a driver which is
  /// asked often need not find it room. True promises nothing.
  [[nodiscard]] bool may_transmit() const;
  /// Frames as much as fits into `out`; returns the bytes written, 0 when there is nothing to send.
  /// Call until 0. 64 KiB + 64 is the least useful size of `out`.
  [[nodiscard]] std::size_t poll_transmit(MutableBytes out, Time now);
  /// The same, but large payloads of SENDs and WRITEs are left where they are. The driver clears
  /// `gather` as soon as TCP has taken its pieces or the driver has copied them, in the same turn.
  [[nodiscard]] std::size_t poll_transmit(Gather& gather, Time now);
  /// A piece of memory was gone when it was to be sent: the request it belongs to fails, and the
  /// stream with it.
  void on_payload_lost(Time now);
  /// Completions since the last clear, in order. In kError this also flushes what was posted since.
  [[nodiscard]] std::span<const model::Completion> completions();
  void clear_completions();
  /// Affiliated asynchronous events, oldest first; after the completions.
  [[nodiscard]] std::optional<model::QpEvent> poll_event();
  [[nodiscard]] std::optional<Time> next_deadline() const;
  [[nodiscard]] bool wants_input() const;
  /// Messages wait for receives.
  [[nodiscard]] bool wants_receives() const;
  /// No work request that was begun is incomplete.
  [[nodiscard]] bool sends_drained() const;
  [[nodiscard]] EndpointState state() const;
  [[nodiscard]] StreamRequest stream_request() const;
  [[nodiscard]] const EndpointStats& stats() const;
  /// Text of the reason the stream failed, for logs ("" when it did not): a string literal.
  [[nodiscard]] const char* failure() const;

 private:
  std::unique_ptr<EndpointImpl> impl_;
};

}  // namespace airdma::iwarp
