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
  be8 protocol;
  be16 checksum;
  std::array<std::byte, 4> source;
  std::array<std::byte, 4> destination;
};
static_assert(sizeof(Ipv4Header) == 20);

struct Ipv6Header {
  be32 version_class_flow = 0x60000000;
  be16 payload_length;
  be8 next_header;
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

struct UdpHeader {
  be16 source_port;
  be16 destination_port;
  be16 length;
  be16 checksum;
};
static_assert(sizeof(UdpHeader) == 8);

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

/// What an IP header says, apart from the packet's length.
struct IpFields {
  const Host& source;
  const Host& destination;
  std::uint8_t protocol = IPPROTO_TCP;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
};

/// A locally administered address that shows which IP address it stands for; of a group, the one
/// that RFC 1112 6.4 and RFC 2464 7 give.
void fill_mac(std::array<be8, 6>& mac, const Host& host) {
  const Bytes address = address_bytes(host);
  const auto first = std::to_integer<unsigned>(address[0]);
  const Bytes tail = address.last(4);
  mac = {be8{0x02}};
  std::memcpy(&mac[2], tail.data(), tail.size());
  if (host.is_v6 && first == 0xff) mac[0] = mac[1] = 0x33;
  if (!host.is_v6 && first >> 4 == 0xe) {
    mac[0] = 0x01;
    mac[2] = 0x5e;
    mac[3] = mac[3].get() & 0x7f;
  }
}

template <std::size_t N>
void fill_address(std::array<std::byte, N>& field, const Host& host) {
  std::memcpy(field.data(), host.address.data(), N);
}

void append_ethernet(FrameHeader& header, const IpFields& fields) {
  EthernetHeader ethernet;
  fill_mac(ethernet.destination, fields.destination);
  fill_mac(ethernet.source, fields.source);
  ethernet.type = fields.source.is_v6 ? 0x86dd : 0x0800;
  append(header, ethernet);
}

void append_ipv4(FrameHeader& header, const IpFields& fields, std::size_t bytes) {
  Ipv4Header ip;
  ip.service = fields.traffic_class;
  ip.total_length = static_cast<std::uint16_t>(sizeof ip + bytes);
  ip.time_to_live = fields.hop_limit;
  ip.protocol = fields.protocol;
  fill_address(ip.source, fields.source);
  fill_address(ip.destination, fields.destination);
  ip.checksum = checksum_finish(checksum_add(bytes_of(ip), 0));
  append(header, ip);
}

void append_ipv6(FrameHeader& header, const IpFields& fields, std::size_t bytes) {
  Ipv6Header ip;
  ip.version_class_flow =
      0x60000000 | std::uint32_t{fields.traffic_class} << 20 | (fields.flow_label & 0xfffff);
  ip.payload_length = static_cast<std::uint16_t>(bytes);
  ip.next_header = fields.protocol;
  ip.hop_limit = fields.hop_limit;
  fill_address(ip.source, fields.source);
  fill_address(ip.destination, fields.destination);
  append(header, ip);
}

/// Ethernet and IP headers of a packet that holds so many bytes.
void append_network(FrameHeader& header, const IpFields& fields, std::size_t bytes) {
  append_ethernet(header, fields);
  if (fields.source.is_v6) {
    append_ipv6(header, fields, bytes);
  } else {
    append_ipv4(header, fields, bytes);
  }
}

/// The pseudo header of RFC 9293 3.1 and RFC 768, whose sum is the same for both IP versions.
std::uint32_t pseudo_header_sum(const IpFields& fields, std::size_t bytes) {
  const std::uint32_t lengths = static_cast<std::uint32_t>(bytes) + fields.protocol;
  return checksum_add(address_bytes(fields.destination),
                      checksum_add(address_bytes(fields.source), lengths));
}

void append_udp(FrameHeader& header, const UdpDatagram& datagram, const IpFields& fields) {
  UdpHeader udp;
  const std::size_t bytes = sizeof udp + datagram.payload.size();
  udp.source_port = datagram.source.port;
  udp.destination_port = datagram.destination.port;
  udp.length = static_cast<std::uint16_t>(bytes);
  const std::uint32_t sum = checksum_add(bytes_of(udp), pseudo_header_sum(fields, bytes));
  udp.checksum = checksum_finish(checksum_add(datagram.payload, sum));
  if (udp.checksum.get() == 0) udp.checksum = 0xffff;  // zero says that there is none
  append(header, udp);
}

void append_tcp(FrameHeader& header, const TcpSegment& segment, const IpFields& fields,
                const SynOptions* options) {
  const std::size_t header_bytes = sizeof(TcpHeader) + (options ? sizeof *options : 0);
  TcpHeader tcp;
  tcp.source_port = segment.source.port;
  tcp.destination_port = segment.destination.port;
  tcp.sequence = segment.sequence;
  tcp.acknowledgement = (segment.flags & kAck) != 0 ? segment.acknowledgement : 0;
  tcp.data_offset = static_cast<std::uint8_t>(header_bytes / 4 << 4);
  tcp.flags = segment.flags;
  std::uint32_t sum = pseudo_header_sum(fields, header_bytes + segment.payload.size());
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
  const IpFields fields{.source = segment.source, .destination = segment.destination};
  FrameHeader header;
  append_network(header, fields, tcp_bytes);
  append_tcp(header, segment, fields, syn ? &options : nullptr);
  return header;
}

FrameHeader make_frame_header(const UdpDatagram& datagram) {
  const IpFields fields{.source = datagram.source,
                        .destination = datagram.destination,
                        .protocol = IPPROTO_UDP,
                        .traffic_class = datagram.traffic_class,
                        .hop_limit = datagram.hop_limit,
                        .flow_label = datagram.flow_label};
  FrameHeader header;
  append_network(header, fields, sizeof(UdpHeader) + datagram.payload.size());
  append_udp(header, datagram, fields);
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
