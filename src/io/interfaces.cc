// SPDX-License-Identifier: MIT
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "io/address.h"
#include "io/fd.h"
#include "io/raw_calls.h"

namespace airdma::io {
namespace {

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Result<InterfaceList> read_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) < 0) return fail(errno, "getifaddrs");
  return InterfaceList(list, &::freeifaddrs);
}

std::uint32_t read_mtu(const char* name) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (!socket || ::ioctl(socket.get(), SIOCGIFMTU, &request) < 0) return 1500;
  return static_cast<std::uint32_t>(request.ifr_mtu);
}

std::uint64_t read_speed_mbps(const std::string& name) {
  const Fd file(raw::open(("/sys/class/net/" + name + "/speed").c_str()));
  char text[32] = {};
  if (!file || raw::read(file.get(), text, sizeof text - 1) <= 0) return 0;
  const long value = std::strtol(text, nullptr, 10);
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

Interface& entry_of(std::vector<Interface>& all, const ifaddrs& item) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Interface& one) { return one.name == item.ifa_name; });
  if (found != all.end()) return *found;
  Interface fresh;
  fresh.name = item.ifa_name;
  fresh.index = ::if_nametoindex(item.ifa_name);
  fresh.loopback = (item.ifa_flags & IFF_LOOPBACK) != 0;
  fresh.running = (item.ifa_flags & IFF_RUNNING) != 0;
  fresh.mtu = read_mtu(item.ifa_name);
  fresh.speed_mbps = read_speed_mbps(fresh.name);
  all.push_back(std::move(fresh));
  return all.back();
}

void add_item(std::vector<Interface>& all, const ifaddrs& item) {
  Interface& entry = entry_of(all, item);
  if (item.ifa_addr == nullptr) return;
  if (item.ifa_addr->sa_family == AF_PACKET) {
    const auto& link = *reinterpret_cast<const sockaddr_ll*>(item.ifa_addr);
    std::memcpy(entry.mac.data(), link.sll_addr, entry.mac.size());
  } else if (const auto address = Address::from(item.ifa_addr)) {
    entry.addresses.push_back(*address);
  }
}

int address_rank(const Address& address) {
  if (address.family() == AF_INET) return 0;
  const auto& in6 = reinterpret_cast<const sockaddr_in6*>(address.raw())->sin6_addr;
  return IN6_IS_ADDR_LINKLOCAL(&in6) ? 2 : 1;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  auto list = read_addresses();
  if (!list) return std::unexpected(list.error());
  std::vector<Interface> all;
  for (const ifaddrs* item = list->get(); item != nullptr; item = item->ifa_next) {
    if ((item->ifa_flags & IFF_UP) != 0) add_item(all, *item);
  }
  for (Interface& entry : all) {
    std::stable_sort(
        entry.addresses.begin(), entry.addresses.end(),
        [](const Address& a, const Address& b) { return address_rank(a) < address_rank(b); });
  }
  std::stable_sort(all.begin(), all.end(), [](const Interface& a, const Interface& b) {
    return a.loopback != b.loopback ? b.loopback : a.index < b.index;
  });
  return all;
}

Result<unsigned> interface_of(const Address& address) {
  auto list = read_addresses();
  if (!list) return std::unexpected(list.error());
  Result<unsigned> loopback = fail(ENODEV, "interface_of");
  for (const ifaddrs* item = list->get(); item != nullptr; item = item->ifa_next) {
    if ((item->ifa_flags & IFF_UP) == 0) continue;
    const auto own = Address::from(item->ifa_addr);
    if (own && own->same_host(address)) return ::if_nametoindex(item->ifa_name);
    if ((item->ifa_flags & IFF_LOOPBACK) != 0) loopback = ::if_nametoindex(item->ifa_name);
  }
  // All of 127.0.0.0/8 is the loopback interface's, though it lists one address.
  if (address.is_loopback()) return loopback;
  return fail(ENODEV, "interface_of");
}

}  // namespace airdma::io
