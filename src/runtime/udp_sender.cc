// SPDX-License-Identifier: MIT
#include "runtime/udp_sender.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/guarded_copy.h"
#include "runtime/io_buffer.h"
#include "runtime/roce_port.h"
#include "wire/bth.h"
#include "wire/icrc.h"

namespace airdma::runtime {
namespace {

// Source ports of RoCEv2 senders are from the dynamic range (IBTA A17.3.1.2).
constexpr std::uint32_t kFirstSourcePort = 0xc000;
constexpr int kPortAttempts = 8;
// Frames up to this size are copied together in the pass that computes the ICRC: the kernel takes
// one piece faster than many small ones, and from the cache. With a path MTU of 4096 a stream would
// lose a twentieth by it, with 1024 it gains a fifth.
constexpr std::size_t kMostCopied = 2200;

wire::IpAddress ip_address(const model::Gid& gid) {
  return std::bit_cast<wire::IpAddress>(gid.bytes);
}

/// Continues a CRC over memory of the program. False when it is not there.
bool extend_over(std::uint32_t& crc, Bytes piece) {
  const std::uint32_t before = crc;
  return guarded(piece.data(), piece.size(), [&] { crc = wire::crc32_extend(before, piece); });
}

/// The same, copying them.
bool copy_over(std::uint32_t& crc, std::byte* to, Bytes piece) {
  const std::uint32_t before = crc;
  return guarded(piece.data(), piece.size(), [&] { crc = wire::crc32_copy(before, to, piece); });
}

/// A part of the frames in the form that the socket takes: messages of one or several frames each.
class Burst {
 public:
  /// `room`: for what is copied; may be empty.
  Burst(const wire::IcrcFlow& flow, MutableBytes room) : flow_(flow), room_(room) {}

  /// Takes frames from the front, as many as fit in. `most_in_run`: frames of one message. Stops in
  /// front of one that cannot be read.
  void fill(std::span<const Frame> frames, std::size_t most_in_run);
  /// Frames that were taken.
  [[nodiscard]] std::size_t frames() const { return frames_; }
  [[nodiscard]] std::span<const io::UdpMessage> messages() const {
    return {messages_.data(), message_count_};
  }
  [[nodiscard]] std::size_t frames_in(std::size_t message) const { return runs_[message]; }

 private:
  bool add(const Frame& frame, std::uint16_t identification);
  bool add_copy(const Frame& frame, std::uint16_t identification);

