// SPDX-License-Identifier: MIT
// The same work on bare TCP over 127.0.0.1: what airdma is compared with. Each mode runs both ends
// in two processes on the first and the last CPU of the affinity mask and prints one number.
//
//   probe                          ns, half round trip of a spin ping-pong in shared memory
//   latency spin|epoll BYTES N     us, median half round trip of N
//   stream BYTES_PER_SEND SECONDS  GB/s (decimal), both ends spinning
//   connections N                  connections/s: N begun at once, awaited, ended by both sides
//
// The congestion control is chosen as the library chooses it on local paths.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 1024;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

int check(int result, const char* what) {
  if (result < 0) die(what);
  return result;
}

void pin(bool first) {
  cpu_set_t all;
  CPU_ZERO(&all);
  check(sched_getaffinity(0, sizeof all, &all), "sched_getaffinity");
  int chosen = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    chosen = cpu;
    if (first) break;
  }
  CPU_ZERO(&all);
  CPU_SET(static_cast<std::size_t>(chosen), &all);
  check(sched_setaffinity(0, sizeof all, &all), "sched_setaffinity");
}

void tune(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) < 0) return;
  if (std::strncmp(name, "bbr", 3) != 0) return;
  for (const char* choice : {"cubic", "reno"}) {
    const auto size = static_cast<socklen_t>(std::strlen(choice));
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, choice, size) == 0) return;
  }
}

/// Forks: `server` runs in the child with a listening socket, `client` here with its address.
/// Returns what the client returned, once the child has ended well.
template <class Server, class Client>
double with_listener(Server server, Client client) {
  const int listener = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  auto* raw = reinterpret_cast<sockaddr*>(&name);
  check(bind(listener, raw, length), "bind");
  check(listen(listener, kBacklog), "listen");
  check(getsockname(listener, raw, &length), "getsockname");
  const pid_t child = check(fork(), "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(true);
    server(listener);
    std::_Exit(0);
  }
  pin(false);
  const double result = client(name);
  int status = 0;
  check(waitpid(child, &status, 0), "waitpid");
  if (status != 0) {
    std::fprintf(stderr, "bench_tcp_peer: the other end failed\n");
    std::_Exit(1);
  }
  return result;
}

/// The same with one connection: both get a connected socket.
template <class Server, class Client>
double with_connection(Server server, Client client) {
  const auto accept_one = [&](int listener) {
    const int fd = check(accept(listener, nullptr, nullptr), "accept");
    tune(fd);
    server(fd);
  };
  const auto connect_one = [&](const sockaddr_in& name) {
    const int fd = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    check(connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name), "connect");
    tune(fd);
    const double result = client(fd);
    close(fd);
    return result;
  };
  return with_listener(accept_one, connect_one);
}

/// One recv or send that does not block: bytes, 0 when it would have, -1 at the end.
ssize_t outcome(ssize_t result) {
  if (result > 0) return result;
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return -1;
}

void send_all(int fd, const char* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t sent = outcome(send(fd, data + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL));
    if (sent < 0) die("send");
    done += static_cast<std::size_t>(sent);
  }
}

/// How a ping-pong waits for the other's message: by asking again, or asleep in epoll.
class Waiter {
 public:
  Waiter(int fd, bool sleeps) : fd_(fd), set_(sleeps ? check(epoll_create1(0), "epoll") : -1) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (sleeps) check(epoll_ctl(set_, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
  }
  /// False at the end of the stream.
  bool receive(char* data, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      epoll_event event{};
      if (set_ >= 0 && epoll_wait(set_, &event, 1, -1) < 0 && errno != EINTR) die("epoll_wait");
      const ssize_t got = outcome(recv(fd_, data + done, bytes - done, MSG_DONTWAIT));
      if (got < 0) return false;
      done += static_cast<std::size_t>(got);
    }
    return true;
  }

 private:
  int fd_;
  int set_;
};

double latency(bool sleeps, std::size_t bytes, std::size_t count) {
  const auto server = [&](int fd) {
    std::vector<char> data(bytes);
    const Waiter waiter(fd, sleeps);
    while (waiter.receive(data.data(), bytes)) send_all(fd, data.data(), bytes);
  };
  const auto client = [&](int fd) {
    std::vector<char> data(bytes);
    std::vector<std::int64_t> round_trips(count);
    const Waiter waiter(fd, sleeps);
    for (std::int64_t& round_trip : round_trips) {
      const auto start = Clock::now();
      send_all(fd, data.data(), bytes);
      if (!waiter.receive(data.data(), bytes)) die("recv");
      round_trip = std::chrono::nanoseconds(Clock::now() - start).count();
    }
    const auto middle = round_trips.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(round_trips.begin(), middle, round_trips.end());
    return static_cast<double>(*middle) / 2000;
  };
  return with_connection(server, client);
}

