// SPDX-License-Identifier: MIT
#include "trace/tcp_tap.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "trace/process_trace.h"

namespace airdma::trace {
namespace {

// Without traffic the other way nothing acknowledges; a packet of its own does after this much.
constexpr std::uint32_t kAckEveryBytes = 1 << 20;

template <class T>
void append(sockaddr_un& name, std::size_t& length, const T& value) {
  std::memcpy(name.sun_path + length, &value, sizeof value);
  length += sizeof value;
}

/// The right to record one connection in one file: nothing when another tap has it. -1 when the
/// system has no answer; then the connection is recorded, at worst twice.
std::optional<int> claim(const PcapngFile::Identity& file, const Host& initiator,
                         const Host& responder) {
  constexpr std::string_view kPrefix = "airdma/trace/";
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::size_t length = 1;  // an abstract name begins with a zero byte
  std::memcpy(name.sun_path + length, kPrefix.data(), kPrefix.size());
  length += kPrefix.size();
  append(name, length, file.device);
  append(name, length, file.inode);
  for (const Host* host : {&initiator, &responder}) {
    append(name, length, host->address);
    append(name, length, host->port);
  }
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0) return fd;
  const bool taken = errno == EADDRINUSE;
  ::close(fd);
  return taken ? std::nullopt : std::optional<int>(-1);
}

wire::MpaFrameKind opening_of(bool initiator) {
  return initiator ? wire::MpaFrameKind::kRequest : wire::MpaFrameKind::kReply;
}

}  // namespace

TcpTap::TcpTap(PcapngFile& file, const Host& local, const Host& peer, bool initiator, Clock clock,
               int claim)
    : file_(file),
      clock_(std::move(clock)),
      local_{local, FrameDirection::kOutbound, FpduSplitter(opening_of(initiator))},
      peer_{peer, FrameDirection::kInbound, FpduSplitter(opening_of(!initiator))},
      claim_(claim) {
  const Side first = initiator ? Side::kLocal : Side::kPeer;
  const Side second = initiator ? Side::kPeer : Side::kLocal;
  emit(first, kSyn, {});
  emit(second, kSyn | kAck, {});
  emit(first, kAck, {});
}

TcpTap::~TcpTap() {
  if (claim_ >= 0) ::close(claim_);
}

void TcpTap::sent(Bytes bytes) { stream(Side::kLocal, bytes); }

void TcpTap::received(Bytes bytes) { stream(Side::kPeer, bytes); }

void TcpTap::closed(bool reset) {
  if (closed_) return;
  for (const Side side : {Side::kLocal, Side::kPeer}) {
    half(side).splitter.flush([&](Bytes rest) { emit_unit(side, rest); });
  }
  closed_ = true;
  if (reset) {
    emit(Side::kLocal, kRst | kAck, {});
    return;
  }
  emit(Side::kLocal, kFin | kAck, {});
  emit(Side::kPeer, kFin | kAck, {});
  emit(Side::kLocal, kAck, {});
}

void TcpTap::stream(Side side, Bytes bytes) {
  if (closed_) return;
  FpduSplitter& splitter = half(side).splitter;
  splitter.feed(bytes, [&](Bytes unit) { emit_unit(side, unit); });
  if (splitter.wants_markers()) other(side).splitter.expect_markers();
}

void TcpTap::emit_unit(Side side, Bytes unit) {
  // A frame that no packet holds goes in two halves: readers put them together, but cannot
  // recognise an FPDU by the few bytes that cutting at the maximum would sometimes leave.
  const std::size_t limit = max_payload_bytes(half(side).host.is_v6);
  while (unit.size() > limit) {
    const std::size_t part = std::min(limit, unit.size() / 2);
    emit(side, kPsh | kAck, unit.first(part));
    unit = unit.subspan(part);
  }
  emit(side, kPsh | kAck, unit);
}

void TcpTap::emit(Side side, std::uint8_t flags, Bytes payload) {
  Half& from = half(side);
  Half& to = other(side);
  const TcpSegment segment{from.host,        to.host, from.next_sequence,
                           to.next_sequence, flags,   payload};
  file_.append(clock_(), from.direction, make_frame_header(segment).bytes(), payload);
  if ((flags & kAck) != 0) to.acknowledged = to.next_sequence;
  from.next_sequence += static_cast<std::uint32_t>(payload.size());
  if ((flags & (kSyn | kFin)) != 0) ++from.next_sequence;
  if (from.next_sequence - from.acknowledged >= kAckEveryBytes) {
    emit(side == Side::kLocal ? Side::kPeer : Side::kLocal, kAck, {});
  }
}

std::unique_ptr<TcpTap> open_tcp_tap(const sockaddr_storage& local, const sockaddr_storage& peer,
                                     bool initiator) {
  PcapngFile* file = process_trace();
  if (file == nullptr) return nullptr;
  const Host here = Host::from(local);
  const Host there = Host::from(peer);
  const Host& first = initiator ? here : there;
  const Host& second = initiator ? there : here;
  const std::optional<int> right = claim(file->identity(), first, second);
  if (!right) return nullptr;
  return std::make_unique<TcpTap>(*file, here, there, initiator, unix_time_ns, *right);
}

}  // namespace airdma::trace