  const wire::IcrcFlow& flow_;
  const MutableBytes room_;
  std::size_t copied_ = 0;  // of the room
  std::array<iovec, kMaxFrames * 2 + kMaxFramePieces> vectors_;
  std::array<std::array<std::byte, 8>, kMaxFrames> trailers_;
  std::array<io::UdpMessage, io::UdpSocket::kMaxMessages> messages_;
  std::array<std::size_t, io::UdpSocket::kMaxMessages> runs_;
  std::size_t vector_count_ = 0;
  std::size_t message_count_ = 0;
  std::size_t frames_ = 0;
};

// Segments after the first (identification 0) continue the piece that they lie behind.
bool Burst::add_copy(const Frame& frame, std::uint16_t identification) {
  std::uint32_t crc = flow_.start(frame.bytes + wire::kIcrcBytes, identification);
  crc = wire::icrc_headers(crc, frame.header);
  std::byte* const begin = room_.data() + copied_;
  std::memcpy(begin, frame.header.data(), frame.header.size());
  std::byte* to = begin + frame.header.size();
  for (const Bytes piece : frame.pieces) {
    if (!copy_over(crc, to, piece)) return false;
    to += piece.size();
  }
  std::memset(to, 0, frame.pad_bytes);
  wire::store_icrc(to + frame.pad_bytes, wire::icrc_pad(crc, frame.pad_bytes));
  const std::size_t bytes = frame.bytes + wire::kIcrcBytes;
  copied_ += bytes;
  if (identification != 0) {
    iovec& last = vectors_[vector_count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == begin) {
      last.iov_len += bytes;
      return true;
    }
  }
  vectors_[vector_count_++] = {begin, bytes};
  return true;
}

// False, and nothing added, when the frame cannot be read.
bool Burst::add(const Frame& frame, std::uint16_t identification) {
  if (frame.bytes <= kMostCopied && room_.size() - copied_ >= frame.bytes + wire::kIcrcBytes) {
    return add_copy(frame, identification);
  }
  std::uint32_t crc = flow_.start(frame.bytes + wire::kIcrcBytes, identification);
  crc = wire::icrc_headers(crc, frame.header);
  std::size_t used = vector_count_;
  vectors_[used++] = {const_cast<std::byte*>(frame.header.data()), frame.header.size()};
  for (const Bytes piece : frame.pieces) {
    if (!extend_over(crc, piece)) return false;
    vectors_[used++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  auto& trailer = trailers_[frames_];
  trailer.fill(std::byte{0});
  wire::store_icrc(trailer.data() + frame.pad_bytes, wire::icrc_pad(crc, frame.pad_bytes));
  vectors_[used++] = {trailer.data(), frame.pad_bytes + wire::kIcrcBytes};
  vector_count_ = used;
  return true;
}

void Burst::fill(std::span<const Frame> frames, std::size_t most_in_run) {
  std::size_t run = 0;        // frames of the message being made
  std::size_t run_start = 0;  // its first vector
  std::size_t segment = 0;    // its frames' size, the last one's apart
  std::size_t run_bytes = 0;
  const auto close_run = [&] {
    if (run == 0) return;
    messages_[message_count_] = {
        .pieces = {vectors_.data() + run_start, vector_count_ - run_start},
        .segment_bytes = static_cast<std::uint16_t>(run > 1 ? segment : 0)};
    runs_[message_count_++] = run;
    run = 0;
  };
  for (const Frame& frame : frames) {
    const std::size_t bytes = frame.bytes + wire::kIcrcBytes;
    if (run != 0 &&
        (bytes > segment || run == most_in_run || run_bytes + bytes > io::UdpSocket::kMaxBytes)) {
      close_run();
    }
    if (message_count_ == messages_.size() || frames_ == kMaxFrames) break;
    const std::size_t before = vector_count_;
    if (!add(frame, static_cast<std::uint16_t>(run))) break;
    if (run == 0) {
      run_start = before;
      segment = bytes;
      run_bytes = 0;
    }
    ++run;
    ++frames_;
    run_bytes += bytes;
    if (bytes < segment) close_run();
  }
  if (message_count_ < messages_.size()) close_run();
}

io::UdpPath path_to(const model::AddressVector& to, bool by_interface) {
  return io::UdpPath({.source = address_of(to.source, to.interface_index),
                      .destination = address_of(to.destination, to.interface_index),
                      .interface_index = by_interface ? to.interface_index : 0,
                      .traffic_class = to.traffic_class,
                      .hop_limit = to.hop_limit,
                      .flow_label = to.flow_label});
}

}  // namespace

io::Address address_of(const model::Gid& gid, std::uint32_t interface_index) {
  if (gid.is_v4()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(wire::kRoceUdpPort);
    const auto bytes = gid.v4();
    std::memcpy(&in.sin_addr, bytes.data(), bytes.size());
    return *io::Address::from(reinterpret_cast<const sockaddr*>(&in));
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(wire::kRoceUdpPort);
  std::memcpy(&in6.sin6_addr, gid.bytes.data(), gid.bytes.size());
  if (gid.is_link_local() || gid.is_multicast()) in6.sin6_scope_id = interface_index;
  return *io::Address::from(reinterpret_cast<const sockaddr*>(&in6));
}

Result<std::shared_ptr<UdpSender>> UdpSender::open(Progress& progress, int family) {
  auto socket = io::UdpSocket::open(family, 0, false);
  for (int i = 0; i < kPortAttempts; ++i) {
    std::uint16_t random = 0;
    [[maybe_unused]] const ssize_t got = ::getrandom(&random, sizeof random, GRND_NONBLOCK);
    const auto port = static_cast<std::uint16_t>(random | kFirstSourcePort);
    auto chosen = io::UdpSocket::open(family, port, false);
    if (!chosen) continue;
    socket = std::move(chosen);
    break;
  }
  if (!socket) return std::unexpected(socket.error());
  return std::shared_ptr<UdpSender>(new UdpSender(progress, std::move(*socket)));
}

bool UdpSender::takes_segments(const model::Gid& destination) {
  if (!refused_.load(std::memory_order_relaxed)) return true;
  std::lock_guard lock(lock_);
  return std::ranges::find(refusing_, destination) == refusing_.end();
}

void UdpSender::note_refusal(const model::Gid& destination) {
  std::lock_guard lock(lock_);
  refusing_[next_refusing_++ % refusing_.size()] = destination;
  refused_.store(true, std::memory_order_relaxed);
}

SendOutcome UdpSender::send(const model::AddressVector& to, bool by_interface,
                            std::span<const Frame> frames) {
  const io::UdpPath path = path_to(to, by_interface);
  const wire::IcrcFlow flow(ip_address(to.source), ip_address(to.destination), socket_.port());
  std::size_t most_in_run =
      takes_segments(to.destination) ? io::UdpSocket::kMaxSegments : std::size_t{1};
  const IoBuffer buffer = IoBuffer::borrow();
  std::size_t done = 0;
  while (done < frames.size()) {
    Burst burst(flow, buffer ? buffer.bytes() : MutableBytes{});
    burst.fill(frames.subspan(done), most_in_run);
    if (burst.frames() == 0) return {SendStatus::kUnreadable, done};
    const auto sent = socket_.send(path, burst.messages());
    if (sent) {
      for (std::size_t i = 0; i < *sent; ++i) done += burst.frames_in(i);
      continue;
    }
    const int error = sent.error().code;
    if (error == EAGAIN) return {SendStatus::kBusy, done};
    if (burst.frames_in(0) > 1) {
      // Which of them it was, and whether they go singly, is seen by sending them singly.
      if (error == EIO) note_refusal(to.destination);
      most_in_run = 1;
    } else if (error == EFAULT) {
      return {SendStatus::kUnreadable, done};
    } else if (error == EMSGSIZE) {
      return {SendStatus::kTooLong, done + 1};
    } else if (error == ENOBUFS || error == ENOMEM) {
      ++done;  // lost, as in a network
    } else {
      return {SendStatus::kUnreachable, frames.size()};
    }
  }
  return {SendStatus::kSent, done};
}

bool UdpSender::send_probe(const io::Address& to, Bytes datagram) {
  io::Address source = io::Address::any(to.family(), 0);
  const io::UdpPath path({.source = source, .destination = to});
  iovec piece{const_cast<std::byte*>(datagram.data()), datagram.size()};
  const io::UdpMessage message{.pieces = {&piece, 1}, .segment_bytes = 0};
  return socket_.send(path, {&message, 1}).has_value();
}

// The descriptor is watched only while somebody waits: a UDP socket reports room after every
// packet.
void UdpSender::call_when_writable(std::weak_ptr<PacketSink> sink) {
  std::lock_guard lock(lock_);
  waiting_.push_back(std::move(sink));
  if (watch_ != 0) return;
  const auto id = progress_.add_control(socket_.fd(), shared_from_this(), EPOLLOUT);
  if (id) {
    watch_ = *id;
  } else {
    progress_.defer([self = shared_from_this()] { self->on_ready(EPOLLOUT); });
  }
}

void UdpSender::on_ready(std::uint32_t) {
  std::vector<std::weak_ptr<PacketSink>> batch;
  {
    std::lock_guard lock(lock_);
    batch.swap(waiting_);
    if (watch_ != 0) progress_.remove(std::exchange(watch_, 0));
  }
  for (const auto& weak : batch) {
    if (const auto sink = weak.lock()) sink->on_writable();
  }
}

}  // namespace airdma::runtime
