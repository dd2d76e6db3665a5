// SPDX-License-Identifier: MIT
#include "io/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "io/tcp_socket.h"

namespace airdma::io {
namespace {

Address v4(const char* text, std::uint16_t port = 0) {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_port = htons(port);
  EXPECT_EQ(::inet_pton(AF_INET, text, &raw.sin_addr), 1);
  return *Address::from(reinterpret_cast<sockaddr*>(&raw));
}

Address v6(const char* text, std::uint16_t port = 0, std::uint32_t scope = 0) {
  sockaddr_in6 raw{};
  raw.sin6_family = AF_INET6;
  raw.sin6_port = htons(port);
  raw.sin6_scope_id = scope;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &raw.sin6_addr), 1);
  return *Address::from(reinterpret_cast<sockaddr*>(&raw));
}

TEST(Address, RefusesOtherFamilies) {
  sockaddr raw{};
  raw.sa_family = AF_UNIX;
  EXPECT_FALSE(Address::from(&raw));
  EXPECT_FALSE(Address::from(nullptr));
}

TEST(Address, PrintsItself) {
  EXPECT_EQ(v4("10.0.0.1", 7471).text(), "10.0.0.1:7471");
  EXPECT_EQ(v6("fe80::1", 7471, 2).text(), "[fe80::1%2]:7471");
}

TEST(Address, KnowsWildcardsAndLoopback) {
  EXPECT_TRUE(Address::any(AF_INET, 5).is_any());
  EXPECT_TRUE(Address::any(AF_INET6, 5).is_any());
  EXPECT_EQ(Address::any(AF_INET6, 5).port(), 5);
  EXPECT_TRUE(v4("127.9.9.9").is_loopback());
  EXPECT_FALSE(v4("128.0.0.1").is_loopback());
  EXPECT_TRUE(v6("::1").is_loopback());
}

TEST(Address, UnmapsIpv4) {
  EXPECT_TRUE(v6("::ffff:10.1.2.3", 77).unmapped().same_host(v4("10.1.2.3")));
  EXPECT_EQ(v6("::ffff:10.1.2.3", 77).unmapped().port(), 77);
  EXPECT_EQ(v6("::1").unmapped().family(), AF_INET6);
}

TEST(Address, ComparesScopesOnlyWhereBothNameOne) {
  EXPECT_TRUE(v6("fe80::1", 0, 2).same_host(v6("fe80::1")));
  EXPECT_FALSE(v6("fe80::1", 0, 2).same_host(v6("fe80::1", 0, 3)));
  EXPECT_FALSE(v4("10.0.0.1").same_host(v4("10.0.0.2")));
}

TEST(Address, MakesGids) {
  const auto gid = v4("1.2.3.4").gid();
  EXPECT_EQ(gid[9], 0);
  EXPECT_EQ(gid[10], 0xff);
  EXPECT_EQ(gid[15], 4);
  EXPECT_EQ(v6("fd00::7").gid()[0], 0xfd);
}

TEST(Interfaces, ListLoopbackLast) {
  const auto all = *list_interfaces();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(all.back().loopback);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LE(all[i - 1].loopback, all[i].loopback);
  }
}

TEST(Interfaces, OwnAllOfLoopback) {
  EXPECT_TRUE(interface_of(v4("127.0.0.1")));
  EXPECT_EQ(*interface_of(v4("127.1.2.3")), *interface_of(v4("127.0.0.1")));
  EXPECT_EQ(interface_of(v4("203.0.113.9")).error().code, ENODEV);
}

TEST(SourceFor, OwnAddressIsItself) {
  EXPECT_TRUE(source_for(v4("127.0.0.1", 99), Address{})->same_host(v4("127.0.0.1")));
}

TEST(SourceFor, ReportsWhatCannotBeReached) {
  EXPECT_EQ(source_for(v4("255.255.255.255"), Address{}).error().code, ENETUNREACH);
  EXPECT_EQ(source_for(v4("127.0.0.1"), v4("203.0.113.9")).error().code, EADDRNOTAVAIL);
  EXPECT_EQ(source_for(v6("fe80::1"), Address{}).error().code, EINVAL);
}

TEST(TcpSocket, KeepsPortsApart) {
  const auto first = TcpSocket::bound(v4("127.0.0.1"), {});
  ASSERT_TRUE(first);
  const Address taken = first->local_address();
  EXPECT_NE(taken.port(), 0);
  const auto second = TcpSocket::bound(taken, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
}

TEST(TcpSocket, TakesAPortThatOnlyTimeWaitHolds) {
  Address address;
  {
    auto listener = *TcpSocket::bound(v4("127.0.0.1"), {});
    ASSERT_TRUE(listener.listen(4));
    address = listener.local_address();
    auto client = *TcpSocket::bound(v4("127.0.0.1"), {});
    ASSERT_TRUE(client.connect(address));
    Result<TcpSocket> accepted = fail(EAGAIN);
    Address peer;
    while (!accepted) accepted = listener.accept(peer);
    EXPECT_TRUE(peer.same_host(v4("127.0.0.1")));
    EXPECT_EQ(peer.port(), client.local_address().port());
    accepted->close();  // closes first: TIME_WAIT is the server's
    std::byte byte[1];
    while (client.receive(byte)) {
    }
  }
  auto again = TcpSocket::bound(address, {});
  ASSERT_TRUE(again) << again.error().code;
  EXPECT_TRUE(again->listen(4));
}

}  // namespace
}  // namespace airdma::io
