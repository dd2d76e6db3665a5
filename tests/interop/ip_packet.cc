// SPDX-License-Identifier: MIT
#include "tests/interop/ip_packet.h"

namespace airdma::interop {
namespace {

ByteVector copy_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }
std::uint8_t u8(Bytes bytes, std::size_t at) { return std::to_integer<std::uint8_t>(bytes[at]); }

constexpr std::uint16_t kIpv4 = 0x0800;
constexpr std::uint16_t kIpv6 = 0x86dd;

/// The IP packet in a frame; empty when there is none.
Bytes ip_packet(const Frame& frame) {
  const Bytes bytes = frame.bytes;
  std::size_t at = 0;
  switch (frame.link_type) {
    case 1:
      at = 12;
      break;
    case 113:
      at = 14;
      break;
    case 101:
    case 228:
    case 229:
      return bytes;
    default:
      return {};
  }
  // VLAN tags stand before the type.
  while (bytes.size() >= at + 6 && (u16(bytes, at) == 0x8100 || u16(bytes, at) == 0x88a8)) at += 4;
  if (bytes.size() < at + 2) return {};
  const std::uint16_t type = u16(bytes, at);
  return type == kIpv4 || type == kIpv6 ? bytes.subspan(at + 2) : Bytes{};
}

std::optional<IpPacket> parse_ipv4(Bytes ip, unsigned protocol) {
  if (ip.size() < 20) return std::nullopt;
  const std::size_t header = (std::to_integer<std::size_t>(ip[0]) & 15) * 4;
  std::size_t total = u16(ip, 2);
  // Zero with segmentation offload: the length is the frame's.
  if (total == 0) total = ip.size();
  const bool fragment = (u16(ip, 6) & 0x3fff) != 0;
  if (header < 20 || total < header || total > ip.size() || fragment || u8(ip, 9) != protocol) {
    return std::nullopt;
  }
  return IpPacket{.source = copy_of(ip.subspan(12, 4)),
                  .destination = copy_of(ip.subspan(16, 4)),
                  .traffic_class = u8(ip, 1),
                  .hop_limit = u8(ip, 8),
                  .identification = u16(ip, 4),
                  .dont_fragment = (u16(ip, 6) & 0x4000) != 0,
                  .payload = ip.subspan(header, total - header)};
}

std::optional<IpPacket> parse_ipv6(Bytes ip, unsigned protocol) {
  if (ip.size() < 40) return std::nullopt;
  std::size_t total = 40u + u16(ip, 4);
  if (total == 40) total = ip.size();
  unsigned next = u8(ip, 6);
  std::size_t at = 40;
  // Hop-by-hop, routing and destination options have their length in units of eight bytes.
  while ((next == 0 || next == 43 || next == 60) && ip.size() >= at + 8) {
    next = u8(ip, at);
    at += 8 * (std::to_integer<std::size_t>(ip[at + 1]) + 1);
  }
  if (next != protocol || total > ip.size() || at > total) return std::nullopt;
  return IpPacket{.source = copy_of(ip.subspan(8, 16)),
                  .destination = copy_of(ip.subspan(24, 16)),
                  .traffic_class = static_cast<std::uint8_t>(u16(ip, 0) >> 4),
                  .hop_limit = u8(ip, 7),
                  .payload = ip.subspan(at, total - at)};
}

}  // namespace

std::uint32_t big_endian(Bytes bytes, std::size_t at, std::size_t n) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < n; ++i) {
    value = value << 8 | std::to_integer<std::uint32_t>(bytes[at + i]);
  }
  return value;
}

std::optional<IpPacket> parse_ip(const Frame& frame, unsigned protocol) {
  const Bytes ip = ip_packet(frame);
  if (ip.empty()) return std::nullopt;
  const unsigned version = std::to_integer<unsigned>(ip[0]) >> 4;
  if (version == 4) return parse_ipv4(ip, protocol);
  return version == 6 ? parse_ipv6(ip, protocol) : std::nullopt;
}

std::vector<Datagram> udp_datagrams(const std::vector<Frame>& frames) {
  constexpr unsigned kUdp = 17;
  std::vector<Datagram> datagrams;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const auto ip = parse_ip(frames[i], kUdp);
    if (!ip || ip->payload.size() < 8) continue;
    const Bytes udp = ip->payload;
    const std::size_t length = u16(udp, 4);
    if (length < 8 || length > udp.size()) continue;
    datagrams.push_back({.source = {ip->source, u16(udp, 0)},
                         .destination = {ip->destination, u16(udp, 2)},
                         .time_ns = frames[i].time_ns,
                         .frame = i,
                         .traffic_class = ip->traffic_class,
                         .hop_limit = ip->hop_limit,
                         .identification = ip->identification,
                         .dont_fragment = ip->dont_fragment,
                         .bytes = copy_of(udp.subspan(8, length - 8))});
  }
  return datagrams;
}

}  // namespace airdma::interop
