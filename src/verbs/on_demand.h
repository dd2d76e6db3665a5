// SPDX-License-Identifier: MIT
// On-demand paging: regions whose memory need not be there when they are registered. It costs
// nothing here, because every region is reached through the program's own mappings, and an access
// to what is not mapped fails alone (io/fault_handler.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "verbs/device.h"

namespace airdma::verbs {

/// Whether a registration asks for the whole address space.
bool is_implicit(const void* addr, std::size_t length, unsigned access);
/// Registers it. EINVAL for an `iova`, which it cannot have.
Result<ibv_mr*> register_everything(ibv_pd* pd, std::uint64_t iova, unsigned access);
/// Whether [addr, addr + length) can be registered with these rights: there now, or on demand
/// anywhere that memory can be. EINVAL when it wraps, EFAULT.
Status check_memory(const void* addr, std::size_t length, unsigned access);
/// Tells what the device offers of it.
void fill_on_demand(ibv_device_attr_ex& attr, const Device& device);

}  // namespace airdma::verbs
