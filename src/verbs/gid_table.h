// SPDX-License-Identifier: MIT
// The GID tables of the devices, one entry per address of the interface. An address keeps the index
// that it got when it was first seen for as long as it is there: programs, and address handles that
// are made later, name it by its index. The first look finds the addresses in their usual order.
// Thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/address_vector.h"
#include "verbs/device.h"
#include "verbs/limits.h"

namespace airdma::verbs {

/// The addresses by index; nothing at unused ones.
using GidSlots = std::array<std::optional<model::Gid>, kGidTableLength>;

/// The table as it is now.
GidSlots gid_slots(const Device& device);
/// Its used entries.
std::vector<ibv_gid_entry> gid_table(const Device& device);

/// A source address as an address handle names it.
struct SourceGid {
  model::Gid gid;
  std::uint32_t interface_index = 0;
};
/// ENODATA for an unused entry, and outside the table.
Result<SourceGid> source_gid(const Device& device, std::uint32_t index);
/// Index of an address; nothing when it is none of the device's.
std::optional<std::uint32_t> gid_index(const Device& device, const model::Gid& gid);

/// Path MTU code that the interface lets through: enum ibv_mtu.
ibv_mtu active_mtu(const Device& device, std::uint32_t interface_mtu);
/// The same for the interface as it is now.
ibv_mtu active_mtu(const Device& device);

}  // namespace airdma::verbs
