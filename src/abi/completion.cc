// SPDX-License-Identifier: MIT
// C symbols: completion channels and queues.
#include "abi/adapters.h"
#include "abi/export.h"
#include "verbs/api.h"

using airdma::abi::return_errno;
using airdma::abi::return_minus_one;
using airdma::abi::return_pointer;
namespace verbs = airdma::verbs;

AIRDMA_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return return_pointer([&] { return verbs::create_comp_channel(context); });
}

AIRDMA_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return return_errno([&] { return verbs::destroy_comp_channel(channel); });
}

AIRDMA_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                    ibv_comp_channel* channel, int comp_vector) {
  return return_pointer(
      [&] { return verbs::create_cq(context, cqe, cq_context, channel, comp_vector); });
}

AIRDMA_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return return_errno([&] { return verbs::resize_cq(cq, cqe); });
}

AIRDMA_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  return return_errno([&] { return verbs::destroy_cq(cq); });
}

AIRDMA_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned nevents) {
  return_errno([&] { verbs::ack_cq_events(cq, nevents); });
}
