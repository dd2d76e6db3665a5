// SPDX-License-Identifier: MIT
// Peers that connect and say nothing do not take a program's descriptors.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <memory>
#include <vector>

#include "runtime/connection.h"

namespace airdma::runtime {
namespace {

class Nobody : public ListenObserver {
 public:
  void on_request(std::shared_ptr<PassiveConnection> connection) override { connection->cancel(); }
  void on_request_lost(PassiveConnection&) override {}
};

class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &former_);
    const rlimit lower{limit, former_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &former_); }

 private:
  rlimit former_{};
};

io::Address loopback() {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return *io::Address::from(reinterpret_cast<sockaddr*>(&raw));
}

TEST(Listener, SilentPeersTakeAQuarterOfTheDescriptors) {
  constexpr std::size_t kLimit = 256;
  const DescriptorLimit limit(kLimit);
  const auto observer = std::make_shared<Nobody>();
  const auto listener =
      *Listener::start(*io::TcpSocket::bound(loopback(), {}), 16, std::chrono::hours(1), observer);
  std::vector<io::TcpSocket> clients;
  for (std::size_t i = 0; i <= kLimit / 4; ++i) {
    clients.push_back(*io::TcpSocket::bound(loopback(), {}));
    ASSERT_TRUE(clients.back().connect(listener->local_address()));
  }
  pollfd first{clients.front().fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&first, 1, -1), 1);  // waits for ever when nobody makes room
  std::byte byte{};
  EXPECT_FALSE(clients.front().receive({&byte, 1}));
  listener->close();
}

}  // namespace
}  // namespace airdma::runtime
