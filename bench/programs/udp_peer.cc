// SPDX-License-Identifier: MIT
// The same work on bare UDP: what RoCEv2 is compared with. The two ends are two processes, so that
// they can be in two network namespaces; figures are printed by the client.
//
//   serve PORT                                  one client, then ends
//   stream ADDRESS PORT BYTES SECONDS           GB/s (decimal) of datagrams of BYTES that arrived,
//                                               sent by UDP_SEGMENT, received by UDP_GRO
//   latency spin|epoll ADDRESS PORT BYTES N     us, median half round trip of N
//
// The stream keeps a window, so that no socket overflows: the receiver tells what it has for each
// quarter. Both ends spin. A TCP connection to the same port number begins and ends the work.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 65507;
constexpr std::size_t kMostSegments = 64;
// Half of it fits in the receive buffer that systems give by default.
constexpr std::uint64_t kWindow = 256 * 1024;
// Nothing was heard for so long: what is not there by now is lost.
constexpr auto kLost = std::chrono::milliseconds(5);

enum class Kind : std::uint32_t { kStream, kSpin, kSleep };

/// First on the TCP connection.
struct Order {
  Kind kind;
  std::uint32_t bytes;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

long check(long result, const char* what) {
  if (result < 0) die(what);
  return result;
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address parse(const std::string& text, std::uint16_t port) {
  Address address;
  auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    address.length = sizeof *in;
  } else if (inet_pton(AF_INET6, text.c_str(), &in6->sin6_addr) == 1) {
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    address.length = sizeof *in6;
  } else {
    std::fprintf(stderr, "bench_udp_peer: not an address: %s\n", text.c_str());
    std::_Exit(2);
  }
  return address;
}

int open_udp(int family) {
  const int fd = static_cast<int>(check(socket(family, SOCK_DGRAM, 0), "socket"));
  const int on = 1;
  const int bytes = 8 * 1024 * 1024;
  setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  return fd;
}

/// Asks once. Bytes, 0 when there are none.
std::size_t receive(int fd, void* data, std::size_t bytes, Address* from = nullptr) {
  if (from != nullptr) from->length = sizeof from->storage;
  const ssize_t got =
      recvfrom(fd, data, bytes, MSG_DONTWAIT, from != nullptr ? from->raw() : nullptr,
               from != nullptr ? &from->length : nullptr);
  if (got < 0 && errno != EAGAIN && errno != EINTR) die("recvfrom");
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

void send(int fd, const void* data, std::size_t bytes, const Address& to) {
  while (sendto(fd, data, bytes, 0, to.raw(), to.length) < 0) {
    if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR) die("sendto");
  }
}

bool has_ended(int control) {
  char byte = 0;
  const ssize_t got = recv(control, &byte, 1, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// --- The server ---

void count_stream(int udp, int control) {
  std::vector<char> data(kMostBytes + 64);
  std::uint64_t total = 0;
  std::uint64_t told = 0;
  Address from;
  for (std::uint32_t idle = 0; idle < 1000 || !has_ended(control);) {
    const std::size_t got = receive(udp, data.data(), data.size(), &from);
    idle = got != 0 ? 0 : (idle < 1000 ? idle + 1 : 1);
    total += got;
    if (total - told < kWindow / 4) continue;
    send(udp, &total, sizeof total, from);
    told = total;
  }
}

/// Waits for a datagram by asking again, or asleep in epoll.
class Waiter {
 public:
  Waiter(int fd, int control, bool sleeps)
      : fd_(fd),
        control_(control),
        set_(sleeps ? static_cast<int>(check(epoll_create1(0), "epoll_create1")) : -1) {
    epoll_event event{};
    event.events = EPOLLIN;
    for (const int one : {fd, control}) {
      if (sleeps) check(epoll_ctl(set_, EPOLL_CTL_ADD, one, &event), "epoll_ctl");
    }
  }
  /// 0 when the other end is done.
  std::size_t receive_next(void* data, std::size_t bytes, Address* from) const {
    for (std::uint32_t turn = 1;; ++turn) {
      epoll_event event{};
      if (set_ >= 0 && epoll_wait(set_, &event, 1, -1) < 0 && errno != EINTR) die("epoll_wait");
      if (const std::size_t got = receive(fd_, data, bytes, from); got != 0) return got;
      if ((set_ >= 0 || turn % 4096 == 0) && has_ended(control_)) return 0;
    }
  }

 private:
  int fd_;
  int control_;
  int set_;
};

void echo(int udp, int control, bool sleeps) {
  std::vector<char> data(kMostBytes);
  const Waiter waiter(udp, control, sleeps);
  Address from;
  while (const std::size_t got = waiter.receive_next(data.data(), data.size(), &from)) {
    send(udp, data.data(), got, from);
  }
}

int serve(std::uint16_t port) {
  const Address any = parse("::", port);
  const int udp = open_udp(AF_INET6);
  check(bind(udp, any.raw(), any.length), "bind");
  const int listener = static_cast<int>(check(socket(AF_INET6, SOCK_STREAM, 0), "socket"));
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  check(bind(listener, any.raw(), any.length), "bind");
  check(listen(listener, 1), "listen");
  const int control = static_cast<int>(check(accept(listener, nullptr, nullptr), "accept"));
  Order order{};
  check(recv(control, &order, sizeof order, MSG_WAITALL), "recv");
  if (order.kind == Kind::kStream) {
    count_stream(udp, control);
  } else {
    echo(udp, control, order.kind == Kind::kSleep);
  }
  return 0;
}

// --- The client ---

struct Session {
  int udp;
  int control;
  Address to;
};

Session begin(const std::string& host, std::uint16_t port, const Order& order) {
  Session session{0, 0, parse(host, port)};
  session.udp = open_udp(session.to.storage.ss_family);
  session.control =
      static_cast<int>(check(socket(session.to.storage.ss_family, SOCK_STREAM, 0), "socket"));
  check(connect(session.control, session.to.raw(), session.to.length), "connect");
  check(::send(session.control, &order, sizeof order, 0), "send");
  return session;
}

double stream(const std::string& host, std::uint16_t port, std::size_t bytes, double seconds) {
  const Session session = begin(host, port, {Kind::kStream, static_cast<std::uint32_t>(bytes)});
  const int segment = static_cast<int>(bytes);
  check(setsockopt(session.udp, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), "UDP_SEGMENT");
  const std::size_t segments = std::clamp<std::size_t>(kMostBytes / bytes, 1, kMostSegments);
  const std::vector<char> data(segments * bytes, 'x');
  std::uint64_t sent = 0;
  std::uint64_t arrived = 0;
  std::uint64_t lost = 0;
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration<double>(seconds);
  auto heard = start;
  auto now = start;
  while (now < end) {
    if (sent + data.size() - arrived - lost <= kWindow) {
      send(session.udp, data.data(), data.size(), session.to);
      sent += data.size();
    }
    std::uint64_t total = 0;
    now = Clock::now();
    if (receive(session.udp, &total, sizeof total) == sizeof total) {
      arrived = std::max(arrived, total);
      heard = now;
    } else if (now - heard > kLost) {
      lost = sent - arrived;
      heard = now;
    }
  }
  if (lost > 0)
    std::fprintf(stderr, "bench_udp_peer: %.3f %% lost\n",
                 100.0 * static_cast<double>(lost) / static_cast<double>(sent));
  return static_cast<double>(arrived) / std::chrono::duration<double>(now - start).count() / 1e9;
}

double latency(bool sleeps, const std::string& host, std::uint16_t port, std::size_t bytes,
               std::size_t count) {
  const Session session =
      begin(host, port, {sleeps ? Kind::kSleep : Kind::kSpin, static_cast<std::uint32_t>(bytes)});
  std::vector<char> data(std::max<std::size_t>(bytes, 1));
  std::vector<std::int64_t> round_trips(count);
  const Waiter waiter(session.udp, session.control, sleeps);
  for (std::int64_t& round_trip : round_trips) {
    const auto start = Clock::now();
    send(session.udp, data.data(), data.size(), session.to);
    if (waiter.receive_next(data.data(), data.size(), nullptr) == 0) die("the server has ended");
    round_trip = std::chrono::nanoseconds(Clock::now() - start).count();
  }
  const auto middle = round_trips.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(round_trips.begin(), middle, round_trips.end());
  return static_cast<double>(*middle) / 2000;
}

std::uint16_t port_of(const std::string& text) {
  return static_cast<std::uint16_t>(std::stoul(text));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  double result = 0;
  if (arguments.size() == 2 && arguments[0] == "serve") {
    return serve(port_of(arguments[1]));
  } else if (arguments.size() == 5 && arguments[0] == "stream") {
    result = stream(arguments[1], port_of(arguments[2]), std::stoul(arguments[3]),
                    std::stod(arguments[4]));
  } else if (arguments.size() == 6 && arguments[0] == "latency") {
    result = latency(arguments[1] == "epoll", arguments[2], port_of(arguments[3]),
                     std::stoul(arguments[4]), std::stoul(arguments[5]));
  } else {
    std::fprintf(stderr,
                 "usage: bench_udp_peer serve PORT | stream ADDRESS PORT BYTES SECONDS |"
                 " latency spin|epoll ADDRESS PORT BYTES COUNT\n");
    return 2;
  }
  std::printf("%.4f\n", result);
  return 0;
}
