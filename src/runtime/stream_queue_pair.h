// SPDX-License-Identifier: MIT
// A queue pair over one TCP connection: its engine, its socket, and how the connection manager
// gives it one and takes it away.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "engine/iwarp/endpoint.h"
#include "io/tcp_socket.h"
#include "runtime/backlog.h"
#include "runtime/full_socket.h"
#include "runtime/io_buffer.h"
#include "runtime/queue_pair.h"
#include "trace/tcp_tap.h"

namespace airdma::runtime {

/// The connection manager's side of a stream.
class StreamObserver {
 public:
  /// The stream is over in both directions or broke; the queue pair is in ERR. Once per stream.
  virtual void on_stream_closed() = 0;

 protected:
  ~StreamObserver() = default;
};

class StreamQueuePair final : public QueuePair {
 public:
  /// The table and the completion queues outlive the queue pair (destroy() detaches it).
  static std::shared_ptr<StreamQueuePair> create(const QueuePairConfig& config,
                                                 const model::MemoryTable& memory,
                                                 CompletionQueue& send_cq,
                                                 CompletionQueue& receive_cq,
                                                 std::weak_ptr<QueuePairObserver> observer);
  ~StreamQueuePair() override;

  void sends_posted(std::uint32_t count, std::uint64_t bytes) override;
  void receives_posted() override;
  bool sends_draining() override;
  /// An open stream ends with a Terminate.
  void fail() override;
  void destroy() override;

  // State, as ibv_modify_qp wants it (legality of the transition is the caller's business).
  /// RESET, INIT: sets the state. From a state with a stream RESET aborts the stream; work is
  /// forgotten without completions.
  void set_state(QpState state);
  /// INIT to RTR or RTR to RTS, by a program that moves the queue pair itself. A connection may
  /// have brought it to RTS meanwhile, and that stands. False when it has left these states.
  bool step(QpState from, QpState to);
  /// Takes effect at once, on a live connection too.
  void set_remote_access(model::AccessMask access);
  /// RTS to SQD: no further send is begun. `notify`: kSqDrained when those begun are complete.
  /// False when the queue pair has left RTS meanwhile.
  bool hold_sends(bool notify);
  /// SQD to RTS. False when the queue pair has left SQD meanwhile.
  bool resume_sends();

  // The connection manager's calls.
  /// Takes over a connected socket in FPDU mode: RTS. `leftover` are bytes already read behind the
  /// MPA frame. EINVAL unless the state is INIT, RTR or RTS without a stream.
  Status start_stream(io::TcpSocket socket, const iwarp::StreamParams& params, Bytes leftover,
                      std::unique_ptr<trace::TcpTap> tap, std::weak_ptr<StreamObserver> observer);
  /// Graceful end: what is framed goes out, the rest is flushed, FIN. No effect without a stream
  /// other than moving the queue pair to ERR.
  void disconnect();
  /// Whether the program has taken from its completion queues what succeeded here. True after
  /// destroy().
  bool successes_seen();

  // Progress.
  void drive_polling() override;
  void on_ready(std::uint32_t events) override;
  bool still_polled() override {
    const bool polled = polled_.exchange(false, std::memory_order_relaxed);
    return polled || receiving_.load(std::memory_order_relaxed);
  }
  void on_watched_again() override { left_to_poller_.store(false, std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kPoll = kFirstOwn;        // kReceive: until the first completion
  static constexpr std::uint32_t kHangUp = kFirstOwn * 2;  // the peer will send no more
  static constexpr std::uint32_t kRoom = kFirstOwn * 4;    // the socket takes something again

  StreamQueuePair(const QueuePairConfig& config, const model::MemoryTable& memory,
                  CompletionQueue& send_cq, CompletionQueue& receive_cq,
                  std::weak_ptr<QueuePairObserver> observer);

  void renew_endpoint();
  // All below: by the thread that holds transport_lock_.
  void pump(std::uint32_t work) override;
  void receive(bool stop_at_completion);
  enum class Received : std::uint8_t { kNothing, kAll, kMore };
  Received receive_once();
  Received receive_small();
  Received receive_bulk();
  void keep_input();
  /// Gives bytes to the engine, `fresh` of them new; returns how many it has used.
  std::size_t take(Bytes bytes, std::size_t fresh);
  [[nodiscard]] bool may_receive() const {
    return socket_ && !receive_ended_ && endpoint_->wants_input();
  }
  void leave_to_poller();
  void receive_ended(int error);
  void transmit();
  bool transmit_once(IoBuffer buffer);
  bool transmit_gathered(IoBuffer buffer);
  bool send_pieces();
  bool keep_rest(std::span<const iovec> pieces);
  void send_failed(int error);
  bool flush_backlog();
  void payload_lost();
  bool send_some(Bytes bytes, std::size_t& sent);
  void update_stall();
  void update_pause();
  void on_hang_up();
  bool drain_completions();
  void note_silent_write();
  void drain_events();
  void update_stream();
  void finish_sending();
  void close_stream(bool reset);
  void log_closed() const;
  void update_deadline();
  void on_time();
  void leave_stream_behind();
  void announce_end();

  model::AccessMask remote_access_ = iwarp::EndpointConfig{}.remote_access;

  std::atomic<bool> stalled_{false};    // messages wait in the endpoint for receives
  bool paused_ = false;                 // so many that nothing is read meanwhile
  std::atomic<bool> polled_{false};     // since still_polled()
  std::atomic<bool> receiving_{false};  // a thread is at much that has come
  std::atomic<bool> left_to_poller_{false};
  SharedReceiveQueue::Waiter shared_wait_{*this};
  std::unique_ptr<iwarp::Endpoint> endpoint_;

  // The stream.
  Progress* progress_ = nullptr;
  WatchId watch_ = 0;
  io::TcpSocket socket_;
  std::unique_ptr<trace::TcpTap> tap_;
  std::weak_ptr<StreamObserver> stream_observer_;
  InputBuffer input_;
  bool bulk_ = false;     // much arrived at once: read into a large buffer
  bool gathers_ = false;  // sends large payloads from where they are
  iwarp::Gather gather_;
  Backlog backlog_;
  FullSocket full_;
  bool receive_ended_ = false;  // the peer's FIN has come
  bool hung_up_ = false;        // epoll has told of it: no further edge comes, so read to the end
  bool silent_write_ = false;   // the peer wrote since note_silent_write()
  bool shutdown_sent_ = false;
  bool ended_here_ = false;  // this program, not the peer, ended the stream
  Time linger_until_ = Time::max();
  Time deadline_set_ = Time::max();
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace airdma::runtime
