// SPDX-License-Identifier: MIT
// Accepts TCP connections and reads their MPA requests. What peers do before their request is whole
// never reaches the program: nonsense, silence and departures end here.
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <mutex>

#include "base/log.h"
#include "runtime/connection.h"
#include "runtime/passive_connection.h"

namespace airdma::runtime {
namespace {

// Limit: setups whose request is not whole yet. A peer that opens connections and says nothing
// costs so many descriptors at most, and a quarter of what the process may have; the oldest makes
// room.
constexpr std::size_t kMostHalfOpen = 2048;

std::size_t half_open_limit() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return kMostHalfOpen;
  return static_cast<std::size_t>(
      std::clamp<rlim_t>(descriptors.rlim_cur / 4, 1, rlim_t{kMostHalfOpen}));
}

// Peer: a flood of connections does not keep the thread from streams; epoll reports what is left.
constexpr int kAcceptsPerTurn = 64;
constexpr Duration kOutOfDescriptorsPause = std::chrono::milliseconds(50);

class TcpListener final : public Listener,
                          public SetupOwner,
                          public Pollable,
                          public std::enable_shared_from_this<TcpListener> {
 public:
  TcpListener(Progress& progress, io::TcpSocket socket, Duration setup_timeout,
              std::weak_ptr<ListenObserver> observer)
      : progress_(progress),
        socket_(std::move(socket)),
        local_(socket_.local_address()),
        setup_timeout_(setup_timeout),
        observer_(std::move(observer)) {}

  Status begin(int backlog);
  io::Address local_address() const override { return local_; }
  void close() override;

  void on_ready(std::uint32_t) override;
  void on_deadline() override;
  void on_setup_requested(const std::shared_ptr<PassiveSetup>& setup) override;
  void on_setup_dropped(PassiveSetup& setup) override;
  void on_setup_lost(PassiveSetup& setup) override;

 private:
  void take_in(io::TcpSocket socket, const io::Address& peer);
  void forget(PassiveSetup& setup);
  Result<io::TcpSocket> accept_one(io::Address& peer);

  Progress& progress_;
  std::mutex mutex_;
  bool closed_ = false;
  WatchId watch_ = 0;
  io::TcpSocket socket_;
  io::Address local_;
  Duration setup_timeout_;
  std::weak_ptr<ListenObserver> observer_;
  const std::size_t half_open_limit_ = half_open_limit();
  std::list<std::shared_ptr<PassiveSetup>> half_open_;
};

Status TcpListener::begin(int backlog) {
  std::lock_guard lock(mutex_);
  // The kernel's queue holds connections before their request; the program's backlog counts
  // requests, and is the connection manager's to keep.
  if (auto status = socket_.listen(std::max(backlog, 1024)); !status) return status;
  const auto watch = progress_.add_control(socket_.fd(), shared_from_this(), EPOLLIN);
  if (!watch) return std::unexpected(watch.error());
  watch_ = *watch;
  return {};
}

void TcpListener::close() {
  std::list<std::shared_ptr<PassiveSetup>> open;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    progress_.remove(watch_);
    socket_.close();
    open.swap(half_open_);
  }
  for (const auto& setup : open) setup->cancel();
}

Result<io::TcpSocket> TcpListener::accept_one(io::Address& peer) {
  std::lock_guard lock(mutex_);
  if (closed_) return fail(EBADF, "accept4");
  return socket_.accept(peer);
}

void TcpListener::on_ready(std::uint32_t) {
  for (int turn = 0; turn < kAcceptsPerTurn; ++turn) {
    io::Address peer;
    auto socket = accept_one(peer);
    if (socket) {
      take_in(std::move(*socket), peer);
      continue;
    }
    const int error = socket.error().code;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // The connection stays in the kernel's queue; asking again at once would spin.
      AIRDMA_LOG_ERROR("listen: cannot accept, errno %d; trying again", error);
      progress_.watch(watch_, 0);
      progress_.set_deadline(watch_, Progress::now() + kOutOfDescriptorsPause);
      return;
    }
    if (error == ECONNABORTED || error == EINTR) continue;
    return;
  }
}

void TcpListener::on_deadline() { progress_.watch(watch_, EPOLLIN); }

void TcpListener::take_in(io::TcpSocket socket, const io::Address& peer) {
  auto setup = std::make_shared<PassiveSetup>(progress_, std::move(socket), peer, weak_from_this());
  std::shared_ptr<PassiveSetup> oldest;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    half_open_.push_back(setup);
    if (half_open_.size() > half_open_limit_) {
      oldest = half_open_.front();
      half_open_.pop_front();
    }
  }
  if (oldest) oldest->cancel();
  setup->begin(setup_timeout_);
}

void TcpListener::forget(PassiveSetup& setup) {
  std::lock_guard lock(mutex_);
  half_open_.remove_if([&](const auto& one) { return one.get() == &setup; });
}

void TcpListener::on_setup_requested(const std::shared_ptr<PassiveSetup>& setup) {
  forget(*setup);
  if (const auto target = observer_.lock()) {
    target->on_request(setup);
  } else {
    setup->cancel();
  }
}

void TcpListener::on_setup_dropped(PassiveSetup& setup) {
  AIRDMA_LOG_DEBUG("listen: dropped a connection without a usable MPA request");
  forget(setup);
}

void TcpListener::on_setup_lost(PassiveSetup& setup) {
  if (const auto target = observer_.lock()) target->on_request_lost(setup);
}

}  // namespace

Result<std::shared_ptr<Listener>> Listener::start(io::TcpSocket socket, int backlog,
                                                  Duration setup_timeout,
                                                  std::weak_ptr<ListenObserver> observer) {
  auto progress = Progress::start();
  if (!progress) return std::unexpected(progress.error());
  auto listener = std::make_shared<TcpListener>(**progress, std::move(socket), setup_timeout,
                                                std::move(observer));
  if (auto status = listener->begin(backlog); !status) return std::unexpected(status.error());
  return listener;
}

}  // namespace airdma::runtime
