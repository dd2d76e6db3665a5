// SPDX-License-Identifier: MIT
#include "verbs/gid_table.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/process_global.h"

namespace airdma::verbs {
namespace {

// Of RoCEv2 over IPv6: IP, UDP, the longest transport headers and the ICRC.
constexpr std::uint32_t kRoceOverhead = 40 + 8 + 12 + 28 + 4;

struct GidTables {
  std::mutex mutex;
  std::unordered_map<const Device*, GidSlots> slots;
};

std::vector<model::Gid> addresses_of(const io::Interface& interface) {
  std::vector<model::Gid> gids;
  for (const io::Address& address : interface.addresses) gids.push_back({address.gid()});
  return gids;
}

void update(GidSlots& slots, const std::vector<model::Gid>& addresses) {
  for (auto& slot : slots) {
    if (slot && std::ranges::find(addresses, *slot) == addresses.end()) slot.reset();
  }
  for (const model::Gid& address : addresses) {
    if (std::ranges::find(slots, std::optional(address)) != slots.end()) continue;
    const auto free = std::ranges::find_if(slots, [](const auto& slot) { return !slot; });
    if (free != slots.end()) *free = address;
  }
}

GidSlots current_slots(const Device& device, const std::optional<io::Interface>& interface) {
  GidTables& tables = ProcessGlobal<GidTables>::get();
  std::lock_guard lock(tables.mutex);
  GidSlots& slots = tables.slots[&device];
  update(slots, interface ? addresses_of(*interface) : std::vector<model::Gid>{});
  return slots;
}

}  // namespace

GidSlots gid_slots(const Device& device) { return current_slots(device, device.look()); }

std::vector<ibv_gid_entry> gid_table(const Device& device) {
  const auto interface = device.look();
  const GidSlots slots = current_slots(device, interface);
  std::vector<ibv_gid_entry> table;
  for (std::uint32_t index = 0; index < slots.size(); ++index) {
    if (!slots[index]) continue;
    ibv_gid_entry entry{};
    std::memcpy(entry.gid.raw, slots[index]->bytes.data(), sizeof entry.gid.raw);
    entry.gid_index = index;
    entry.port_num = 1;
    // What iWARP devices report is the first one: the type has no word for theirs.
    entry.gid_type = device.roce() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
    entry.ndev_ifindex = interface->index;
    table.push_back(entry);
  }
  return table;
}

Result<SourceGid> source_gid(const Device& device, std::uint32_t index) {
  const auto interface = device.look();
  const GidSlots slots = current_slots(device, interface);
  if (index >= slots.size() || !slots[index]) return fail(ENODATA);
  return SourceGid{*slots[index], interface->index};
}

std::optional<std::uint32_t> gid_index(const Device& device, const model::Gid& gid) {
  const GidSlots slots = gid_slots(device);
  const auto found = std::ranges::find(slots, std::optional(gid));
  if (found == slots.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - slots.begin());
}

ibv_mtu active_mtu(const Device& device, std::uint32_t interface_mtu) {
  const std::uint32_t overhead = device.roce() ? kRoceOverhead : 0;
  const std::uint32_t bytes = interface_mtu > overhead ? interface_mtu - overhead : 0;
  ibv_mtu found = IBV_MTU_256;
  for (const ibv_mtu candidate : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (128u << candidate <= bytes) found = candidate;
  }
  return found;
}

ibv_mtu active_mtu(const Device& device) {
  const auto interface = device.look();
  return active_mtu(device, interface ? interface->mtu : 0);
}

}  // namespace airdma::verbs
