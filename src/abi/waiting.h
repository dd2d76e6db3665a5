// SPDX-License-Identifier: MIT
// The calls in which programs sleep, in two halves: a C function that sleeps (waiting.cc, compiled
// without exceptions) and the call it makes before and after (waiting_calls.cc). base/event_wait.h
// says why.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "verbs/api.h"

namespace airdma::abi {

// As the exported functions of these names, but a wait that is needed comes back in `wait`.
int get_cq_event(EventWait& wait, ibv_comp_channel* channel, ibv_cq** cq, void** context) noexcept;
int get_async_event(EventWait& wait, ibv_context* context, ibv_async_event* event) noexcept;
int get_cm_event(EventWait& wait, rdma_event_channel* channel, rdma_cm_event** event) noexcept;
int get_request(EventWait& wait, rdma_cm_id* listener, rdma_cm_id** id) noexcept;

}  // namespace airdma::abi
