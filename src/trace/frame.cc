// SPDX-License-Identifier: MIT
#include "trace/frame.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/be.h"
#include "wire/layout.h"

namespace airdma::trace {
namespace {

struct EthernetHeader {
  std::array<be8, 6> destination;
  std::array<be8, 6> source;
  be16 type;
};
static_assert(sizeof(EthernetHeader) == 14);

struct Ipv4Header {
  be8 version_and_length = 0x45;
  be8 service;
  be16 total_length;
  be16 identification;     // zero: unused when fragmentation is forbidden (RFC 6864 4.1)
  be16 fragment = 0x4000;  // do not fragment
  be8 time_to_live = 64;
  be8 protocol = IPPROTO_TCP;
  be16 checksum;
  std::array<std::byte, 4> source;
  std::array<std::byte, 4> destination;
};
static_assert(sizeof(Ipv4Header) == 20);

struct Ipv6Header {
  be32 version_class_flow = 0x60000000;
  be16 payload_length;
  be8 next_header = IPPROTO_TCP;
  be8 hop_limit = 64;
  std::array<std::byte, 16> source;
  std::array<std::byte, 16> destination;
};
static_assert(sizeof(Ipv6Header) == 40);

struct TcpHeader {
  be16 source_port;
  be16 destination_port;
  be32 sequence;
  be32 acknowledgement;
  be8 data_offset;  // in its upper four bits, in words
  be8 flags;
  be16 window = 65535;
  be16 checksum;
  be16 urgent;
};
static_assert(sizeof(TcpHeader) == 20);

// Window scale 14 makes the window 1 GiB: the tap does not know the kernel's real window, and a
// reader should not take the one shown for full.
struct SynOptions {
  be8 mss_kind = 2;
  be8 mss_length = 4;
  be16 mss;
  be8 no_operation = 1;
  be8 scale_kind = 3;
  be8 scale_length = 3;
  be8 scale = 14;
};
static_assert(sizeof(SynOptions) == 8);
static_assert(kMaxHeaderBytes ==
              sizeof(EthernetHeader) + sizeof(Ipv6Header) + sizeof(TcpHeader) + sizeof(SynOptions));

Bytes address_bytes(const Host& host) { return Bytes(host.address).first(host.is_v6 ? 16 : 4); }

template <class T>
Bytes bytes_of(const T& layout) {
  return std::as_bytes(std::span(&layout, 1));
}

std::uint16_t checksum_finish(std::uint32_t sum) {
  return static_cast<std::uint16_t>(~sum);  // checksum_add folded it to 16 bits
}

template <class T>
void append(FrameHeader& header, const T& layout) {
  header.length += wire::store(MutableBytes(header.storage).subspan(header.length), layout);
}

/// A locally administered address that shows which IP address it stands for.
void fill_mac(std::array<be8, 6>& mac, const Host& host) {
  mac = {be8{0x02}};
  const Bytes tail = address_bytes(host).last(4);
  std::memcpy(&mac[2], tail.data(), tail.size());
}

template <std::size_t N>
void fill_address(std::array<std::byte, N>& field, const Host& host) {
  std::memcpy(field.data(), host.address.data(), N);
}

void append_ethernet(FrameHeader& header, const TcpSegment& segment) {
  EthernetHeader ethernet;
  fill_mac(ethernet.destination, segment.destination);
  fill_mac(ethernet.source, segment.source);
  ethernet.type = segment.source.is_v6 ? 0x86dd : 0x0800;
  append(header, ethernet);
}

void append_ipv4(FrameHeader& header, const TcpSegment& segment, std::size_t tcp_bytes) {
  Ipv4Header ip;
  ip.total_length = static_cast<std::uint16_t>(sizeof ip + tcp_bytes);
  fill_address(ip.source, segment.source);
  fill_address(ip.destination, segment.destination);
  ip.checksum = checksum_finish(checksum_add(bytes_of(ip), 0));
  append(header, ip);
}

void append_ipv6(FrameHeader& header, const TcpSegment& segment, std::size_t tcp_bytes) {
  Ipv6Header ip;
  ip.payload_length = static_cast<std::uint16_t>(tcp_bytes);
  fill_address(ip.source, segment.source);
  fill_address(ip.destination, segment.destination);
  append(header, ip);
}

/// The pseudo header of RFC 9293 3.1, whose sum is the same for both IP versions.
std::uint32_t pseudo_header_sum(const TcpSegment& segment, std::size_t tcp_bytes) {
  const std::uint32_t lengths = static_cast<std::uint32_t>(tcp_bytes) + IPPROTO_TCP;
  return checksum_add(address_bytes(segment.destination),
                      checksum_add(address_bytes(segment.source), lengths));
}

void append_tcp(FrameHeader& header, const TcpSegment& segment, const SynOptions* options) {
  const std::size_t header_bytes = sizeof(TcpHeader) + (options ? sizeof *options : 0);
  TcpHeader tcp;
  tcp.source_port = segment.source.port;
  tcp.destination_port = segment.destination.port;
  tcp.sequence = segment.sequence;
  tcp.acknowledgement = (segment.flags & kAck) != 0 ? segment.acknowledgement : 0;
  tcp.data_offset = static_cast<std::uint8_t>(header_bytes / 4 << 4);
  tcp.flags = segment.flags;
  std::uint32_t sum = pseudo_header_sum(segment, header_bytes + segment.payload.size());
  sum = checksum_add(bytes_of(tcp), sum);
  if (options != nullptr) sum = checksum_add(bytes_of(*options), sum);
  tcp.checksum = checksum_finish(checksum_add(segment.payload, sum));
  append(header, tcp);
  if (options != nullptr) append(header, *options);
}

}  // namespace

Host Host::from(const sockaddr_storage& address) {
  Host host;
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    std::memcpy(host.address.data(), &v4.sin_addr, 4);
    host.port = ntohs(v4.sin_port);
    return host;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof v6);
  const std::uint8_t* bytes = v6.sin6_addr.s6_addr;
  host.port = ntohs(v6.sin6_port);
  host.is_v6 = !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
  std::memcpy(host.address.data(), host.is_v6 ? bytes : bytes + 12, host.is_v6 ? 16 : 4);
  return host;
}

FrameHeader make_frame_header(const TcpSegment& segment) {
  const bool v6 = segment.source.is_v6;
  SynOptions options;
  options.mss = static_cast<std::uint16_t>(max_payload_bytes(v6));
  const bool syn = (segment.flags & kSyn) != 0;
  const std::size_t tcp_bytes =
      sizeof(TcpHeader) + (syn ? sizeof options : 0) + segment.payload.size();
  FrameHeader header;
  append_ethernet(header, segment);
  if (v6) {
    append_ipv6(header, segment, tcp_bytes);
  } else {
    append_ipv4(header, segment, tcp_bytes);
  }
  append_tcp(header, segment, syn ? &options : nullptr);
  return header;
}

std::uint32_t checksum_add(Bytes data, std::uint32_t initial) {
  std::uint64_t sum = initial;
  for (; data.size() >= sizeof(be16); data = data.subspan(sizeof(be16))) {
    sum += wire::load<be16>(data)->get();
  }
  if (!data.empty()) sum += std::to_integer<std::uint32_t>(data[0]) << 8;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint32_t>(sum);
}

}  // namespace airdma::trace
