// SPDX-License-Identifier: MIT
// What leaves by UdpSocket, as it is on the wire: a network namespace of its own, whose loopback
// interface takes segmented sends apart like a network card does, is listened to with a packet
// socket.
#include "io/udp_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace airdma::io {
namespace {

constexpr std::uint16_t kPort = 4791;

Address address(int family, std::uint16_t port) {
  Address result = Address::any(family, port);
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(result.raw())->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    reinterpret_cast<sockaddr_in6*>(result.raw())->sin6_addr = in6addr_loopback;
  }
  return result;
}

bool configure(const std::function<int(int, ifreq&)>& change) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  const bool done = change(socket, request) == 0;
  ::close(socket);
  return done;
}

bool loopback_up() {
  return configure([](int socket, ifreq& request) {
    request.ifr_flags = IFF_UP;
    return ::ioctl(socket, SIOCSIFFLAGS, &request);
  });
}

bool mtu_is(int bytes) {
  return configure([bytes](int socket, ifreq& request) {
    request.ifr_mtu = bytes;
    return ::ioctl(socket, SIOCSIFMTU, &request);
  });
}

/// The number of a feature among those of the kernel; negative when it is not known.
int feature_number(int socket, ifreq& request, const char* name) {
  // Its structures end in arrays without a length: ethtool_sset_info, ethtool_gstrings.
  const std::uint64_t wanted = std::uint64_t{1} << ETH_SS_FEATURES;
  std::array<std::uint32_t, 5> size{ETHTOOL_GSSET_INFO};
  std::memcpy(&size[2], &wanted, sizeof wanted);
  request.ifr_data = reinterpret_cast<char*>(&size);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) return -1;
  const std::array<std::uint32_t, 3> head{ETHTOOL_GSTRINGS, ETH_SS_FEATURES, size[4]};
  std::vector<char> memory(sizeof head + head[2] * ETH_GSTRING_LEN);
  std::memcpy(memory.data(), &head, sizeof head);
  request.ifr_data = memory.data();
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) return -1;
  for (std::uint32_t i = 0; i < head[2]; ++i) {
    const char* one = memory.data() + sizeof head + i * ETH_GSTRING_LEN;
    if (std::strncmp(one, name, ETH_GSTRING_LEN) == 0) return static_cast<int>(i);
  }
  return -1;
}

bool segment_in_software() {
  return configure([](int socket, ifreq& request) {
    const int number = feature_number(socket, request, "tx-udp-segmentation");
    if (number < 0 || number >= 64) return -1;
    const auto bit = static_cast<unsigned>(number);
    // ethtool_sfeatures: which bits count, and their values, for each 32.
    std::array<std::uint32_t, 6> off{ETHTOOL_SFEATURES, 2};
    off[2 + 2 * (bit / 32)] = 1u << bit % 32;
    request.ifr_data = reinterpret_cast<char*>(&off);
    return ::ioctl(socket, SIOCETHTOOL, &request) < 0 ? -1 : 0;
  });
}

/// Runs a check in a child with a network of its own; its text is empty when all is well.
void in_own_network(const std::function<std::string()>& check) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text = "skip";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && loopback_up()) text = check();
    [[maybe_unused]] const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  if (text == "skip") GTEST_SKIP() << "no network namespace to be had";
  EXPECT_EQ(text, "");
}

/// Sees every frame of the loopback interface once.
class Tap {
 public:
  Tap() : socket_(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL))) {}
  ~Tap() { ::close(socket_); }
  /// IP packets, `count` of them, as they arrive.
  std::vector<std::vector<unsigned char>> take(std::size_t count) {
    std::vector<std::vector<unsigned char>> packets;
    pollfd item{socket_, POLLIN, 0};
    while (packets.size() < count && ::poll(&item, 1, 5000) > 0) {
      std::vector<unsigned char> packet(70000);
      sockaddr_ll from{};
      socklen_t length = sizeof from;
      const ssize_t got = ::recvfrom(socket_, packet.data(), packet.size(), 0,
                                     reinterpret_cast<sockaddr*>(&from), &length);
      if (got <= 0 || from.sll_pkttype == PACKET_OUTGOING) continue;
      packet.resize(static_cast<std::size_t>(got));
      packets.push_back(std::move(packet));
    }
    return packets;
  }

 private:
  int socket_;
};

struct Sent {
  std::size_t segment = 0;
  std::size_t bytes = 0;
};

Status send(UdpSocket& socket, int family, std::vector<std::byte>& data, Sent what,
            std::uint8_t traffic_class = 0, std::uint8_t hop_limit = 0, std::uint32_t flow = 0) {
  const UdpPath path({.source = address(family, 0),
                      .destination = address(family, kPort),
                      .traffic_class = traffic_class,
                      .hop_limit = hop_limit,
                      .flow_label = flow});
  // In pieces that have nothing to do with segments.
  std::vector<iovec> pieces;
  for (std::size_t done = 0; done < what.bytes; done += 777) {
    pieces.push_back({data.data() + done, std::min<std::size_t>(777, what.bytes - done)});
  }
  const UdpMessage message{pieces, static_cast<std::uint16_t>(what.segment)};
  const auto sent = socket.send(path, {&message, 1});
  if (!sent) return std::unexpected(sent.error());
  return {};
}

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 13 + i / 256);
  return data;
}

