// SPDX-License-Identifier: MIT
// A queue pair at work: its rings, its engine, its TCP connection, and the rule of who drives them.
// Whoever posts, polls or is woken by epoll takes the transport with a try-lock and does what there
// is to do; a thread that does not get it leaves a mark that makes the holder look again.
// Thread-safe. Owned by shared_ptr: the verbs object holds one, the progress thread another while
// a stream is open.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/bytes.h"
#include "base/memory_reserve.h"
#include "base/spin_lock.h"
#include "engine/iwarp/endpoint.h"
#include "io/tcp_socket.h"
#include "model/completion.h"
#include "model/memory.h"
#include "model/qp_state.h"
#include "model/work.h"
#include "runtime/completion_queue.h"
#include "runtime/io_buffer.h"
#include "runtime/post_burst.h"
#include "runtime/progress.h"
#include "runtime/shared_receive_queue.h"
#include "trace/tcp_tap.h"

namespace airdma::runtime {

using model::QpState;

/// Told about what happens to a queue pair. Called on the progress thread, never with a runtime
/// lock held; not after the observer was removed.
class QueuePairObserver {
 public:
  virtual void on_qp_event(model::QpEvent event) = 0;

 protected:
  ~QueuePairObserver() = default;
};

/// The connection manager's side of the same.
class StreamObserver {
 public:
  /// The stream is over in both directions or broke; the queue pair is in ERR. Once per stream.
  virtual void on_stream_closed() = 0;

 protected:
  ~StreamObserver() = default;
};

struct QueuePairConfig {
  Qpn qpn;
  PdId pd;
  std::uint32_t max_send_wr = 1;
  std::uint32_t max_recv_wr = 1;
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_recv_sge = 1;
  std::uint32_t max_inline_data = 0;
  std::shared_ptr<SharedReceiveQueue> shared_receives = nullptr;  // in place of receives of its own
};

class QueuePair : public Pollable, public std::enable_shared_from_this<QueuePair> {
 public:
  /// The table and the completion queues outlive the queue pair (destroy() detaches it).
  static std::shared_ptr<QueuePair> create(const QueuePairConfig& config,
                                           const model::MemoryTable& memory,
                                           CompletionQueue& send_cq, CompletionQueue& receive_cq,
                                           std::weak_ptr<QueuePairObserver> observer);
  ~QueuePair();

  [[nodiscard]] Qpn qpn() const { return config_.qpn; }
  [[nodiscard]] QpState state() const { return state_.load(std::memory_order_acquire); }

  // Posting. Fill slots of the ring and publish them while holding its lock, then call the
  // matching *_posted() without it.
  SpinLock& send_lock() { return send_lock_; }
  model::SendQueue& send_queue() { return send_queue_; }
  /// Not for a queue pair with shared receives.
  SpinLock& receive_lock() { return receive_lock_; }
  model::ReceiveQueue& receive_queue() { return receive_queue_; }
  /// Sends that can be posted now. With send_lock(). A request keeps its place until the program
  /// has taken its completion, as on network cards: whoever posts until the queue is full never
  /// overruns a completion queue of the same depth.
  [[nodiscard]] std::uint32_t send_room() const;
  /// `count` requests of `bytes` payload in all. They may wait for more (post_burst.h).
  void sends_posted(std::uint32_t count, std::uint64_t bytes);
  void receives_posted();

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
  /// In SQD with sends begun that are not complete.
  bool sends_draining();
  /// To ERR: flushes everything; an open stream ends with a Terminate.
  void fail();

  // The connection manager's calls.
  /// Takes over a connected socket in FPDU mode: RTS. `leftover` are bytes already read behind the
  /// MPA frame. EINVAL unless the state is INIT, RTR or RTS without a stream.
  Status start_stream(io::TcpSocket socket, const iwarp::StreamParams& params, Bytes leftover,
                      std::unique_ptr<trace::TcpTap> tap, std::weak_ptr<StreamObserver> observer);
  /// Graceful end: what is framed goes out, the rest is flushed, FIN. No effect without a stream
  /// other than moving the queue pair to ERR.
  void disconnect();
  /// Aborts the stream, detaches from the completion queues, forgets all work. Last call.
  void destroy();
  /// Whether the program has taken from its completion queues what succeeded here. True after
  /// destroy().
  bool successes_seen();

