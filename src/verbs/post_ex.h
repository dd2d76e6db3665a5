// SPDX-License-Identifier: MIT
// How a queue pair gets the extended posting interface.
#pragma once

#include <cstdint>

#include "verbs/state.h"

namespace airdma::verbs {

/// Whether queue pairs of the type have all of these operations (IBV_QP_EX_WITH_*).
bool knows_send_ops(ibv_qp_type type, std::uint64_t send_ops);
/// Gives the new queue pair the functions behind ibv_wr_*, for these operations.
void extend(Qp& qp, std::uint64_t send_ops);

}  // namespace airdma::verbs