std::string check_v4_segments() {
  if (!segment_in_software()) return "skip";
  auto sender = UdpSocket::open(AF_INET, 0, false).value();
  auto receiver = UdpSocket::open(AF_INET, kPort, true).value();
  Tap tap;
  auto data = pattern(10 * 1000 + 300);
  // Twice: the counter of one send is not carried on to the next.
  for (int round = 0; round < 2; ++round) {
    if (!send(sender, AF_INET, data, {1000, data.size()}, 0xb9, 33)) return "not sent";
    const auto packets = tap.take(11);
    if (packets.size() != 11) return "packets: " + std::to_string(packets.size());
    for (std::size_t i = 0; i < packets.size(); ++i) {
      iphdr ip;
      std::memcpy(&ip, packets[i].data(), sizeof ip);
      const std::size_t payload = i < 10 ? 1000 : 300;
      if (ntohs(ip.id) != i) return "identification " + std::to_string(ntohs(ip.id));
      if (ntohs(ip.frag_off) != IP_DF) return "fragmentation allowed";
      if (ntohs(ip.tot_len) != 28 + payload) return "length " + std::to_string(ntohs(ip.tot_len));
      if (ip.tos != 0xb9 || ip.ttl != 33 || ip.ihl != 5) return "other fields";
      if (std::memcmp(packets[i].data() + 28, data.data() + i * 1000, payload) != 0) return "data";
    }
  }
  return "";
}

std::string check_v6_segments() {
  if (!segment_in_software()) return "skip";
  auto sender = UdpSocket::open(AF_INET6, 0, false).value();
  auto receiver = UdpSocket::open(AF_INET6, kPort, true).value();
  Tap tap;
  auto data = pattern(3 * 1000 + 4);
  if (!send(sender, AF_INET6, data, {1000, data.size()}, 0xb9, 33, 0x54321)) return "not sent";
  const auto packets = tap.take(4);
  if (packets.size() != 4) return "packets: " + std::to_string(packets.size());
  for (std::size_t i = 0; i < packets.size(); ++i) {
    ip6_hdr ip;
    std::memcpy(&ip, packets[i].data(), sizeof ip);
    if (ip.ip6_nxt != IPPROTO_UDP || ip.ip6_hlim != 33) return "other fields";
    if (ntohl(ip.ip6_flow) != 0x6b954321) return "flow";
    if (ntohs(ip.ip6_plen) != 8 + (i < 3 ? 1000 : 4)) return "length";
  }
  return "";
}

std::string check_singles() {
  auto sender = UdpSocket::open(AF_INET, 0, false).value();
  auto receiver = UdpSocket::open(AF_INET, kPort, true).value();
  Tap tap;
  auto data = pattern(100);
  for (int i = 0; i < 3; ++i) {
    if (!send(sender, AF_INET, data, {0, data.size()})) return "not sent";
  }
  for (const auto& packet : tap.take(3)) {
    iphdr ip;
    std::memcpy(&ip, packet.data(), sizeof ip);
    if (ip.id != 0 || ntohs(ip.frag_off) != IP_DF) return "identification";
  }
  return "";
}

std::string check_too_long() {
  if (!mtu_is(1500)) return "skip";
  for (const int family : {AF_INET, AF_INET6}) {
    auto sender = UdpSocket::open(family, 0, false).value();
    auto data = pattern(4000);
    const auto single = send(sender, family, data, {0, 2000});
    if (single || single.error().code != EMSGSIZE) return "sent what is too long";
    const auto segments = send(sender, family, data, {2000, 4000});
    if (segments) return "sent segments that are too long";
    if (segments.error().code != EMSGSIZE && segments.error().code != EINVAL) {
      return "errno " + std::to_string(segments.error().code);
    }
    if (!send(sender, family, data, {1400, 4000})) return "did not send what fits in";
  }
  return "";
}

TEST(UdpSocket, NumbersTheSegmentsOfASendFromZero) { in_own_network(check_v4_segments); }
TEST(UdpSocket, SegmentsOverIpv6) { in_own_network(check_v6_segments); }
TEST(UdpSocket, SendsSinglesWithIdentificationZero) { in_own_network(check_singles); }
TEST(UdpSocket, RefusesWhatThePathDoesNotCarry) { in_own_network(check_too_long); }

std::string check_received() {
  for (const int family : {AF_INET, AF_INET6}) {
    auto sender = UdpSocket::open(family, 0, false).value();
    auto receiver = UdpSocket::open(family, kPort, true).value();
    auto data = pattern(5 * 1024 + 10);
    if (!send(sender, family, data, {1024, data.size()}, 0x1b, 77)) return "not sent";
    UdpInbox inbox;
    std::array<UdpArrival, 4> arrivals;
    const auto got = receiver.receive(inbox, arrivals);
    if (got.size() != 1 || got[0].segment_bytes != 1024) return "not received together";
    if (!std::ranges::equal(got[0].data, data)) return "data";
    if (got[0].traffic_class != 0x1b || got[0].hop_limit != 77) return "fields";
    if (got[0].source != address(family, 0).gid()) return "source";
    if (got[0].destination != address(family, 0).gid()) return "destination";
    if (got[0].source_port != sender.port() || got[0].interface_index != 1) return "port";
    if (!receiver.receive(inbox, arrivals).empty()) return "received twice";
  }
  return "";
}
TEST(UdpSocket, ReceivesSegmentsTogetherAndTheirHeaders) { in_own_network(check_received); }

