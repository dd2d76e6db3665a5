// SPDX-License-Identifier: MIT
// Socket addresses as values (IPv4 and IPv6, with port and scope), and the host's interfaces.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace airdma::io {

/// An IPv4 or IPv6 endpoint. Copies are cheap; family() is 0 while empty.
class Address {
 public:
  Address() { storage_.ss_family = 0; }
  /// Nothing for a null pointer or another family than AF_INET and AF_INET6.
  static std::optional<Address> from(const sockaddr* address);
  /// "0.0.0.0" or "::" with `port` in host order.
  static Address any(int family, std::uint16_t port);

  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage_); }
  [[nodiscard]] const sockaddr_storage& storage() const { return storage_; }
  /// sizeof the structure of the family.
  [[nodiscard]] socklen_t length() const;
  [[nodiscard]] std::uint16_t port() const;   // host order
  void set_port(std::uint16_t port);          // host order
  [[nodiscard]] std::uint32_t scope() const;  // sin6_scope_id, 0 for IPv4
  [[nodiscard]] bool is_any() const;
  [[nodiscard]] bool is_loopback() const;
  /// True for the same IP address (and scope where both name one); ports are not compared.
  [[nodiscard]] bool same_host(const Address& other) const;
  /// An IPv4-mapped IPv6 address as the IPv4 address it carries; others unchanged.
  [[nodiscard]] Address unmapped() const;
  /// The 16 bytes of a GID: IPv6 as it is, IPv4 as ::ffff:a.b.c.d.
  [[nodiscard]] std::array<std::uint8_t, 16> gid() const;
  [[nodiscard]] std::string text() const;  // "10.0.0.1:7471", "[fe80::1%2]:7471"

 private:
  sockaddr_storage storage_{};
};

/// One network interface that is up.
struct Interface {
  std::string name;
  unsigned index = 0;
  bool loopback = false;
  bool running = false;  // has carrier
  std::uint32_t mtu = 0;
  std::uint64_t speed_mbps = 0;  // 0 when unknown
  std::array<std::uint8_t, 6> mac{};
  std::vector<Address> addresses;  // without ports; IPv4 before IPv6 global before link-local
};

/// Interfaces that are up, real ones before loopback, in index order.
Result<std::vector<Interface>> list_interfaces();

/// The address this host would send from to reach `destination`, bound to `source` when that is not
/// empty. A destination that is one of this host's own addresses gives itself.
/// Errors: ENETUNREACH, EHOSTUNREACH, EINVAL (IPv6 link-local without a scope), EADDRNOTAVAIL.
Result<Address> source_for(const Address& destination, const Address& source);

/// Index of the interface that owns the address. ENODEV when it is not ours, EMFILE, ENOMEM.
Result<unsigned> interface_of(const Address& address);

}  // namespace airdma::io
