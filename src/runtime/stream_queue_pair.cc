// SPDX-License-Identifier: MIT
// Creation, state and the calls of the verbs layer and the connection manager.
// stream_queue_pair_pump.cc has the data path.
#include "runtime/stream_queue_pair.h"

#include <cerrno>

#include "base/log.h"
#include "io/fault_handler.h"
#include "runtime/lingering_socket.h"

namespace airdma::runtime {

StreamQueuePair::StreamQueuePair(const QueuePairConfig& config, const model::MemoryTable& memory,
                                 CompletionQueue& send_cq, CompletionQueue& receive_cq,
                                 std::weak_ptr<QueuePairObserver> observer)
    : QueuePair(config, memory, send_cq, receive_cq, std::move(observer)) {
  renew_endpoint();
}

StreamQueuePair::~StreamQueuePair() = default;

std::shared_ptr<StreamQueuePair> StreamQueuePair::create(
    const QueuePairConfig& config, const model::MemoryTable& memory, CompletionQueue& send_cq,
    CompletionQueue& receive_cq, std::weak_ptr<QueuePairObserver> observer) {
  std::shared_ptr<StreamQueuePair> queue_pair(
      new StreamQueuePair(config, memory, send_cq, receive_cq, std::move(observer)));
  queue_pair->attach();
  return queue_pair;
}

void StreamQueuePair::renew_endpoint() {
  iwarp::EndpointConfig config{
      .qpn = config_.qpn, .pd = config_.pd, .remote_access = remote_access_};
  if (config_.shared_receives) {
    config.shared_receives = config_.shared_receives.get();
    config.receive_pd = config_.shared_receives->pd();
  }
  endpoint_ = std::make_unique<iwarp::Endpoint>(config, memory_, send_queue_, receive_queue_);
}

void StreamQueuePair::set_state(QpState state) {
  with_transport([&] {
    if (state == QpState::kReset) {
      ended_here_ = true;
      if (socket_) close_stream(true);
      ended_here_ = false;
      renew_endpoint();
      forget_work();
      stalled_.store(false, std::memory_order_relaxed);
      paused_ = false;
      if (config_.shared_receives) config_.shared_receives->cancel(shared_wait_);
    }
    state_.store(state, std::memory_order_release);
  });
}

bool StreamQueuePair::step(QpState from, QpState to) {
  bool taken = false;
  with_transport([&] {
    const QpState present = state();
    taken = present == from || present == QpState::kRts;
    if (present == from) state_.store(to, std::memory_order_release);
  });
  return taken;
}

void StreamQueuePair::set_remote_access(model::AccessMask access) {
  with_transport([&] {
    remote_access_ = access;
    endpoint_->set_remote_access(access);
  });
}

bool StreamQueuePair::hold_sends(bool notify) {
  bool held = false;
  with_transport([&] {
    held = state() == QpState::kRts;
    if (!held) return;
    state_.store(QpState::kSqd, std::memory_order_release);
    endpoint_->hold_sends(true, notify);
  });
  return held;
}

bool StreamQueuePair::resume_sends() {
  bool resumed = false;
  with_transport([&] {
    resumed = state() == QpState::kSqd;
    if (!resumed) return;
    state_.store(QpState::kRts, std::memory_order_release);
    endpoint_->hold_sends(false, false);
    pending_.fetch_or(kTransmit, std::memory_order_relaxed);
  });
  return resumed;
}

bool StreamQueuePair::sends_draining() {
  bool draining = false;
  with_transport([&] { draining = state() == QpState::kSqd && !endpoint_->sends_drained(); });
  return draining;
}

void StreamQueuePair::fail() {
  with_transport([&] {
    ended_here_ = static_cast<bool>(socket_);
    endpoint_->fail(now_);
    state_.store(QpState::kError, std::memory_order_release);
  });
}

Status StreamQueuePair::start_stream(io::TcpSocket socket, const iwarp::StreamParams& params,
                                     Bytes leftover, std::unique_ptr<trace::TcpTap> tap,
                                     std::weak_ptr<StreamObserver> observer) {
  auto progress = Progress::start();
  if (!progress) return std::unexpected(progress.error());
  io::watch_faults();
  Status status;
  with_transport([&] {
    const QpState state = this->state();
    const bool ready = state == QpState::kInit || state == QpState::kRtr || state == QpState::kRts;
    if (!ready || socket_ || endpoint_->state() != iwarp::EndpointState::kIdle) {
      status = airdma::fail(EINVAL, "start_stream");
      return;
    }
    auto watch = (*progress)->add_stream(socket.fd(), shared_from_this());
    if (!watch) {
      status = std::unexpected(watch.error());
      return;
    }
    progress_ = *progress;
    watch_ = *watch;
    left_to_poller_.store(false, std::memory_order_relaxed);
    socket_ = std::move(socket);
    tap_ = std::move(tap);
    stream_observer_ = std::move(observer);
    state_.store(QpState::kRts, std::memory_order_release);
    // Elsewhere the network, not copying, is what limits a stream; and a trace reads what was sent.
    gathers_ = params.within_host && !tap_;
    endpoint_->start(params, now_);
    if (!leftover.empty()) endpoint_->on_bytes(leftover, now_);
    pending_.fetch_or(kReceive | kTransmit, std::memory_order_relaxed);
  });
  return status;
}

void StreamQueuePair::disconnect() {
  with_transport([&] {
    ended_here_ = static_cast<bool>(socket_);
    transmit();  // what was held back
    endpoint_->disconnect(now_);
    state_.store(QpState::kError, std::memory_order_release);
  });
}

void StreamQueuePair::destroy() {
  detach();
  with_transport([&] {
    destroyed_ = true;
    stream_observer_.reset();
    if (socket_) {
      transmit();  // what was held back
      endpoint_->disconnect(now_);
      transmit();
      leave_stream_behind();
    }
    endpoint_->clear_completions();
    state_.store(QpState::kReset, std::memory_order_release);
  });
  if (config_.shared_receives) config_.shared_receives->cancel(shared_wait_);
  send_cq_.discard(config_.qpn);
  receive_cq_.discard(config_.qpn);
}

bool StreamQueuePair::successes_seen() {
  bool seen = true;
  with_transport([&] {
    if (!destroyed_) seen = send_cq_.seen(send_success_) && receive_cq_.seen(receive_success_);
  });
  return seen;
}

// What TCP has not taken yet still belongs to the peer: sends that completed must arrive.
void StreamQueuePair::leave_stream_behind() {
  if (!socket_) return;
  progress_->remove(watch_);
  watch_ = 0;
  input_.close();
  if (tap_) tap_->closed(false);
  tap_.reset();
  log_closed();
  LingeringSocket::start(*progress_, std::move(socket_), std::move(backlog_));
}

}  // namespace airdma::runtime
