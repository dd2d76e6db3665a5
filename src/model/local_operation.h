// SPDX-License-Identifier: MIT
// Work requests that are done on the memory table alone: the same for every transport.
#pragma once

#include "base/ids.h"
#include "model/memory.h"
#include "model/work.h"

namespace airdma::model {

/// Binds or invalidates as the WQE (one of is_local()) says, for a queue pair and its protection
/// domain. False when it may not.
[[nodiscard]] inline bool perform_local(const MemoryTable& memory, const SendWqe& wqe, PdId pd,
                                        Qpn qpn) {
  if (wqe.opcode == SendOpcode::kLocalInvalidate) return memory.invalidate(wqe.rkey, pd, qpn);
  return memory.bind({.key = wqe.rkey,
                      .lkey = wqe.region_lkey,
                      .addr = wqe.remote_addr,
                      .length = wqe.compare_add,
                      .access = wqe.window_access,
                      .pd = pd,
                      .qpn = qpn});
}

}  // namespace airdma::model
