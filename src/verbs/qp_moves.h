// SPDX-License-Identifier: MIT
// What ibv_modify_qp and ibv_query_qp mean for the queue pairs of each transport. The values of the
// attributes have been checked, and the caller holds the queue pair's attributes_mutex.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.h"
#include "model/qp_state.h"
#include "verbs/state.h"

namespace airdma::verbs {

/// Makes the move, or sets attributes only (`from` is `to` then). EINVAL for what the table of
/// model/qp_state.h refuses or the queue pair cannot do; nothing has changed then.
Status modify_stream(Qp& qp, model::QpState from, model::QpState to, const ibv_qp_attr& attr,
                     std::uint32_t mask);
/// The same; also the errors of resolve_path().
Status modify_packets(Qp& qp, model::QpState from, model::QpState to, const ibv_qp_attr& attr,
                      std::uint32_t mask);

/// Brings what the program set up to date; `attr.qp_state` is given.
void fill_stream(const Qp& qp, ibv_qp_attr& attr);
void fill_packets(const Qp& qp, ibv_qp_attr& attr);

}  // namespace airdma::verbs
