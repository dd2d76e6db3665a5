// SPDX-License-Identifier: MIT
#include "runtime/passive_connection.h"

#include <sys/epoll.h>

#include <cerrno>

#include "base/log.h"
#include "runtime/lingering_socket.h"
#include "runtime/stream_setup.h"

namespace airdma::runtime {

PassiveSetup::PassiveSetup(Progress& progress, io::TcpSocket socket, const io::Address& peer,
                           std::weak_ptr<SetupOwner> owner)
    : progress_(progress),
      socket_(std::move(socket)),
      ends_{.local = socket_.local_address().unmapped(), .peer = peer.unmapped()},
      owner_(std::move(owner)) {}

void PassiveSetup::begin(Duration timeout) {
  Outcome outcome = Outcome::kDropped;
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;  // the listener closed meanwhile
    socket_.tune_for_stream(ends_.local, ends_.peer);
    tap_ = open_tap(ends_, false);
    if (!read_request() || !start_watching(timeout)) {
      end();
    } else {
      outcome = requested_ ? Outcome::kRequested : Outcome::kGoesOn;
    }
  }
  tell(outcome);
}

bool PassiveSetup::start_watching(Duration timeout) {
  const auto watch = progress_.add_control(socket_.fd(), shared_from_this(),
                                           requested_ ? EPOLLRDHUP : EPOLLIN | EPOLLRDHUP);
  if (!watch) return false;
  watch_ = *watch;
  if (!requested_) progress_.set_deadline(watch_, Progress::now() + timeout);
  return true;
}

void PassiveSetup::on_ready(std::uint32_t events) {
  Outcome outcome = Outcome::kGoesOn;
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    if (requested_) {
      const bool left = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      if (left) outcome = Outcome::kLost;
    } else if (!read_request()) {
      outcome = Outcome::kDropped;
    } else if (requested_) {
      progress_.set_deadline(watch_, Time::max());
      progress_.watch(watch_, EPOLLRDHUP);
      outcome = Outcome::kRequested;
    }
    if (outcome == Outcome::kLost || outcome == Outcome::kDropped) end();
  }
  tell(outcome);
}

void PassiveSetup::end() {
  answered_ = true;
  progress_.remove(watch_);
  if (tap_) tap_->closed(true);
  socket_.close();
}

void PassiveSetup::tell(Outcome outcome) {
  const auto self = shared_from_this();
  const auto owner = owner_.lock();
  if (!owner) return;
  switch (outcome) {
    case Outcome::kGoesOn:
      return;
    case Outcome::kRequested:
      return owner->on_setup_requested(self);
    case Outcome::kDropped:
      return owner->on_setup_dropped(*this);
    case Outcome::kLost:
      return owner->on_setup_lost(*this);
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

Result<mpa::Agreement> PassiveSetup::accept(const mpa::Offer& offer, Bytes private_data,
                                            std::shared_ptr<StreamQueuePair> queue_pair,
                                            std::weak_ptr<StreamObserver> stream_observer) {
  std::lock_guard lock(mutex_);
  if (!take_for_answer()) return fail(ECONNRESET, "accept");
  responder_.accept(offer, private_data);
  const bool sent = send_answer();
  if (!sent || responder_.state() != mpa::SetupState::kEstablished) {
    socket_.close();
    return fail(sent ? EPROTO : ECONNRESET, "accept");
  }
  const auto params = stream_params(responder_.agreement(), false, socket_, ends_);
  if (auto status = queue_pair->start_stream(std::move(socket_), params, {}, std::move(tap_),
                                             std::move(stream_observer));
      !status) {
    return std::unexpected(status.error());
  }
  return responder_.agreement();
}

void PassiveSetup::reject(Bytes private_data) {
  std::lock_guard lock(mutex_);
  if (!take_for_answer()) return;
  responder_.reject(private_data);
  [[maybe_unused]] const bool sent = send_answer();
  if (tap_) tap_->closed(false);
  LingeringSocket::start(progress_, std::move(socket_), {});
}

void PassiveSetup::cancel() {
  std::lock_guard lock(mutex_);
  if (!answered_) end();
}

}  // namespace airdma::runtime
