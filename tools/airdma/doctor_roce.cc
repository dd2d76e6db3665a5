// SPDX-License-Identifier: MIT
// What RoCEv2 needs of UDP. Nothing here opens port 4791 while somebody has it: a socket that joins
// those of running programs would be given their packets.
#include <fmt/core.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "airdma/doctor_checks.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace airdma::tool {
namespace {

constexpr std::uint16_t kRocePort = 4791;

/// A UDP socket over IPv4, on loopback unless it is the port of RoCEv2, shared if possible.
class Socket {
 public:
  explicit Socket(std::uint16_t port)
      : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    name_.sin_family = AF_INET;
    name_.sin_port = htons(port);
    name_.sin_addr.s_addr = htonl(port == kRocePort ? INADDR_ANY : INADDR_LOOPBACK);
    socklen_t length = sizeof name_;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&name_), length) != 0) error_ = errno;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&name_), &length);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { ::close(fd_); }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] std::uint16_t port() const { return ntohs(name_.sin_port); }
  bool send_to(const Socket& other, const void* data, std::size_t bytes) const {
    return ::sendto(fd_, data, bytes, 0, reinterpret_cast<const sockaddr*>(&other.name_),
                    sizeof other.name_) == static_cast<ssize_t>(bytes);
  }
  [[nodiscard]] bool receives() const {
    pollfd item{fd_, POLLIN, 0};
    return ::poll(&item, 1, 200) > 0;
  }

 private:
  int fd_;
  int error_ = 0;
  sockaddr_in name_{};
};

/// Who has the port, by what the kernel tells of all sockets.
struct Holders {
  std::set<unsigned> users;
  int sockets = 0;
  bool kernel = false;
};

void read_holders(const char* path, Holders& holders) {
  std::ifstream in(path);
  const std::string wanted = fmt::format(":{:04X}", kRocePort);
  std::string line;
  std::getline(in, line);  // titles
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmissions, timeout;
    unsigned user = 0;
    unsigned long inode = 0;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmissions >> user >>
        timeout >> inode;
    if (!local.ends_with(wanted)) continue;
    ++holders.sockets;
    holders.users.insert(user);
    holders.kernel = holders.kernel || inode == 0;
  }
}

Finding within_host(const std::string& reason) {
  return {Verdict::kWarn, reason +
                              ": RoCE devices reach only programs of this user on this host; iWARP "
                              "(AIRDMA_CM=iwarp) reaches other hosts and users"};
}

}  // namespace

Finding check_roce_port() {
  Holders holders;
  read_holders("/proc/self/net/udp", holders);
  read_holders("/proc/self/net/udp6", holders);
  if (holders.kernel) return within_host("the kernel's RoCE driver has it");
  for (const unsigned user : holders.users) {
    if (user != ::geteuid()) return within_host(fmt::format("user {} has it", user));
  }
  if (holders.sockets > 0) {
    return {Verdict::kOk, fmt::format("shared with {} sockets of this user", holders.sockets)};
  }
  const Socket socket(kRocePort);
  if (socket.error() != 0) return within_host(std::strerror(socket.error()));
  return {Verdict::kOk, "free"};
}

Finding check_steering() {
  const Socket first(0);
  const Socket second(first.port());
  const Socket sender(0);
  // Both in turn, so that chance does not look like success.
  for (std::uint32_t index = 0; index < 2; ++index) {
    sock_filter answer = BPF_STMT(BPF_RET | BPF_K, index);
    const sock_fprog program{1, &answer};
    if (::setsockopt(first.fd(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) !=
        0) {
      return {Verdict::kWarn,
              fmt::format("SO_ATTACH_REUSEPORT_CBPF: {}: packets of several RoCE programs take a "
                          "detour",
                          std::strerror(errno))};
    }
    const Socket& chosen = index == 0 ? first : second;
    if (!sender.send_to(first, "x", 1) || !chosen.receives()) {
      return {Verdict::kWarn, "has no effect: packets of several RoCE programs take a detour"};
    }
    char byte = 0;
    [[maybe_unused]] const ssize_t got = ::recv(chosen.fd(), &byte, 1, 0);
  }
  if (::access("/proc/self/net/unix", R_OK) != 0) {
    return {Verdict::kWarn,
            "/proc/net/unix cannot be read: packets of several RoCE programs take a detour"};
  }
  return {Verdict::kOk, "the kernel brings packets to the RoCE program whose they are"};
}

Finding check_segmentation() {
  const Socket receiver(0);
  const Socket sender(0);
  const int segment = 500;
  const std::array<char, 1000> data{};
  if (::setsockopt(sender.fd(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0 ||
      !sender.send_to(receiver, data.data(), data.size()) || !receiver.receives()) {
    return {Verdict::kWarn, "no UDP_SEGMENT: RoCEv2 is many times slower"};
  }
  return {Verdict::kOk, "UDP_SEGMENT works"};
}

}  // namespace airdma::tool
