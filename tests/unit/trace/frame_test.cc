// SPDX-License-Identifier: MIT
#include "trace/frame.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <vector>

namespace airdma::trace {
namespace {

sockaddr_storage address_of(const char* text, std::uint16_t port) {
  sockaddr_storage storage{};
  in_addr v4{};
  if (::inet_pton(AF_INET, text, &v4) == 1) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr = v4;
    in.sin_port = htons(port);
    std::memcpy(&storage, &in, sizeof in);
  } else {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    EXPECT_EQ(::inet_pton(AF_INET6, text, &in.sin6_addr), 1);
    in.sin6_port = htons(port);
    std::memcpy(&storage, &in, sizeof in);
  }
  return storage;
}

Host host(const char* text, std::uint16_t port) { return Host::from(address_of(text, port)); }

std::uint32_t fold(std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); }

/// What a receiver sums: pseudo header and the whole segment, checksum field included.
std::uint32_t receiver_sum(Bytes tcp, Bytes payload, Bytes source, Bytes destination) {
  std::uint32_t sum = static_cast<std::uint32_t>(tcp.size() + payload.size()) + IPPROTO_TCP;
  for (Bytes part : {source, destination, tcp, payload}) sum = checksum_add(part, sum);
  return fold(sum);
}

TEST(Checksum, MatchesTheExampleOfRfc1071) {
  const std::array data{std::byte{0x00}, std::byte{0x01}, std::byte{0xf2}, std::byte{0x03},
                        std::byte{0xf4}, std::byte{0xf5}, std::byte{0xf6}, std::byte{0xf7}};
  EXPECT_EQ(checksum_add(data, 0), 0xddf2u);
}

TEST(Frame, Ipv4ChecksumsHoldForOddPayload) {
  const std::vector<std::byte> payload(1001, std::byte{0xa5});
  const FrameHeader header = make_frame_header({.source = host("10.77.0.11", 40276),
                                                .destination = host("10.77.0.12", 7174),
                                                .sequence = 7,
                                                .acknowledgement = 9,
                                                .flags = kPsh | kAck,
                                                .payload = payload});
  ASSERT_EQ(header.length, 54u);
  const Bytes ip = header.bytes().subspan(14, 20);
  EXPECT_EQ(checksum_add(ip, 0), 0xffffu);
  EXPECT_EQ(receiver_sum(header.bytes().subspan(34), payload, ip.subspan(12, 4), ip.subspan(16, 4)),
            0xffffu);
  EXPECT_EQ(std::to_integer<int>(ip[2]) << 8 | std::to_integer<int>(ip[3]), 1041);
}

TEST(Frame, Ipv6SynCarriesOptionsAndAGoodChecksum) {
  const FrameHeader header = make_frame_header({.source = host("fd77::11", 40276),
                                                .destination = host("fd77::12", 7174),
                                                .sequence = 0,
                                                .acknowledgement = 5,
                                                .flags = kSyn,
                                                .payload = {}});
  ASSERT_EQ(header.length, kMaxHeaderBytes);
  const Bytes tcp = header.bytes().subspan(54);
  EXPECT_EQ(receiver_sum(tcp, {}, header.bytes().subspan(22, 16), header.bytes().subspan(38, 16)),
            0xffffu);
  EXPECT_EQ(std::to_integer<int>(tcp[12]) >> 4, 7);
  EXPECT_EQ(std::to_integer<int>(tcp[8]), 0) << "no acknowledgement number without ACK";
}

TEST(Frame, MappedAddressIsIpv4) {
  EXPECT_FALSE(host("::ffff:10.0.0.1", 1).is_v6);
  EXPECT_EQ(host("::ffff:10.0.0.1", 1).address, host("10.0.0.1", 1).address);
  EXPECT_TRUE(host("::1", 1).is_v6);
}

}  // namespace
}  // namespace airdma::trace
