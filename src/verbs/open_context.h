// SPDX-License-Identifier: MIT
// What opening a device and importing one share.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "io/fd.h"
#include "verbs/device.h"

namespace airdma::verbs {

/// A descriptor that says which context it belongs to, also when it was duplicated: the file behind
/// it has an identity of its own and nothing in it.
Result<io::Fd> open_command_file();

/// A context on the device. `group`: of those whose objects it shares, 0 for a new one. `command`
/// gives the descriptor behind cmd_fd, which is the context's from then on; it is called last, when
/// nothing else can fail.
Result<ibv_context*> open_context(Device& device, std::uint64_t group,
                                  const std::function<Result<io::Fd>()>& command);

}  // namespace airdma::verbs