  // Progress.
  /// Does what there is to do for a program that polls: reads until something completes.
  void drive_polling();
  /// A completion queue was overrun: the queue pair goes to ERR as soon as its transport is free.
  void fail_soon();
  /// Receives that it waited for were posted to its shared receive queue.
  void shared_receives_posted() { drive(kReceives); }
  void on_ready(std::uint32_t events) override;
  void on_deadline() override;
  void on_flush(bool overdue) override;
  bool still_polled() override { return polled_.exchange(false, std::memory_order_relaxed); }
  void on_watched_again() override { left_to_poller_.store(false, std::memory_order_relaxed); }

 private:
  /// What a thread wants done; marks for the thread that holds the transport.
  enum Work : std::uint32_t {
    kTransmit = 1,  // work was posted, or the socket has room
    kReceive = 2,   // the socket has bytes
    kReceives = 4,  // receives were posted
    kDeadline = 8,
    kFail = 16,
    kPoll = 32,    // with kReceive: stop at the first completion
    kHangUp = 64,  // the peer will send no more than what is there
  };

  QueuePair(const QueuePairConfig& config, const model::MemoryTable& memory,
            CompletionQueue& send_cq, CompletionQueue& receive_cq,
            std::weak_ptr<QueuePairObserver> observer);

  void renew_endpoint();
  [[nodiscard]] bool hold_posts(std::uint32_t count, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t polls() const { return send_cq_.polls() + receive_cq_.polls(); }
  void drive(std::uint32_t work);
  /// Runs `action` holding the transport, then does the work it and others left.
  template <class Action>
  void with_transport(Action action) {
    const MustNotRunOut memory;  // there is no way back from half of it
    {
      std::lock_guard lock(transport_lock_);
      now_ = Progress::now();
      action();
      pump(pending_.exchange(0, std::memory_order_acq_rel));
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (pending_.load(std::memory_order_relaxed) != 0) drive(0);
  }
  // All below: by the thread that holds transport_lock_.
  void pump(std::uint32_t work);
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
  bool flush_backlog();
  bool send_some(Bytes bytes, std::size_t& sent);
  void update_stall();
  void update_pause();
  [[nodiscard]] bool receives_waiting() const;
  void on_hang_up();
  bool drain_completions();
  void release_unsignaled(std::uint64_t completions);
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

  const QueuePairConfig config_;
  const model::MemoryTable& memory_;
  CompletionQueue& send_cq_;
  CompletionQueue& receive_cq_;
  const std::weak_ptr<QueuePairObserver> observer_;
  std::atomic<QpState> state_{QpState::kReset};
  model::AccessMask remote_access_ = iwarp::EndpointConfig{}.remote_access;

  SpinLock send_lock_;
  SpinLock receive_lock_;
  model::SendQueue send_queue_;
  std::atomic<std::uint64_t> sends_released_{0};  // places given back since creation or reset
  std::uint64_t sends_drained_ = 0;               // head of the queue at the last drain
  model::ReceiveQueue receive_queue_;

  PostBurst burst_;
  std::atomic<bool> flush_listed_{false};  // the progress thread will call on_flush()

  SpinLock transport_lock_;
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> stalled_{false};  // messages wait in the endpoint for receives
  bool paused_ = false;               // so many that nothing is read meanwhile
  std::atomic<bool> polled_{false};   // since still_polled()
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
  bool bulk_ = false;  // much arrived at once: read into a large buffer
  IoBuffer backlog_;   // framed, not yet taken by TCP
  std::size_t backlog_begin_ = 0;
  std::size_t backlog_end_ = 0;
  bool receive_ended_ = false;  // the peer's FIN has come
  bool hung_up_ = false;        // epoll has told of it: no further edge comes, so read to the end
  bool silent_write_ = false;   // the peer wrote since note_silent_write()
  bool shutdown_sent_ = false;
  bool ended_here_ = false;  // this program, not the peer, ended the stream
  bool destroyed_ = false;
  Time now_{};  // of the current pump
  Time linger_until_ = Time::max();
  Time deadline_set_ = Time::max();
  Time last_success_ = Time::min();
  std::uint64_t send_success_ = 0;  // positions in the completion queues
  std::uint64_t receive_success_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace airdma::runtime
