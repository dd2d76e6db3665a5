// SPDX-License-Identifier: MIT
// The connecting side: TCP connect, MPA request, MPA reply.
#include <sys/epoll.h>

#include <cerrno>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "runtime/connection.h"
#include "runtime/stream_setup.h"

namespace airdma::runtime {
namespace {

// Programs connect, exchange a message, and connect again while the other side still closes its
// first listener and opens the next (perftest does). A refusal is tried again after these pauses;
// who is refused for good hears it a fifth of a second later.
constexpr Duration kRefusedPauses[] = {std::chrono::milliseconds(10), std::chrono::milliseconds(40),
                                       std::chrono::milliseconds(150)};

class ActiveSetup final : public ActiveConnection,
                          public Pollable,
                          public std::enable_shared_from_this<ActiveSetup> {
 public:
  ActiveSetup(Progress& progress, io::TcpSocket socket, const mpa::Offer& offer, Bytes private_data,
              std::shared_ptr<StreamQueuePair> queue_pair, std::weak_ptr<ConnectObserver> observer,
              std::weak_ptr<StreamObserver> stream)
      : progress_(progress),
        socket_(std::move(socket)),
        initiator_(offer, private_data),
        request_(initiator_.take_transmit()),
        queue_pair_(std::move(queue_pair)),
        observer_(std::move(observer)),
        stream_observer_(std::move(stream)) {}

  Status begin(const io::Address& peer, Duration timeout);
  io::Address local_address() const override;
  Status hand_over(std::shared_ptr<StreamQueuePair> queue_pair) override;
  void cancel() override;
  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  enum class Outcome : std::uint8_t { kGoesOn, kConnected, kRejected, kFailed };

  // With the lock held.
  Status register_at(int fd, Time deadline, std::uint32_t events);
  Status connect_tcp();
  Result<bool> send_request();
  bool retry_later(int error);
  Outcome next_attempt();
  Outcome on_tcp_connected();
  Outcome read_reply();
  Outcome established(Bytes leftover);
  Status give_stream_to(StreamQueuePair& queue_pair, Bytes leftover);
  Outcome failed(int error);
  void finish();

  /// Tells the observer, without the lock.
  void tell(Outcome outcome);

  Progress& progress_;
  // cancel() against the progress thread: all that uses the socket, whose number may be another's
  // once it is closed.
  mutable std::mutex mutex_;
  WatchId watch_ = 0;
  bool finished_ = false;
  bool tcp_connected_ = false;
  bool waits_for_queue_pair_ = false;
  bool pausing_ = false;  // between a refusal and the next attempt
  std::size_t refusals_ = 0;
  int error_ = 0;
  Time give_up_ = Time::max();
  io::TcpSocket socket_;
  Ends ends_;
  mpa::Initiator initiator_;
  std::vector<std::byte> request_;
  std::vector<std::byte> leftover_;  // read behind the reply, while the stream waits
  std::unique_ptr<trace::TcpTap> tap_;
  std::shared_ptr<StreamQueuePair> queue_pair_;
  std::weak_ptr<ConnectObserver> observer_;
  std::weak_ptr<StreamObserver> stream_observer_;
};

Status ActiveSetup::begin(const io::Address& peer, Duration timeout) {
  std::lock_guard lock(mutex_);
  ends_ = {.local = socket_.local_address(), .peer = peer};
  give_up_ = Progress::now() + timeout;
  auto status = connect_tcp();
  // A refusal is an answer of the peer: it comes as an event, like a later one.
  if (!status && retry_later(status.error().code)) status = {};
  if (!status) finished_ = true;
  return status;
}

io::Address ActiveSetup::local_address() const {
  std::lock_guard lock(mutex_);
  return ends_.local;
}

Status ActiveSetup::register_at(int fd, Time deadline, std::uint32_t events) {
  progress_.remove(std::exchange(watch_, 0));
  const auto watch = progress_.add_control(fd, shared_from_this(), events);
  if (!watch) return std::unexpected(watch.error());
  watch_ = *watch;
  progress_.set_deadline(watch_, deadline);
  return {};
}

// Registers only once the connect is under way: epoll calls an idle socket hung up. Within a host
// TCP is connected by then, and the request goes out at once.
Status ActiveSetup::connect_tcp() {
  if (auto status = socket_.connect(ends_.peer); !status) return status;
  const auto sent = send_request();
  if (!sent) return std::unexpected(sent.error());
  return register_at(socket_.fd(), give_up_, *sent ? EPOLLIN : EPOLLOUT);
}

bool ActiveSetup::retry_later(int error) {
  if (error != ECONNREFUSED || refusals_ == std::size(kRefusedPauses)) return false;
  pausing_ = true;
  return register_at(Progress::kNoDescriptor, Progress::now() + kRefusedPauses[refusals_++], 0)
      .has_value();
}

void ActiveSetup::on_deadline() {
  Outcome outcome = Outcome::kGoesOn;
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    outcome = std::exchange(pausing_, false) ? next_attempt() : failed(ETIMEDOUT);
    if (outcome != Outcome::kGoesOn) finish();
  }
  tell(outcome);
}

ActiveSetup::Outcome ActiveSetup::next_attempt() {
  const auto status = connect_tcp();
  if (status || retry_later(status.error().code)) return Outcome::kGoesOn;
  return failed(status.error().code);
}

void ActiveSetup::finish() {
  finished_ = true;
  progress_.remove(watch_);
  if (!waits_for_queue_pair_) socket_.close();
  queue_pair_.reset();
}

void ActiveSetup::tell(Outcome outcome) {
  const auto target = observer_.lock();
  if (!target) return;
  switch (outcome) {
    case Outcome::kGoesOn:
      return;
    case Outcome::kConnected:
      return target->on_connected(initiator_.agreement(), initiator_.private_data());
    case Outcome::kRejected:
      return target->on_rejected(initiator_.private_data());
    case Outcome::kFailed:
      return target->on_connect_failed(error_);
  }
}

void ActiveSetup::cancel() {
  std::lock_guard lock(mutex_);
  if (waits_for_queue_pair_ && tap_) tap_->closed(true);
  waits_for_queue_pair_ = false;
  socket_.abort();
  if (finished_) return;
  finished_ = true;
  progress_.remove(watch_);
}

Status ActiveSetup::hand_over(std::shared_ptr<StreamQueuePair> queue_pair) {
  std::lock_guard lock(mutex_);
  if (!waits_for_queue_pair_) return fail(ECONNABORTED, "connect");
  waits_for_queue_pair_ = false;
  return give_stream_to(*queue_pair, leftover_);
}

ActiveSetup::Outcome ActiveSetup::failed(int error) {
  AIRDMA_LOG_INFO("connect: failed with errno %d%s", error,
                  tcp_connected_ ? " after the request" : "");
  if (tap_) tap_->closed(true);
  error_ = error;
  return Outcome::kFailed;
}

void ActiveSetup::on_ready(std::uint32_t) {
  Outcome outcome = Outcome::kGoesOn;
  {
    std::lock_guard lock(mutex_);
    if (finished_ || pausing_) return;
    outcome = tcp_connected_ ? read_reply() : on_tcp_connected();
    if (outcome != Outcome::kGoesOn) finish();
  }
  tell(outcome);
}

ActiveSetup::Outcome ActiveSetup::on_tcp_connected() {
  if (const int error = socket_.connect_error(); error != 0) {
    return retry_later(error) ? Outcome::kGoesOn : failed(error);
  }
  const auto sent = send_request();
  if (!sent) return failed(sent.error().code);
  if (*sent) progress_.watch(watch_, EPOLLIN);
  return Outcome::kGoesOn;
}

// False while TCP is not connected yet.
Result<bool> ActiveSetup::send_request() {
  if (ends_.local.is_any()) ends_.local = socket_.local_address();
  socket_.tune_for_stream(ends_.local, ends_.peer);
  const auto sent = socket_.send(request_);
  if (!sent) return std::unexpected(sent.error());
  if (*sent == 0) return false;
  // A new connection's send buffer holds the longest request; anything else is a broken system.
  if (*sent != request_.size()) return fail(ENOBUFS, "send");
  tcp_connected_ = true;
  tap_ = open_tap(ends_, true);
  if (tap_) tap_->sent(request_);
  return true;
}

ActiveSetup::Outcome ActiveSetup::read_reply() {
  std::byte buffer[4096];
  const auto got = socket_.receive(buffer);
  if (!got) return failed(got.error().code == ENODATA ? ECONNRESET : got.error().code);
  const Bytes bytes = Bytes(buffer).first(*got);
  if (tap_ && !bytes.empty()) tap_->received(bytes);
  const std::size_t used = initiator_.on_bytes(bytes);
  switch (initiator_.state()) {
    case mpa::SetupState::kWaiting:
    case mpa::SetupState::kRequested:
      return Outcome::kGoesOn;
    case mpa::SetupState::kEstablished:
      return established(bytes.subspan(used));
    case mpa::SetupState::kRejected:
      if (tap_) tap_->closed(false);
      return Outcome::kRejected;
    case mpa::SetupState::kFailed:
      AIRDMA_LOG_INFO("connect: unusable MPA reply, reason %d",
                      static_cast<int>(initiator_.error()));
      return failed(EPROTO);
  }
  return failed(EPROTO);
}

ActiveSetup::Outcome ActiveSetup::established(Bytes leftover) {
  if (queue_pair_ == nullptr) {
    leftover_.assign(leftover.begin(), leftover.end());
    waits_for_queue_pair_ = true;
    return Outcome::kConnected;
  }
  progress_.remove(watch_);  // the queue pair registers the descriptor anew, as a stream
  const auto status = give_stream_to(*queue_pair_, leftover);
  return status ? Outcome::kConnected : failed(status.error().code);
}

Status ActiveSetup::give_stream_to(StreamQueuePair& queue_pair, Bytes leftover) {
  const auto params = stream_params(initiator_.agreement(), true, socket_, ends_);
  return queue_pair.start_stream(std::move(socket_), params, leftover, std::move(tap_),
                                 stream_observer_);
}

}  // namespace

Result<std::shared_ptr<ActiveConnection>> ActiveConnection::start(
    io::TcpSocket socket, const io::Address& peer, const mpa::Offer& offer, Bytes private_data,
    Duration timeout, std::shared_ptr<StreamQueuePair> queue_pair,
    std::weak_ptr<ConnectObserver> observer, std::weak_ptr<StreamObserver> stream_observer) {
  auto progress = Progress::start();
  if (!progress) return std::unexpected(progress.error());
  if (!socket) {
    auto fresh = io::TcpSocket::bound(io::Address::any(peer.family(), 0), {});
    if (!fresh) return std::unexpected(fresh.error());
    socket = std::move(*fresh);
  }
  auto setup = std::make_shared<ActiveSetup>(**progress, std::move(socket), offer, private_data,
                                             std::move(queue_pair), std::move(observer),
                                             std::move(stream_observer));
  if (auto status = setup->begin(peer, timeout); !status) return std::unexpected(status.error());
  return setup;
}

}  // namespace airdma::runtime
