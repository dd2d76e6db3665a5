// SPDX-License-Identifier: MIT
#include "runtime/local_peers.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "runtime/local_message.h"
#include "runtime/qpn_lease.h"
#include "runtime/roce_port.h"

namespace airdma::runtime {
namespace {

constexpr std::byte kPad[4] = {};

/// Some frames as one message.
class Message {
 public:
  explicit Message(const rocev2::PacketOrigin& origin, bool strayed = false)
      : header_(origin, strayed) {}

  /// Takes frames from the front, `most` at most, and fewer when they are long. How many.
  std::size_t fill(std::span<const Frame> frames, std::size_t most) {
    std::size_t bytes = 0;
    std::size_t count = 0;
    for (const Frame& frame : frames.first(std::min(most, frames.size()))) {
      bytes += frame.bytes;
      if (count != 0 && bytes > kPacketBytes) break;
      add(frame);
      ++count;
    }
    vectors_[0] = {&header_, header_.bytes()};
    return count;
  }
  [[nodiscard]] std::span<iovec> pieces() { return {vectors_.data(), vector_count_}; }

 private:
  static constexpr std::size_t kPacketBytes =
      io::LocalConnection::kMaxBytes - sizeof(LocalMessageHeader);

  void add(Bytes piece) {
    if (piece.empty()) return;
    vectors_[vector_count_++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  void add(const Frame& frame) {
    header_.add(frame.bytes);
    add(frame.header);
    for (const Bytes piece : frame.pieces) add(piece);
    add(Bytes(kPad).first(frame.pad_bytes));
  }

  LocalMessageHeader header_;
  std::array<iovec, 1 + kMaxFrames * 2 + kMaxFramePieces> vectors_;
  std::size_t vector_count_ = 1;
};
static_assert(kMaxFrames <= LocalMessageHeader::kMaxPackets);

}  // namespace

/// A connection that this process sends by. Nothing ever comes back by it but its end.
class LocalPeer final : public Pollable, public std::enable_shared_from_this<LocalPeer> {
 public:
  LocalPeer(LocalPeers& peers, std::uint32_t block, io::LocalConnection connection,
            bool renewed = false)
      : peers_(peers.weak_from_this()),
        progress_(peers.progress_),
        block_(block),
        renewed_(renewed),
        connection_(std::move(connection)) {}

  ~LocalPeer() {
    if (const auto peers = peers_.lock()) {
      peers->waiting_.fetch_sub(waiting_.size(), std::memory_order_relaxed);
    }
  }
  LocalPeer(const LocalPeer&) = delete;
  LocalPeer& operator=(const LocalPeer&) = delete;

  Status watch() {
    const auto id = progress_.add_control(connection_.fd(), shared_from_this(), EPOLLRDHUP);
    if (!id) return std::unexpected(id.error());
    std::lock_guard lock(lock_);
    watch_ = *id;
    if (ended_) progress_.remove(watch_);
    return {};
  }
  Status send(std::span<iovec> pieces) { return connection_.send(pieces); }

  /// Threads that poll try again by themselves (LocalPeers::retry), which costs no switch of
  /// threads for each time that the way is full. The kernel is asked when nobody polls, or after a
  /// while.
  void call_when_writable(std::weak_ptr<PacketSink> sink) {
    std::lock_guard lock(lock_);
    waiting_.push_back(std::move(sink));
    if (const auto peers = peers_.lock()) peers->waiting_.fetch_add(1, std::memory_order_relaxed);
    if (watched_) return;
    if (!progress_.delegated()) return watch_for_room();
    if (std::exchange(timed_, true)) return;
    progress_.set_deadline(watch_, Progress::now() + kTrustInPollers);
  }
  /// Who waits may try now.
  void call_waiting() {
    std::vector<std::weak_ptr<PacketSink>> batch;
    {
      std::lock_guard lock(lock_);
      batch.swap(waiting_);
    }
    if (batch.empty()) return;
    if (const auto peers = peers_.lock()) {
      peers->waiting_.fetch_sub(batch.size(), std::memory_order_relaxed);
    }
    for (const auto& weak : batch) {
      if (const auto sink = weak.lock()) sink->on_writable();
    }
  }
  [[nodiscard]] bool has_waiting() {
    std::lock_guard lock(lock_);
    return !waiting_.empty();
  }

  void on_ready(std::uint32_t events) override {
    const bool end = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    {
      std::lock_guard lock(lock_);
      if (end) {
        ended_ = true;
        progress_.remove(watch_);
      } else {
        watched_ = false;
        progress_.watch(watch_, EPOLLRDHUP);
      }
    }
    const auto peers = peers_.lock();
    if (peers && end) peers->forget(block_, this);
    call_waiting();
    if (peers && end) look_for_owner(*peers);
  }
  void on_deadline() override {
    std::lock_guard lock(lock_);
    timed_ = false;
    if (!watched_ && !waiting_.empty()) watch_for_room();
  }

 private:
  static constexpr Duration kTrustInPollers = std::chrono::milliseconds(1);

