// SPDX-License-Identifier: MIT
#include "io/address.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "io/fd.h"

namespace airdma::io {
namespace {

const sockaddr_in& v4(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in&>(storage);
}
const sockaddr_in6& v6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6&>(storage);
}
sockaddr_in& v4(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in&>(storage); }
sockaddr_in6& v6(sockaddr_storage& storage) { return reinterpret_cast<sockaddr_in6&>(storage); }

}  // namespace

std::optional<Address> Address::from(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  Address result;
  if (address->sa_family == AF_INET) {
    std::memcpy(&result.storage_, address, sizeof(sockaddr_in));
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(&result.storage_, address, sizeof(sockaddr_in6));
  } else {
    return std::nullopt;
  }
  return result;
}

Address Address::any(int family, std::uint16_t port) {
  Address result;
  result.storage_.ss_family = static_cast<sa_family_t>(family);
  result.set_port(port);
  return result;
}

socklen_t Address::length() const {
  return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::uint16_t Address::port() const {
  return ntohs(family() == AF_INET ? v4(storage_).sin_port : v6(storage_).sin6_port);
}

void Address::set_port(std::uint16_t port) {
  if (family() == AF_INET) {
    v4(storage_).sin_port = htons(port);
  } else {
    v6(storage_).sin6_port = htons(port);
  }
}

std::uint32_t Address::scope() const {
  return family() == AF_INET6 ? v6(storage_).sin6_scope_id : 0;
}

bool Address::is_any() const {
  if (family() == AF_INET) return v4(storage_).sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6(storage_).sin6_addr);
}

bool Address::is_loopback() const {
  if (family() == AF_INET) return ntohl(v4(storage_).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(storage_).sin6_addr);
}

bool Address::same_host(const Address& other) const {
  if (family() != other.family()) return false;
  if (family() == AF_INET) {
    return v4(storage_).sin_addr.s_addr == v4(other.storage_).sin_addr.s_addr;
  }
  const bool scopes_agree = scope() == other.scope() || scope() == 0 || other.scope() == 0;
  return scopes_agree &&
         std::memcmp(&v6(storage_).sin6_addr, &v6(other.storage_).sin6_addr, 16) == 0;
}

Address Address::unmapped() const {
  if (family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6(storage_).sin6_addr)) return *this;
  Address result = any(AF_INET, port());
  std::memcpy(&v4(result.storage_).sin_addr, v6(storage_).sin6_addr.s6_addr + 12, 4);
  return result;
}

std::array<std::uint8_t, 16> Address::gid() const {
  std::array<std::uint8_t, 16> bytes{};
  if (family() == AF_INET) {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &v4(storage_).sin_addr, 4);
  } else if (family() == AF_INET6) {
    std::memcpy(bytes.data(), &v6(storage_).sin6_addr, 16);
  }
  return bytes;
}

std::string Address::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  char line[INET6_ADDRSTRLEN + 32];
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &v4(storage_).sin_addr, host, sizeof host);
    std::snprintf(line, sizeof line, "%s:%u", host, port());
  } else if (family() == AF_INET6) {
    ::inet_ntop(AF_INET6, &v6(storage_).sin6_addr, host, sizeof host);
    if (scope() != 0) {
      std::snprintf(line, sizeof line, "[%s%%%u]:%u", host, scope(), port());
    } else {
      std::snprintf(line, sizeof line, "[%s]:%u", host, port());
    }
  } else {
    return "(none)";
  }
  return line;
}

Result<Address> source_for(const Address& destination, const Address& source) {
  const Fd probe(::socket(destination.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return fail(errno, "socket");
  if (source.family() != 0 && !source.is_any()) {
    Address local = source;
    local.set_port(0);
    if (::bind(probe.get(), local.raw(), local.length()) < 0) return fail(errno, "bind");
  }
  Address target = destination;
  target.set_port(destination.port() != 0 ? destination.port() : 9);
  if (::connect(probe.get(), target.raw(), target.length()) < 0) {
    // The kernel answers EACCES for a broadcast address, which no connection can reach.
    return fail(errno == EACCES ? ENETUNREACH : errno, "connect");
  }
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&name), &length) < 0) {
    return fail(errno, "getsockname");
  }
  auto result = Address::from(reinterpret_cast<sockaddr*>(&name));
  if (!result) return fail(EAFNOSUPPORT, "getsockname");
  result->set_port(0);
  return *result;
}

}  // namespace airdma::io
