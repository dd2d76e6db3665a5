// SPDX-License-Identifier: MIT
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "airdma/doctor_checks.h"

namespace airdma::tool {
namespace {

/// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

Finding failed(Verdict verdict, const char* call) {
  return {verdict, fmt::format("{}: {}", call, std::strerror(errno))};
}

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding check_kernel() {
  utsname name{};
  ::uname(&name);
  return {Verdict::kOk, fmt::format("{} {} {}", name.sysname, name.release, name.machine)};
}

/// One byte over a connection to a loopback address.
Finding exchange(const sockaddr* address, socklen_t length, const char* text) {
  const Descriptor listener(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor client(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0 || client.get() < 0) return failed(Verdict::kFail, "socket");
  if (::bind(listener.get(), address, length) != 0) return failed(Verdict::kFail, "bind");
  if (::listen(listener.get(), 1) != 0) return failed(Verdict::kFail, "listen");
  sockaddr_storage bound{};
  socklen_t bound_length = sizeof bound;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &bound_length);
  if (::connect(client.get(), reinterpret_cast<sockaddr*>(&bound), bound_length) != 0) {
    return failed(Verdict::kFail, "connect");
  }
  const Descriptor server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  char byte = 'x';
  if (::send(client.get(), &byte, 1, MSG_NOSIGNAL) != 1) return failed(Verdict::kFail, "send");
  if (::recv(server.get(), &byte, 1, 0) != 1) return failed(Verdict::kFail, "recv");
  return {Verdict::kOk, fmt::format("works on {}", text)};
}

Finding check_tcp4() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return exchange(reinterpret_cast<sockaddr*>(&address), sizeof address, "127.0.0.1");
}

Finding check_tcp6() {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  Finding finding = exchange(reinterpret_cast<sockaddr*>(&address), sizeof address, "::1");
  // IPv4 alone is enough for most.
  if (finding.verdict == Verdict::kFail) {
    finding = {Verdict::kWarn, "not available (" + finding.detail + "): IPv4 only"};
  }
  return finding;
}

Finding check_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return failed(Verdict::kFail, "getifaddrs");
  std::set<std::string> up;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) != 0) up.insert(entry->ifa_name);
  }
  ::freeifaddrs(list);
  if (up.empty()) return {Verdict::kFail, "none is up, not even loopback (ip link set lo up)"};
  return {Verdict::kOk, fmt::format("up: {}", fmt::join(up, ", "))};
}

Finding check_congestion_control() {
  const std::string standard = first_line("/proc/sys/net/ipv4/tcp_congestion_control");
  if (standard != "bbr") return {Verdict::kOk, standard.empty() ? "unknown" : standard};
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const std::string faster : {"cubic", "reno"}) {
    if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, faster.data(),
                     static_cast<socklen_t>(faster.size())) == 0) {
      return {Verdict::kOk,
              fmt::format("bbr, which is slow on loopback; {} may be chosen there", faster)};
    }
  }
  return {Verdict::kWarn, "bbr, and nothing else allowed: about 2.5 times slower on loopback"};
}

Finding check_epoll() {
  const long result = ::syscall(SYS_epoll_pwait2, -1, nullptr, 0, nullptr, nullptr, 0);
  if (result == -1 && errno == ENOSYS) {
    return {Verdict::kWarn, "no epoll_pwait2 (Linux 5.11): timers are rounded to milliseconds"};
  }
  return {Verdict::kOk, "epoll_pwait2 with nanosecond timeouts"};
}

Finding check_abstract_sockets() {
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return failed(Verdict::kWarn, "socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("airdma/doctor/{}", ::getpid());
  text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) {
    return failed(Verdict::kWarn, "bind");
  }
  return {Verdict::kOk, "abstract unix sockets work"};
}

Finding check_process_vm() {
  char from = 'x';
  char to = 0;
  const iovec local{&to, 1};
  const iovec remote{&from, 1};
  if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) != 1) {
    return failed(Verdict::kWarn, "process_vm_readv");
  }
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (!scope.empty() && scope != "0") {
    return {Verdict::kWarn, fmt::format("allowed, restricted by ptrace_scope {}", scope)};
  }
  return {Verdict::kOk, "process_vm_readv is allowed between processes of one user"};
}

Finding check_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kLow = 1024;
  if (limit.rlim_cur < kLow) {
    return {Verdict::kWarn,
            fmt::format("{}: a connection needs one or more (ulimit -n)", limit.rlim_cur)};
  }
  return {Verdict::kOk, fmt::format("{}", limit.rlim_cur)};
}

Finding check_locked_memory() {
  return {Verdict::kOk, "no limit matters: registered memory is not locked"};
}

constexpr Check kChecks[] = {
    {"kernel", check_kernel},
    {"TCP over IPv4", check_tcp4},
    {"TCP over IPv6", check_tcp6},
    {"interfaces", check_interfaces},
    {"congestion control", check_congestion_control},
    {"timers", check_epoll},
    {"unix sockets", check_abstract_sockets},
    {"UDP port 4791", check_roce_port},
    {"UDP steering", check_steering},
    {"UDP segmentation", check_segmentation},
    {"memory of other processes", check_process_vm},
    {"open files", check_descriptors},
    {"locked memory", check_locked_memory},
};

}  // namespace

std::span<const Check> machine_checks() { return kChecks; }

}  // namespace airdma::tool
