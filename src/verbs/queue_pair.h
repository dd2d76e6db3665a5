// SPDX-License-Identifier: MIT
// How the calls that make queue pairs share the making.
#pragma once

#include <infiniband/verbs.h>

#include "base/result.h"
#include "verbs/state.h"

namespace airdma::verbs {

/// A queue pair in RESET. Which of the two parents is wanted depends on its type: a domain of
/// protection, or of XRC for XRC_RECV. `attr.cap` becomes what was granted.
Result<ibv_qp*> make_queue_pair(ibv_pd* pd, ibv_xrcd* xrcd, ibv_qp_init_attr& attr);

/// One more handle of an XRC connection's target, which exists. With `control` held.
Result<ibv_qp*> add_target_handle(State& all, Context& context, Xrcd& xrcd, Qpn qpn,
                                  void* qp_context);

/// Ends its memberships in multicast groups.
void leave_groups(Qp& qp);

}  // namespace airdma::verbs
