// SPDX-License-Identifier: MIT
#include "trace/roce_tap.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/guarded_copy.h"
#include "trace/frame.h"
#include "trace/process_trace.h"
#include "wire/bth.h"
#include "wire/roce_opcode.h"

namespace airdma::trace {
namespace {

constexpr std::uint16_t kNoPort = 0xc000;  // the first that a RoCEv2 sender may choose
constexpr std::size_t kMaxPathMtu = 4096;

/// A packet with its ICRC, in one piece.
class Packet {
 public:
  /// False when it is too long, or the piece cannot be read.
  bool add(Bytes piece) {
    if (piece.empty()) return true;
    if (piece.size() > storage_.size() - wire::kIcrcBytes - length_) return false;
    std::byte* to = storage_.data() + length_;
    length_ += piece.size();
    return guarded(piece.data(), piece.size(),
                   [=] { std::memcpy(to, piece.data(), piece.size()); });
  }
  [[nodiscard]] bool is_whole() const { return length_ >= sizeof(wire::Bth); }
  /// With the ICRC that it has in a packet with these headers, IPv4's identification being 0.
  [[nodiscard]] Bytes close(const wire::IcrcFlow& flow) {
    const Bytes covered = Bytes(storage_).first(length_);
    const std::size_t bytes = length_ + wire::kIcrcBytes;
    wire::store_icrc(storage_.data() + length_, wire::icrc_headers(flow.start(bytes), covered));
    return Bytes(storage_).first(bytes);
  }

 private:
  std::array<std::byte, wire::kMaxRoceHeaderBytes + kMaxPathMtu + wire::kIcrcBytes> storage_;
  std::size_t length_ = 0;
};

Host host_of(const wire::IpAddress& address, std::uint16_t port) {
  Host host;
  host.is_v6 = !wire::is_mapped_v4(address);
  const Bytes bytes = host.is_v6 ? Bytes(address) : Bytes(address).last(4);
  std::ranges::copy(bytes, host.address.begin());
  host.port = port;
  return host;
}

std::uint64_t mark_of(const PcapngFile& file) {
  const PcapngFile::Identity identity = file.identity();
  // Inodes count up, and there are few devices: the product keeps files of two apart.
  const std::uint64_t mark = identity.inode ^ (identity.device * 0x9e3779b97f4a7c15);
  return mark != 0 ? mark : 1;
}

}  // namespace

RoceTap::RoceTap(PcapngFile& file, Clock clock)
    : file_(file), clock_(std::move(clock)), mark_(mark_of(file)) {}

void RoceTap::record(std::uint64_t unix_time_ns, FrameDirection direction, const RocePath& path,
                     Bytes headers, std::span<const Bytes> payload, std::size_t pad_bytes) {
  static constexpr std::array<std::byte, 3> kZeros{};
  Packet packet;
  if (!packet.add(headers)) return;
  for (const Bytes piece : payload) {
    if (!packet.add(piece)) return;
  }
  if (!packet.add(Bytes(kZeros).first(std::min(pad_bytes, kZeros.size())))) return;
  if (!packet.is_whole()) return;
  const std::uint16_t port = path.source_port != 0 ? path.source_port : kNoPort;
  const Bytes bytes = packet.close(wire::IcrcFlow(path.source, path.destination, port));
  const UdpDatagram datagram{.source = host_of(path.source, port),
                             .destination = host_of(path.destination, wire::kRoceUdpPort),
                             .traffic_class = path.traffic_class,
                             .hop_limit = path.hop_limit,
                             .flow_label = path.flow_label,
                             .payload = bytes};
  file_.append(unix_time_ns, direction, make_frame_header(datagram).bytes(), bytes);
}

RoceTap* process_roce_tap() {
  static RoceTap* const tap = []() -> RoceTap* {
    PcapngFile* file = process_trace();
    return file != nullptr ? new RoceTap(*file, unix_time_ns) : nullptr;
  }();
  return tap;
}

}  // namespace airdma::trace
