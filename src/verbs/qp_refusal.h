// SPDX-License-Identifier: MIT
// Says in the log why ibv_modify_qp refuses something: EINVAL alone names none of twenty
// attributes.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "model/qp_state.h"

namespace airdma::verbs {

/// The attribute `bit` (one of enum ibv_qp_attr_mask) has a value that it cannot have.
void log_bad_value(Qpn qpn, std::uint32_t bit);
/// The move was refused: names the states, and the attributes that it lacks or does not take.
void log_refused_move(Qpn qpn, model::QpType type, model::QpState from, model::QpState to,
                      std::uint32_t mask);

}  // namespace airdma::verbs
