// SPDX-License-Identifier: MIT
#include "verbs/device.h"

#include <endian.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/process_global.h"
#include "io/address_watch.h"
#include "verbs/api.h"
#include "verbs/preference.h"

namespace airdma::verbs {
namespace {

constinit std::atomic<Device*> first_device{nullptr};

/// What the kernel said last, as long as it says nothing new: programs ask for a port and its GIDs
/// for each queue pair, and a whole answer takes milliseconds.
struct KnownInterfaces {
  std::mutex mutex;
  io::AddressWatch::Generation generation = io::AddressWatch::kUnwatched;
  std::vector<io::Interface> list;
};

/// EUI-64 of the interface's MAC address. One without (loopback, tunnels) gets a locally
/// administered GUID from its name, the same in every process of the host.
__be64 guid_of(const io::Interface& interface) {
  std::uint64_t guid = 0;
  const auto& mac = interface.mac;
  if (std::any_of(mac.begin(), mac.end(), [](std::uint8_t byte) { return byte != 0; })) {
    const std::uint8_t bytes[8] = {
        static_cast<std::uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    for (const std::uint8_t byte : bytes) guid = guid << 8 | byte;
    return htobe64(guid);
  }
  guid = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : interface.name) {
    guid = (guid ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
  }
  guid &= ~(std::uint64_t{1} << 56);  // not a group address
  return htobe64(guid | std::uint64_t{2} << 56);
}

Device* make_device(const io::Interface& interface, Transport transport, int index) {
  auto device = std::make_unique<Device>();
  const bool roce = transport == Transport::kRoce;
  device->transport = transport;
  device->interface = interface.name;
  device->guid = guid_of(interface);
  device->index = index;
  ibv_device& pub = device->pub;
  pub.node_type = roce ? IBV_NODE_CA : IBV_NODE_RNIC;
  pub.transport_type = roce ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
  std::snprintf(pub.name, sizeof pub.name, "%s_%s", roce ? "roce" : "iwarp",
                interface.name.c_str());
  std::snprintf(pub.dev_name, sizeof pub.dev_name, "uverbs%d", index - 1);
  std::snprintf(pub.dev_path, sizeof pub.dev_path, "/sys/class/infiniband_verbs/uverbs%d",
                index - 1);
  std::snprintf(pub.ibdev_path, sizeof pub.ibdev_path, "/sys/class/infiniband/%s", pub.name);
  return device.release();
}

/// The device of the interface; made and appended when there is none.
Device* find_or_make(const io::Interface& interface, Transport transport) {
  std::atomic<Device*>* link = &first_device;
  int index = 1;
  std::unique_ptr<Device> fresh;
  for (;;) {
    Device* here = link->load(std::memory_order_acquire);
    if (here == nullptr) {
      fresh.reset(make_device(interface, transport, index));
      if (link->compare_exchange_strong(here, fresh.get(), std::memory_order_acq_rel)) {
        return fresh.release();
      }
    }
    if (here->interface == interface.name && here->transport == transport) return here;
    link = &here->next;
    index = here->index + 1;
  }
}

}  // namespace

std::optional<io::Interface> Device::look() const {
  KnownInterfaces& known = ProcessGlobal<KnownInterfaces>::get();
  std::lock_guard lock(known.mutex);
  const auto generation = io::AddressWatch::get().generation();
  const bool holds = generation != io::AddressWatch::kUnwatched && generation == known.generation;
  if (!holds || known.list.empty()) {
    known.list.clear();
    known.generation = generation;
    auto interfaces = io::list_interfaces();
    if (!interfaces) return std::nullopt;
    known.list = std::move(*interfaces);
  }
  for (const io::Interface& candidate : known.list) {
    if (candidate.name == interface) return candidate;
  }
  return std::nullopt;
}

bool prefers_iwarp() {
  const char* wish = ::secure_getenv("AIRDMA_CM");
  if (wish == nullptr) return false;
  const std::string_view value = wish;
  static std::atomic<bool> told{false};
  if (!value.empty() && value != "iwarp" && value != "roce" && !told.exchange(true)) {
    AIRDMA_LOG_ERROR("AIRDMA_CM=%s is not a value it can have; ignored", wish);
  }
  return value == "iwarp";
}

Result<std::vector<Device*>> list_devices() {
  // What is wrong with AIRDMA_LOG is told even if there is nothing to log.
  [[maybe_unused]] const bool logs = log_enabled(LogLevel::kError);
  const auto interfaces = io::list_interfaces();
  if (!interfaces) return std::unexpected(interfaces.error());
  std::vector<Device*> devices;
  devices.reserve(2 * interfaces->size());
  const Transport first = prefers_iwarp() ? Transport::kIwarp : Transport::kRoce;
  const Transport second = prefers_iwarp() ? Transport::kRoce : Transport::kIwarp;
  for (const io::Interface& interface : *interfaces) {
    for (const Transport transport : {first, second}) {
      devices.push_back(find_or_make(interface, transport));
    }
  }
  return devices;
}

Device* find_device(const ibv_device* handle) {
  for (Device* device = first_device.load(std::memory_order_acquire); device != nullptr;
       device = device->next.load(std::memory_order_acquire)) {
    if (&device->pub == handle) return device;
  }
  return nullptr;
}

Result<ibv_device**> get_device_list(int* num_devices) {
  const auto devices = list_devices();
  if (!devices) return std::unexpected(devices.error());
  auto list = std::make_unique<ibv_device*[]>(devices->size() + 1);
  for (std::size_t i = 0; i < devices->size(); ++i) list[i] = &(*devices)[i]->pub;
  if (num_devices != nullptr) *num_devices = static_cast<int>(devices->size());
  return list.release();
}

void free_device_list(ibv_device** list) { delete[] list; }

Result<const char*> get_device_name(ibv_device* device) {
  if (find_device(device) == nullptr) return fail(EINVAL);
  return device->name;
}

Result<__be64> get_device_guid(ibv_device* device) {
  const Device* found = find_device(device);
  if (found == nullptr) return fail(EINVAL);
  return found->guid;
}

Result<int> get_device_index(ibv_device* device) {
  const Device* found = find_device(device);
  if (found == nullptr) return fail(EINVAL);
  return found->index;
}

}  // namespace airdma::verbs