double stream(std::size_t bytes_per_send, double seconds) {
  constexpr std::size_t kReceiveBytes = 256 * 1024;
  const auto server = [&](int fd) {
    std::vector<char> data(kReceiveBytes);
    std::uint64_t total = 0;
    for (;;) {
      const ssize_t got = outcome(recv(fd, data.data(), data.size(), MSG_DONTWAIT));
      if (got < 0) break;
      total += static_cast<std::uint64_t>(got);
    }
    // The sender's clock stops when everything has arrived.
    send_all(fd, reinterpret_cast<const char*>(&total), sizeof total);
  };
  const auto client = [&](int fd) {
    const std::vector<char> data(bytes_per_send, 'x');
    const auto start = Clock::now();
    const auto end = start + std::chrono::duration<double>(seconds);
    while (Clock::now() < end) send_all(fd, data.data(), data.size());
    shutdown(fd, SHUT_WR);
    std::uint64_t total = 0;
    if (!Waiter(fd, false).receive(reinterpret_cast<char*>(&total), sizeof total)) die("recv");
    return static_cast<double>(total) /
           std::chrono::duration<double>(Clock::now() - start).count() / 1e9;
  };
  return with_connection(server, client);
}

void watch(int set, int fd, std::uint32_t events, bool begin) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  check(epoll_ctl(set, begin ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event), "epoll_ctl");
}

/// Calls `on_event` with each descriptor that is ready until `count` of the calls returned true.
template <class OnEvent>
void serve_events(int set, std::size_t count, OnEvent on_event) {
  std::vector<epoll_event> events(256);
  while (count > 0) {
    const int ready = epoll_wait(set, events.data(), static_cast<int>(events.size()), -1);
    if (ready < 0 && errno != EINTR) die("epoll_wait");
    for (int i = 0; i < ready; ++i) {
      if (on_event(events[static_cast<std::size_t>(i)].data.fd)) --count;
    }
  }
}

/// Accepts `count` connections and closes each when the client has ended its side.
void accept_all(int listener, std::size_t count) {
  const int set = check(epoll_create1(0), "epoll");
  check(fcntl(listener, F_SETFL, O_NONBLOCK), "fcntl");
  watch(set, listener, EPOLLIN, true);
  serve_events(set, count, [&](int fd) {
    if (fd != listener) return close(fd) == 0;
    for (int one; (one = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;) {
      watch(set, one, EPOLLIN, true);
    }
    return false;
  });
}

/// All are begun before the first is awaited, and all are ended before the first end is awaited, as
/// cmtime does it.
double connect_all(const sockaddr_in& name, std::size_t count) {
  const auto start = Clock::now();
  const int set = check(epoll_create1(0), "epoll");
  std::vector<int> sockets(count);
  for (int& fd : sockets) {
    fd = check(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
    const int rc = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name);
    if (rc < 0 && errno != EINPROGRESS) die("connect");
    watch(set, fd, EPOLLOUT | EPOLLONESHOT, true);
  }
  serve_events(set, count, [](int fd) {
    int error = 0;
    socklen_t length = sizeof error;
    check(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), "getsockopt");
    if (error != 0) {
      errno = error;
      die("connection");
    }
    return true;
  });
  for (const int fd : sockets) {
    watch(set, fd, EPOLLIN, false);
    check(shutdown(fd, SHUT_WR), "shutdown");
  }
  serve_events(set, count, [](int fd) { return close(fd) == 0; });
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - start).count();
}

double connections(std::size_t count) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return with_listener([=](int listener) { accept_all(listener, count); },
                       [=](const sockaddr_in& name) { return connect_all(name, count); });
}

/// Bounces a counter between two cores; median over groups of round trips.
double probe() {
  constexpr std::uint32_t kGroups = 200;
  constexpr std::uint32_t kPerGroup = 500;
  struct Line {
    alignas(64) std::atomic<std::uint32_t> ping{0};
    alignas(64) std::atomic<std::uint32_t> pong{0};
  };
  void* memory =
      mmap(nullptr, sizeof(Line), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  auto& line = *new (memory) Line;
  const pid_t child = check(fork(), "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(true);
    for (std::uint32_t i = 1; i <= kGroups * kPerGroup; ++i) {
      while (line.ping.load(std::memory_order_acquire) != i) {
      }
      line.pong.store(i, std::memory_order_release);
    }
    std::_Exit(0);
  }
  pin(false);
  std::vector<double> groups;
  std::uint32_t i = 0;
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    const auto start = Clock::now();
    for (std::uint32_t trip = 0; trip < kPerGroup; ++trip) {
      line.ping.store(++i, std::memory_order_release);
      while (line.pong.load(std::memory_order_acquire) != i) {
      }
    }
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    groups.push_back(ns / kPerGroup / 2);
  }
  waitpid(child, nullptr, 0);
  std::nth_element(groups.begin(), groups.begin() + kGroups / 2, groups.end());
  return groups[kGroups / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  double result = 0;
  if (arguments.size() == 1 && arguments[0] == "probe") {
    result = probe();
  } else if (arguments.size() == 4 && arguments[0] == "latency") {
    result = latency(arguments[1] == "epoll", std::stoul(arguments[2]), std::stoul(arguments[3]));
  } else if (arguments.size() == 3 && arguments[0] == "stream") {
    result = stream(std::stoul(arguments[1]), std::stod(arguments[2]));
  } else if (arguments.size() == 2 && arguments[0] == "connections") {
    result = connections(std::stoul(arguments[1]));
  } else {
    std::fprintf(stderr,
                 "usage: bench_tcp_peer probe | latency spin|epoll BYTES COUNT |"
                 " stream BYTES_PER_SEND SECONDS | connections COUNT\n");
    return 2;
  }
  std::printf("%.4f\n", result);
  return 0;
}
