// SPDX-License-Identifier: MIT
// Paths as programs name them (ibv_ah_attr), looked up for RoCEv2.
#pragma once

#include <infiniband/verbs.h>

#include "base/result.h"
#include "model/address_vector.h"
#include "verbs/device.h"

namespace airdma::verbs {

/// Where packets go that follow `path`. EINVAL for a port, GID index or destination that cannot be
/// or a path without GRH, ENODATA for an unused GID index, EADDRINUSE and its like when this
/// process has no way to the network.
Result<model::AddressVector> resolve_path(const Device& device, const ibv_ah_attr& path);

model::Gid gid_of(const ibv_gid& gid);
/// An IPv4 group as RoCEv2 has it (::ffff:a.b.c.d), also when it is given as InfiniBand has it
/// (ff0e::ffff:a.b.c.d); others unchanged.
model::Gid group_of(const ibv_gid& gid);

}  // namespace airdma::verbs