// The kernel's RoCE driver sends without UDP checksum over IPv6, too.
std::string check_without_checksum() {
  auto receiver = UdpSocket::open(AF_INET6, kPort, true).value();
  const int raw = ::socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
  if (raw < 0) return "skip";
  unsigned char packet[12] = {0xc0, 0x00, kPort >> 8, kPort & 0xff, 0, 12, 0, 0, 1, 2, 3, 4};
  Address to = address(AF_INET6, 0);
  if (::sendto(raw, packet, sizeof packet, 0, to.raw(), to.length()) != sizeof packet)
    return "sendto";
  ::close(raw);
  UdpInbox inbox;
  std::array<UdpArrival, 1> arrivals;
  return receiver.receive(inbox, arrivals).size() == 1 ? "" : "dropped";
}
TEST(UdpSocket, TakesDatagramsWithoutChecksumOverIpv6) { in_own_network(check_without_checksum); }

std::string check_sharing() {
  auto first = UdpSocket::open(AF_INET, kPort, true).value();
  if (!UdpSocket::open(AF_INET, kPort, true)) return "not shared";
  const auto lonely = UdpSocket::open(AF_INET, kPort, false);
  if (lonely || lonely.error().code != EADDRINUSE) return "shared with one who does not ask";
  return "";
}
TEST(UdpSocket, SharesItsPortOnRequest) { in_own_network(check_sharing); }

// The whole of docs/decisions/0010 rests on this: indices in the order of binding, the last one
// moves into a gap, and an index that nobody has leaves the choice to the kernel.
std::string check_steering() {
  std::vector<UdpSocket> sockets;
  for (int i = 0; i < 4; ++i) sockets.push_back(UdpSocket::open(AF_INET, kPort, true).value());
  // The first byte is the index.
  const std::array<sock_filter, 2> program{
      {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_STMT(BPF_RET | BPF_A, 0)}};
  if (!sockets[2].steer(program)) return "not attached";
  auto sender = UdpSocket::open(AF_INET, 0, false).value();
  UdpInbox inbox;
  std::array<UdpArrival, 1> arrivals;
  const auto receiver_of = [&](unsigned index) {
    std::vector<std::byte> data{static_cast<std::byte>(index)};
    if (!send(sender, AF_INET, data, {0, 1})) return -2;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      if (sockets[i] && !sockets[i].receive(inbox, arrivals).empty()) return static_cast<int>(i);
    }
    return -1;
  };
  for (int i = 0; i < 4; ++i) {
    if (receiver_of(static_cast<unsigned>(i)) != i) return "not in the order of binding";
  }
  sockets[1].close();
  if (receiver_of(1) != 3) return "the last one did not move";
  if (receiver_of(2) != 2) return "another one moved";
  if (receiver_of(3) < 0) return "a packet for nobody was lost";
  return "";
}
TEST(UdpSocket, IsChosenByItsIndex) { in_own_network(check_steering); }

// Of IPv6 the loopback interface has no routes to groups: there joining is all that is seen.
std::string check_groups() {
  for (const int family : {AF_INET, AF_INET6}) {
    auto member = UdpSocket::open(family, kPort, true).value();
    auto other = UdpSocket::open(family, kPort, true).value();
    auto sender = UdpSocket::open(family, 0, false).value();
    Address group = Address::any(family, kPort);
    const int number = ::inet_pton(
        family, family == AF_INET ? "239.1.2.3" : "ff02::1234",
        family == AF_INET
            ? static_cast<void*>(&reinterpret_cast<sockaddr_in*>(group.raw())->sin_addr)
            : static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(group.raw())->sin6_addr));
    if (number != 1 || !member.join(group, 1)) return "not joined";
    if (family == AF_INET6) {
      if (!member.leave(group, 1) || member.leave(group, 1)) return "not left";
      continue;
    }
    const UdpPath path({.source = address(family, 0), .destination = group, .interface_index = 1});
    char byte = 1;
    iovec piece{&byte, 1};
    const UdpMessage message{{&piece, 1}, 0};
    if (!sender.send(path, {&message, 1})) return "not sent";
    UdpInbox inbox;
    std::array<UdpArrival, 1> arrivals;
    if (member.receive(inbox, arrivals).size() != 1) return "a member got nothing";
    if (arrivals[0].destination != group.gid()) return "destination";
    if (!other.receive(inbox, arrivals).empty()) return "one who did not join got it";
    if (!member.leave(group, 1)) return "not left";
  }
  return "";
}
TEST(UdpSocket, BringsMulticastToMembersAlone) { in_own_network(check_groups); }

}  // namespace
}  // namespace airdma::io
