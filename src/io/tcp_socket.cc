// SPDX-License-Identifier: MIT
#include "io/tcp_socket.h"

#include <linux/sockios.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "io/raw_calls.h"

namespace airdma::io {
namespace {

void set_int(int fd, int level, int option, int value) {
  [[maybe_unused]] const int rc = ::setsockopt(fd, level, option, &value, sizeof value);
}

void apply(int fd, int family, const SocketOptions& options) {
  if (family == AF_INET6) set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, options.v6_only ? 1 : 0);
  if (options.reuse_address) set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (!options.type_of_service) return;
  if (family == AF_INET6) set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, *options.type_of_service);
  set_int(fd, IPPROTO_IP, IP_TOS, *options.type_of_service);
}

Address name_of(int fd, int (*call)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (call(fd, reinterpret_cast<sockaddr*>(&name), &length) < 0) return {};
  return Address::from(reinterpret_cast<sockaddr*>(&name)).value_or(Address{});
}

}  // namespace

Result<TcpSocket> TcpSocket::bound(const Address& local, const SocketOptions& options) {
  TcpSocket socket(
      Fd(::socket(local.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP)));
  if (!socket) return fail(errno, "socket");
  apply(socket.fd(), local.family(), options);
  if (::bind(socket.fd(), local.raw(), local.length()) == 0) return socket;
  if (errno != EADDRINUSE || options.reuse_address) return fail(errno, "bind");
  // Connections in TIME_WAIT do not hold an RDMA port. Sockets of live ids do: those get
  // SO_REUSEADDR only when they listen or connect, and a listening one conflicts all the same.
  set_int(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.fd(), local.raw(), local.length()) < 0) return fail(errno, "bind");
  set_int(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 0);
  return socket;
}

Status TcpSocket::listen(int backlog) {
  // Accepted sockets inherit it, so that their TIME_WAIT does not block the next server.
  set_int(fd_.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::listen(fd_.get(), backlog) < 0) return fail(errno, "listen");
  return {};
}

Result<TcpSocket> TcpSocket::accept(Address& peer) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  auto* raw_name = reinterpret_cast<sockaddr*>(&name);
  TcpSocket socket(Fd(::accept4(fd_.get(), raw_name, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  if (!socket) return fail(errno, "accept4");
  peer = Address::from(raw_name).value_or(Address{});
  return socket;
}

Status TcpSocket::connect(const Address& peer) {
  set_int(fd_.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  for (bool again = true;; again = false) {
    if (::connect(fd_.get(), peer.raw(), peer.length()) == 0 || errno == EINPROGRESS) return {};
    // A socket whose attempt failed says so with this, once, before it can try anew.
    if (errno != ECONNABORTED || !again) return fail(errno, "connect");
  }
}

int TcpSocket::connect_error() const {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) < 0) return errno;
  return error;
}

void TcpSocket::set(const SocketOptions& options) {
  if (fd_) apply(fd_.get(), local_address().family(), options);
}

void TcpSocket::tune_for_stream(const Address& local, const Address& peer) {
  set_int(fd_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (!local.unmapped().is_loopback() && !local.same_host(peer)) return;
  // Pacing costs more than half of a loopback stream's rate, and there is no network to be fair
  // to. An unprivileged process may choose reno everywhere.
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  if (::getsockopt(fd_.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length) < 0) return;
  if (std::strncmp(name, "bbr", 3) != 0) return;
  for (const char* choice : {"cubic", "reno"}) {
    if (::setsockopt(fd_.get(), IPPROTO_TCP, TCP_CONGESTION, choice,
                     static_cast<socklen_t>(std::strlen(choice))) == 0) {
      return;
    }
  }
}

Result<std::size_t> TcpSocket::send(Bytes bytes) {
  const ssize_t sent =
      raw::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EINTR) return std::size_t{0};
  return fail(errno, "send");
}

Result<std::size_t> TcpSocket::send(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t sent = raw::send(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EINTR) return std::size_t{0};
  return fail(errno, "sendmsg");
}

Result<std::size_t> TcpSocket::receive(MutableBytes into) {
  const ssize_t got = raw::receive(fd_.get(), into.data(), into.size(), MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) return fail(ENODATA, "recv");
  if (errno == EAGAIN || errno == EINTR) return std::size_t{0};
  return fail(errno, "recv");
}

void TcpSocket::shutdown_send() { [[maybe_unused]] const int rc = ::shutdown(fd_.get(), SHUT_WR); }

void TcpSocket::abort() {
  if (!fd_) return;
  const linger now{1, 0};
  [[maybe_unused]] const int rc = ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd_.reset();
}

Address TcpSocket::local_address() const { return name_of(fd_.get(), &::getsockname); }
Address TcpSocket::peer_address() const { return name_of(fd_.get(), &::getpeername); }

std::size_t TcpSocket::segment_size() const {
  int size = 0;
  socklen_t length = sizeof size;
  if (::getsockopt(fd_.get(), IPPROTO_TCP, TCP_MAXSEG, &size, &length) < 0 || size <= 0) return 536;
  return static_cast<std::size_t>(size);
}

bool TcpSocket::has_unacknowledged() const {
  int bytes = 0;
  return ::ioctl(fd_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace airdma::io
