// SPDX-License-Identifier: MIT
// Setting up the port: leases, sockets, and who accepts what.
#include "runtime/roce_state.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/process_global.h"
#include "wire/bth.h"

namespace airdma::runtime {

RoceState& RoceState::get() { return ProcessGlobal<RoceState>::get(); }

Status RoceState::open() {
  if (is_opened() && udp_error(false) == 0 && udp_error(true) == 0) return {};
  bool tried = false;
  {
    std::lock_guard lock(mutex_);
    if (!is_opened()) {
      if (auto status = open_once(); !status) return status;
    }
    for (const bool v6 : {false, true}) {
      if (inlet(v6) != nullptr) continue;
      open_family(v6);
      tried = true;
    }
    opened_.store(true, std::memory_order_release);
  }
  if (tried) steering_->suspect();
  return {};
}

Status RoceState::open_once() {
  const auto progress = Progress::start();
  if (!progress) return std::unexpected(progress.error());
  progress_ = *progress;
  if (!peers_) peers_ = std::make_shared<LocalPeers>(*progress_);
  if (!addresses_) addresses_ = LocalAddresses::create(*progress_);
  if (!steering_) {
    auto steering = Steering::create(*progress_, *this);
    if (!steering) return std::unexpected(steering.error());
    steering_ = std::move(*steering);
  }
  return leases_.empty() ? add_lease() : Status{};
}

// Without it, the family works between the processes of this host.
void RoceState::open_family(bool v6) {
  Family& family = families_[v6];
  const int number = v6 ? AF_INET6 : AF_INET;
  auto socket = io::UdpSocket::open(number, wire::kRoceUdpPort, true);
  if (!socket) {
    const int error = socket.error().code;
    if (family.error.exchange(error) != error) {
      AIRDMA_LOG_ERROR("UDP port %u over IPv%d cannot be had (errno %d)%s", wire::kRoceUdpPort,
                       v6 ? 6 : 4, error,
                       error == EADDRINUSE
                           ? ": another user's processes or the kernel's RoCE driver "
                             "have it; RoCE devices reach programs of this user only"
                           : "");
    }
    return;
  }
  auto sender = UdpSender::open(*progress_, number);
  auto inlet = std::make_shared<UdpInlet>(*this, v6, std::move(*socket));
  if (!sender || !inlet->begin()) {
    family.error = sender ? ENOMEM : sender.error().code;
    return;
  }
  family.error = 0;
  family.sender = std::move(*sender);
  family.inlet = std::move(inlet);
  family.sender_now.store(family.sender.get(), std::memory_order_release);
  family.inlet_now.store(family.inlet.get(), std::memory_order_release);
}

Status RoceState::add_lease() {
  auto lease = QpnLease::take();
  if (!lease) return std::unexpected(lease.error());
  sinks_.add_block((*lease)->block());
  std::shared_ptr<LocalAcceptor> acceptor;
  WatchId id = 0;
  if (auto status = accept_from((*lease)->take_listener(), acceptor, id); !status) return status;
  leases_.push_back(std::move(*lease));
  std::lock_guard lock(local_lock_);
  acceptors_.push_back(std::move(acceptor));
  return {};
}

Status RoceState::accept_from(io::LocalListener listener, std::shared_ptr<LocalAcceptor>& acceptor,
                              WatchId& id) {
  acceptor = std::make_shared<LocalAcceptor>(*this, std::move(listener));
  const auto watched = progress_->add_control(acceptor->fd(), acceptor, EPOLLIN);
  if (!watched) return std::unexpected(watched.error());
  id = *watched;
  return {};
}

Result<Qpn> RoceState::allocate_qpn() {
  if (auto status = open(); !status) return std::unexpected(status.error());
  std::lock_guard lock(mutex_);
  for (const auto& lease : leases_) {
    if (const auto qpn = lease->allocate()) return *qpn;
  }
  if (auto status = add_lease(); !status) return std::unexpected(status.error());
  steering_->suspect();
  return *leases_.back()->allocate();
}

void RoceState::release_qpn(Qpn qpn) {
  sinks_.clear(qpn);
  std::lock_guard lock(mutex_);
  for (const auto& lease : leases_) {
    if (lease->block() == QpnLease::block_of(qpn)) lease->release(qpn);
  }
}

std::uint32_t RoceState::first_block() {
  std::lock_guard lock(mutex_);
  return leases_.front()->block();
}

PortReport RoceState::report() {
  PortReport report;
  if (!open()) return report;
  steering_->check();
  report.ipv4_error = udp_error(false);
  report.ipv6_error = udp_error(true);
  report.ipv4_steered = steering_->steered(false);
  report.ipv6_steered = steering_->steered(true);
  for (const bool v6 : {true, false}) {
    if (UdpInlet* one = inlet(v6)) {
      report.receive_buffer_bytes = one->socket().receive_buffer_bytes();
    }
    if (UdpSender* one = sender(v6)) report.segmentation = one->segments();
  }
  return report;
}

// --- For Steering ---

Status RoceState::steer(bool v6, std::span<const sock_filter> program) {
  return inlet(v6)->socket().steer(program);
}

bool RoceState::send_probe(bool v6, Bytes datagram) {
  constexpr model::Gid kLoopbackV6{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  const model::Gid loopback = v6 ? kLoopbackV6 : model::Gid::from_v4({127, 0, 0, 1});
  return sender(v6)->send_probe(address_of(loopback, 0), datagram);
}

void RoceState::receive(bool v6) { inlet(v6)->drain(); }

// --- Connections of other processes ---

std::optional<io::LocalConnection> LocalAcceptor::accept() {
  std::lock_guard lock(mutex_);
  if (!listener_) return std::nullopt;
  auto connection = listener_.accept();
  return connection ? std::optional(std::move(*connection)) : std::nullopt;
}

void LocalAcceptor::close() {
  std::lock_guard lock(mutex_);
  listener_.close();
}

void LocalAcceptor::on_ready(std::uint32_t) { accept_all(); }

void LocalAcceptor::accept_all() {
  std::lock_guard lock(accepting_);
  while (auto connection = accept()) {
    const auto inlet = std::make_shared<LocalInlet>(state_, std::move(*connection));
    state_.add_local(inlet);
    if (!inlet->begin()) state_.remove_local(inlet.get());
  }
}

void RoceState::add_local(const std::shared_ptr<Inlet>& inlet) {
  std::lock_guard lock(local_lock_);
  local_inlets_.push_back(inlet);
}

void RoceState::remove_local(const Inlet* inlet) {
  std::shared_ptr<Inlet> last_reference;
  std::lock_guard lock(local_lock_);
  const auto found = std::ranges::find(local_inlets_, inlet, &std::shared_ptr<Inlet>::get);
  if (found == local_inlets_.end()) return;
  last_reference = std::exchange(*found, local_inlets_.back());
  local_inlets_.pop_back();
}

void RoceState::settle_local() {
  const auto copied = [&](const auto& of) {
    std::lock_guard lock(local_lock_);
    return of;
  };
  for (const auto& acceptor : copied(acceptors_)) acceptor->accept_all();
  for (const auto& inlet : copied(local_inlets_)) inlet->settle();
}

}  // namespace airdma::runtime
