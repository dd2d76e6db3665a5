// SPDX-License-Identifier: MIT
// What the two ways to create a completion queue share.
#pragma once

#include <infiniband/verbs.h>

#include "base/result.h"
#include "runtime/completion_queue.h"
#include "verbs/state.h"

namespace airdma::verbs {

struct CqRequest {
  int cqe = 0;
  void* cq_context = nullptr;
  ibv_comp_channel* channel = nullptr;  // may be null
  int comp_vector = 0;
  runtime::CompletionQueueOptions options{};
  ibv_pd* parent_domain = nullptr;  // may be null
};

/// EINVAL for what is no size, channel, vector or parent domain of the context.
Result<Cq*> make_cq(ibv_context* context, CqRequest request);

}  // namespace airdma::verbs