  /// A connection may end for other reasons, or a little before its owner's name: the end of the
  /// next one tells. Whoever begins later hardly chooses the same block.
  void look_for_owner(LocalPeers& peers) {
    auto again = io::LocalConnection::connect(QpnLease::name_of(block_));
    if (again && !renewed_) {
      peers.renew(block_, std::move(*again));
    } else if (!again && again.error().code == ECONNREFUSED) {
      RocePort::get().tell_process_gone(block_);
    }
  }

  /// With the lock. Level-triggered: if there is room already it is told at once.
  void watch_for_room() {
    watched_ = true;
    progress_.watch(watch_, EPOLLRDHUP | EPOLLOUT);
  }

  const std::weak_ptr<LocalPeers> peers_;
  Progress& progress_;
  const std::uint32_t block_;
  const bool renewed_;  // after one that had ended
  io::LocalConnection connection_;
  SpinLock lock_;  // all below
  WatchId watch_ = 0;
  bool ended_ = false;
  bool watched_ = false;  // for room
  bool timed_ = false;    // on_deadline() will be called
  std::vector<std::weak_ptr<PacketSink>> waiting_;
};

std::shared_ptr<LocalPeer> LocalPeers::find(std::uint32_t block) {
  std::lock_guard lock(lock_);
  const auto found = peers_.find(block);
  return found == peers_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<LocalPeer>> LocalPeers::get(std::uint32_t block) {
  if (auto peer = find(block)) return peer;
  std::lock_guard connecting(connect_mutex_);
  if (auto peer = find(block)) return peer;
  auto connection = io::LocalConnection::connect(QpnLease::name_of(block));
  if (!connection) return std::unexpected(connection.error());
  auto peer = std::make_shared<LocalPeer>(*this, block, std::move(*connection));
  if (auto status = peer->watch(); !status) return std::unexpected(status.error());
  std::lock_guard lock(lock_);
  peers_[block] = peer;
  return peer;
}

void LocalPeers::renew(std::uint32_t block, io::LocalConnection connection) {
  std::lock_guard connecting(connect_mutex_);
  if (find(block)) return;
  auto peer = std::make_shared<LocalPeer>(*this, block, std::move(connection), true);
  if (!peer->watch()) return;
  std::lock_guard lock(lock_);
  peers_[block] = std::move(peer);
}

void LocalPeers::forget(std::uint32_t block, const LocalPeer* peer) {
  std::shared_ptr<LocalPeer> last_reference;
  std::lock_guard lock(lock_);
  const auto found = peers_.find(block);
  if (found == peers_.end() || found->second.get() != peer) return;
  last_reference = std::move(found->second);
  peers_.erase(found);
}

Result<SendOutcome> LocalPeers::send(const rocev2::PacketOrigin& origin, std::uint32_t block,
                                     std::span<const Frame> frames, bool strayed) {
  std::size_t done = 0;
  std::size_t most = kMaxFrames;
  bool renewed = false;
  while (done < frames.size()) {
    const auto peer = get(block);
    if (!peer) {
      if (peer.error().code == EACCES) return std::unexpected(peer.error());
      return SendOutcome{SendStatus::kUnreachable, frames.size()};
    }
    Message message(origin, strayed);
    const std::size_t count = message.fill(frames.subspan(done), most);
    const auto status = (*peer)->send(message.pieces());
    if (status) {
      done += count;
      continue;
    }
    const int error = status.error().code;
    if (error == EAGAIN) return SendOutcome{SendStatus::kBusy, done};
    if (error == EFAULT && count == 1) return SendOutcome{SendStatus::kUnreadable, done};
    if (error == EMSGSIZE && count > 1) {
      most = count / 2;  // this system's send buffers are small
    } else if (error == EFAULT) {
      most = 1;  // which one it is is seen by sending them singly
    } else if (error == EPIPE || error == ECONNRESET || error == ECONNREFUSED) {
      forget(block, peer->get());  // who has the numbers now, if anybody does, is another
      if (std::exchange(renewed, true)) return SendOutcome{SendStatus::kUnreachable, frames.size()};
    } else {
      done += count;  // ENOBUFS, ENOMEM: lost, as in a network
    }
  }
  return SendOutcome{SendStatus::kSent, done};
}

void LocalPeers::call_when_writable(std::uint32_t block, std::weak_ptr<PacketSink> sink) {
  if (const auto peer = find(block)) return peer->call_when_writable(std::move(sink));
  progress_.defer([weak = std::move(sink)] {
    if (const auto waiting = weak.lock()) waiting->on_writable();
  });
}

void LocalPeers::retry_waiting() {
  std::array<std::shared_ptr<LocalPeer>, 8> some;
  std::size_t count = 0;
  {
    std::lock_guard lock(lock_);
    for (const auto& [block, peer] : peers_) {
      if (count < some.size() && peer->has_waiting()) some[count++] = peer;
    }
  }
  for (std::size_t i = 0; i < count; ++i) some[i]->call_waiting();
}

Status LocalPeers::send_once(std::string_view name, const rocev2::PacketOrigin& origin,
                             const Frame& frame) {
  auto connection = io::LocalConnection::connect(name);
  if (!connection) return std::unexpected(connection.error());
  Message message(origin);
  message.fill({&frame, 1}, 1);
  return connection->send(message.pieces());
}

}  // namespace airdma::runtime
