// SPDX-License-Identifier: MIT
// airdma devices: what RDMA programs find under airdma run.
#include <arpa/inet.h>
#include <endian.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "airdma/command.h"
#include "airdma/launch.h"
#include "airdma/verbs_library.h"

namespace airdma::tool {
namespace {

/// "iwarp_eth0" stands for the interface eth0.
std::string interface_of(const std::string& device) {
  const std::size_t separator = device.find('_');
  return separator == std::string::npos ? std::string() : device.substr(separator + 1);
}

std::vector<std::string> addresses_of(const std::string& interface) {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || interface != entry->ifa_name) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST];
    if (::getnameinfo(entry->ifa_addr, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0) {
      addresses.emplace_back(text);
    }
  }
  ::freeifaddrs(list);
  return addresses;
}

std::optional<int> mtu_of(const std::string& interface) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  const int status = ::ioctl(fd, SIOCGIFMTU, &request);
  ::close(fd);
  return status == 0 ? std::optional<int>(request.ifr_mtu) : std::nullopt;
}

const char* state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP:
      return "NOP";
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
  }
  return "unknown";
}

const char* transport_name(ibv_transport_type type) {
  return type == IBV_TRANSPORT_IWARP ? "iWARP" : type == IBV_TRANSPORT_IB ? "RoCEv2" : "unknown";
}

/// ibv_mtu counts powers of two from 256 (1) to 4096 (5).
int mtu_bytes(ibv_mtu mtu) { return 128 << static_cast<int>(mtu); }

std::string guid_text(std::uint64_t network_order) {
  const std::uint64_t guid = be64toh(network_order);
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff,
                     guid >> 16 & 0xffff, guid & 0xffff);
}

void print_gids(const VerbsLibrary& verbs, ibv_context* context, int count) {
  constexpr ibv_gid kUnused{};
  for (int index = 0; index < count; ++index) {
    ibv_gid gid{};
    if (verbs.query_gid(context, 1, index, &gid) != 0) continue;
    if (std::memcmp(&gid, &kUnused, sizeof gid) == 0) continue;
    char text[INET6_ADDRSTRLEN];
    ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    fmt::print("    GID {:<8}{}\n", index, text);
  }
}

/// False when the device cannot be opened or asked.
bool print_device(const VerbsLibrary& verbs, ibv_device* device) {
  const std::string name = verbs.get_device_name(device);
  const std::string interface = interface_of(name);
  fmt::print("{}\n", name);
  fmt::print("    interface   {}", interface);
  if (const auto mtu = mtu_of(interface)) fmt::print(", MTU {}", *mtu);
  fmt::print("\n    transport   {}\n", transport_name(device->transport_type));
  ibv_context* context = verbs.open_device(device);
  ibv_port_attr port{};
  if (context == nullptr || verbs.query_port(context, 1, &port) != 0) {
    fmt::print("    unusable    {}\n", std::strerror(errno));
    if (context != nullptr) verbs.close_device(context);
    return false;
  }
  fmt::print("    state       {}, active MTU {}\n", state_name(port.state),
             mtu_bytes(port.active_mtu));
  fmt::print("    node GUID   {}\n", guid_text(verbs.get_device_guid(device)));
  fmt::print("    addresses   {}\n", fmt::join(addresses_of(interface), ", "));
  print_gids(verbs, context, port.gid_tbl_len);
  verbs.close_device(context);
  return true;
}

int list_devices() {
  if (const auto problem = library_problem(library_directory())) {
    fmt::print(stderr, "airdma: {}\n", *problem);
    return kExitOwnFailure;
  }
  const VerbsLibrary verbs = VerbsLibrary::load(library_directory());
  if (!verbs.problem.empty()) {
    fmt::print(stderr, "airdma: {}\n", verbs.problem);
    return kExitOwnFailure;
  }
  int count = 0;
  ibv_device** devices = verbs.get_device_list(&count);
  if (devices == nullptr) {
    fmt::print(stderr, "airdma: ibv_get_device_list: {}\n", std::strerror(errno));
    return kExitOwnFailure;
  }
  bool all_well = count > 0;
  for (int i = 0; i < count; ++i) all_well &= print_device(verbs, devices[i]);
  if (count == 0) fmt::print(stderr, "airdma: no devices: no network interface is up\n");
  verbs.free_device_list(devices);
  return all_well ? 0 : 1;
}

}  // namespace

void add_devices(CLI::App& app, Context& context) {
  CLI::App* parser = app.add_subcommand("devices", "List the devices that RDMA programs find");
  parser->footer(
      "Two devices for each network interface that is up, one for RoCEv2 and one for iWARP. Exit\n"
      "status: 1 when there is none or one cannot be opened.");
  parser->callback([&context] { context.status = list_devices(); });
}

}  // namespace airdma::tool
