// SPDX-License-Identifier: MIT
#include "runtime/passive_connection.h"

#include <sys/epoll.h>

#include <cerrno>

#include "base/log.h"
#include "runtime/lingering_socket.h"
#include "runtime/stream_setup.h"

namespace airdma::runtime {

PassiveSetup::PassiveSetup(Progress& progress, io::TcpSocket socket,
                           std::weak_ptr<SetupOwner> owner)
    : progress_(progress),
      socket_(std::move(socket)),
      local_(socket_.local_address().unmapped()),
      peer_(socket_.peer_address().unmapped()),
      owner_(std::move(owner)) {}

Status PassiveSetup::begin(Duration timeout) {
  std::lock_guard lock(mutex_);
  if (answered_) return fail(ECANCELED, "accept4");  // the listener closed meanwhile
  socket_.tune_for_stream();
  tap_ = open_tap(socket_, false);
  const auto watch = progress_.add_control(socket_.fd(), shared_from_this());
  if (!watch) return std::unexpected(watch.error());
  watch_ = *watch;
  progress_.set_deadline(watch_, Progress::now() + timeout);
  progress_.watch(watch_, EPOLLIN | EPOLLRDHUP);
  return {};
}

void PassiveSetup::on_ready(std::uint32_t events) {
  const auto self = shared_from_this();
  bool whole = false;
  bool over = false;
  bool was_requested = false;
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    was_requested = requested_;
    over = was_requested ? (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 : !read_request();
    whole = requested_ && !was_requested;
    if (over) {
      answered_ = true;
      progress_.remove(watch_);
      if (tap_) tap_->closed(true);
      socket_.close();
    }
  }
  const auto owner = owner_.lock();
  if (!owner) return;
  if (over) {
    was_requested ? owner->on_setup_lost(*this) : owner->on_setup_dropped(*this);
  } else if (whole) {
    owner->on_setup_requested(self);
  }
}

// False when nothing useful can come of this connection.
bool PassiveSetup::read_request() {
  std::byte buffer[1024];
  const auto got = socket_.receive(buffer);
  if (!got) return false;
  const Bytes bytes = Bytes(buffer).first(*got);
  if (tap_ && !bytes.empty()) tap_->received(bytes);
  const std::size_t used = responder_.on_bytes(bytes);
  if (responder_.state() == mpa::SetupState::kFailed) return false;
  if (responder_.state() != mpa::SetupState::kRequested) return true;
  // RFC 5044 7.1.2: the initiator waits for the reply before it sends FPDUs.
  if (used != bytes.size()) return false;
  requested_ = true;
  progress_.set_deadline(watch_, Time::max());
  progress_.watch(watch_, EPOLLRDHUP);
  return true;
}

void PassiveSetup::on_deadline() {
  {
    std::lock_guard lock(mutex_);
    if (answered_ || requested_) return;
    answered_ = true;
    progress_.remove(watch_);
    if (tap_) tap_->closed(true);
    socket_.abort();
  }
  if (const auto owner = owner_.lock()) owner->on_setup_dropped(*this);
}

bool PassiveSetup::take_for_answer() {
  if (answered_ || !requested_) return false;
  answered_ = true;
  progress_.remove(watch_);
  return true;
}

bool PassiveSetup::send_answer() {
  const auto answer = responder_.take_transmit();
  const auto sent = socket_.send(answer);
  if (!sent || *sent != answer.size()) return false;
  if (tap_) tap_->sent(answer);
  return true;
}

Status PassiveSetup::accept(const mpa::Offer& offer, Bytes private_data,
                            std::shared_ptr<QueuePair> queue_pair,
                            std::weak_ptr<AcceptObserver> observer,
                            std::weak_ptr<StreamObserver> stream_observer) {
  std::lock_guard lock(mutex_);
  if (!take_for_answer()) return fail(ECONNRESET, "accept");
  responder_.accept(offer, private_data);
  const bool sent = send_answer();
  if (!sent || responder_.state() != mpa::SetupState::kEstablished) {
    socket_.close();
    return fail(sent ? EPROTO : ECONNRESET, "accept");
  }
  const auto params = stream_params(responder_.agreement(), false, socket_);
  if (auto status = queue_pair->start_stream(std::move(socket_), params, {}, std::move(tap_),
                                             std::move(stream_observer));
      !status) {
    return status;
  }
  progress_.defer([observer = std::move(observer), agreement = responder_.agreement()] {
    if (const auto target = observer.lock()) target->on_accepted(agreement);
  });
  return {};
}

void PassiveSetup::reject(Bytes private_data) {
  std::lock_guard lock(mutex_);
  if (!take_for_answer()) return;
  responder_.reject(private_data);
  [[maybe_unused]] const bool sent = send_answer();
  if (tap_) tap_->closed(false);
  LingeringSocket::start(progress_, std::move(socket_), {}, 0, 0);
}

void PassiveSetup::cancel() {
  std::lock_guard lock(mutex_);
  if (answered_) return;
  answered_ = true;
  progress_.remove(watch_);
  if (tap_) tap_->closed(true);
  socket_.close();
}

}  // namespace airdma::runtime
