// SPDX-License-Identifier: MIT
#include "runtime/lingering_socket.h"

#include <sys/epoll.h>

namespace airdma::runtime {
namespace {

constexpr Duration kLongest = std::chrono::seconds(5);
// Peer: one that sends without end must not hold a thread here; epoll reports what is left.
constexpr int kReadsPerTurn = 16;

}  // namespace

void LingeringSocket::start(Progress& progress, io::TcpSocket socket, Backlog backlog) {
  std::shared_ptr<LingeringSocket> self(new LingeringSocket(progress));
  self->socket_ = std::move(socket);
  self->backlog_ = std::move(backlog);
  std::lock_guard lock(self->mutex_);
  if (!self->send_rest() || !self->read_rest()) return;
  const auto watch = progress.add_control(self->socket_.fd(), self);
  if (!watch) return;  // out of descriptors or memory: the socket closes now
  self->watch_ = *watch;
  progress.set_deadline(self->watch_, Progress::now() + kLongest);
  progress.watch(self->watch_, self->shutdown_sent_ ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

// False when the stream is of no more use.
bool LingeringSocket::send_rest() {
  while (!backlog_.empty()) {
    const auto sent = socket_.send(backlog_.front());
    if (!sent) return false;
    if (*sent == 0) return true;
    backlog_.use(*sent);
  }
  if (!shutdown_sent_) socket_.shutdown_send();
  shutdown_sent_ = true;
  return true;
}

bool LingeringSocket::read_rest() {
  std::byte sink[16 * 1024];
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const auto got = socket_.receive(sink);
    if (!got) return false;
    if (*got == 0) return true;
  }
  return true;
}

void LingeringSocket::on_ready(std::uint32_t) {
  std::lock_guard lock(mutex_);
  const bool sent_before = shutdown_sent_;
  if (!send_rest() || !read_rest()) {
    finish();
  } else if (shutdown_sent_ && !sent_before) {
    progress_.watch(watch_, EPOLLIN);
  }
}

void LingeringSocket::on_deadline() {
  std::lock_guard lock(mutex_);
  finish();
}

void LingeringSocket::finish() {
  if (watch_ == 0) return;
  progress_.remove(watch_);
  watch_ = 0;
  socket_.close();
}

}  // namespace airdma::runtime
