// SPDX-License-Identifier: MIT
#include "io/local_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "io/raw_calls.h"

namespace airdma::io {
namespace {

// Two of the longest messages on their way, where the system allows it.
constexpr int kSendBuffer = 512 * 1024;

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Name(std::string_view text) {
    address.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(text.size(), sizeof address.sun_path - 1);
    // The first byte stays 0: abstract.
    std::memcpy(address.sun_path + 1, text.data(), bytes);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Result<Fd> open_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail(errno, "socket");
  return fd;
}

bool of_this_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace

Result<LocalConnection> LocalConnection::connect(std::string_view name) {
  auto fd = open_socket();
  if (!fd) return std::unexpected(fd.error());
  const Name target(name);
  if (::connect(fd->get(), target.raw(), target.length) < 0) return fail(errno, "connect");
  if (!of_this_user(fd->get())) return fail(EACCES, "getsockopt");
  [[maybe_unused]] const int rc =
      ::setsockopt(fd->get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  return LocalConnection(std::move(*fd));
}

Status LocalConnection::send(std::span<iovec> pieces) {
  msghdr header{};
  header.msg_iov = pieces.data();
  header.msg_iovlen = pieces.size();
  for (;;) {
    if (raw::send_message(fd_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) return fail(errno, "sendmsg");
  }
}

Result<std::size_t> LocalConnection::receive(MutableBytes into) {
  for (;;) {
    const ssize_t got = raw::receive(fd_.get(), into.data(), into.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got == 0) return fail(ENODATA, "recv");
    if (got > 0) {
      const auto bytes = static_cast<std::size_t>(got);
      if (bytes > into.size()) return fail(EMSGSIZE, "recv");
      return bytes;
    }
    if (errno != EINTR) return fail(errno == ECONNRESET ? ENODATA : errno, "recv");
  }
}

bool LocalConnection::ended() const {
  pollfd item{fd_.get(), POLLRDHUP, 0};
  return ::poll(&item, 1, 0) > 0 && (item.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Result<LocalListener> LocalListener::open(std::string_view name) {
  auto fd = open_socket();
  if (!fd) return std::unexpected(fd.error());
  const Name own(name);
  if (::bind(fd->get(), own.raw(), own.length) < 0) return fail(errno, "bind");
  if (::listen(fd->get(), SOMAXCONN) < 0) return fail(errno, "listen");
  return LocalListener(std::move(*fd));
}

Result<LocalConnection> LocalListener::accept() {
  for (;;) {
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd && errno != EINTR && errno != ECONNABORTED) return fail(errno, "accept4");
    if (fd && of_this_user(fd.get())) return LocalConnection(std::move(fd));
  }
}

namespace {

/// The abstract name that is listened at in a line of /proc/net/unix, which writes its zero byte as
/// '@'. Connections that were taken in have the name, too, and may outlive the listener.
std::optional<std::string_view> name_in(std::string_view line) {
  // Number, reference count and protocol precede the flags; this one is __SO_ACCEPTCON.
  if (line.find(" 00010000 ") == std::string_view::npos) return std::nullopt;
  const std::size_t at = line.find(" @");
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + 2);
}

std::string read_all(const char* path) {
  std::string text;
  const Fd file(raw::open(path));
  if (!file) return text;
  char part[16384];
  for (;;) {
    const ssize_t got = raw::read(file.get(), part, sizeof part);
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

}  // namespace

std::vector<std::string> local_names(std::string_view prefix) {
  std::vector<std::string> names;
  // Not /proc/net: that is the main thread's, which may have gone to another namespace.
  const std::string text = read_all("/proc/thread-self/net/unix");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const auto name = name_in(std::string_view(text).substr(begin, end - begin));
    if (name && name->starts_with(prefix)) names.emplace_back(*name);
    begin = end + 1;
  }
  return names;
}

}  // namespace airdma::io
