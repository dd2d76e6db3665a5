// SPDX-License-Identifier: MIT
// What this release has no implementation of, answered as by a device without the feature:
//   completion   modify_cq
//   queue pairs  modify_qp_rate_limit
//   queues       post_srq_ops, *_wq *_rwq_ind_table
//   addresses    resolve_eth_l2_from_gid
//   steering     *_flow *_flow_action*
// Whoever implements one moves its definition out of this file. Each takes anything, handles
// that are none included, because no handle of its kind can exist.
#include <errno.h>

#include "verbs/api.h"

namespace airdma::verbs {
namespace {

std::unexpected<Error> unsupported() { return fail(EOPNOTSUPP); }

}  // namespace

// Completion.

Status modify_cq(ibv_cq*, ibv_modify_cq_attr*) { return unsupported(); }

// Queue pairs.

Status modify_qp_rate_limit(ibv_qp*, ibv_qp_rate_limit_attr*) { return unsupported(); }

// Of shared receive queues what is tag matching; work queues.

int post_srq_ops(ibv_srq*, ibv_ops_wr* op, ibv_ops_wr** bad_op) noexcept {
  if (bad_op != nullptr) *bad_op = op;
  return EOPNOTSUPP;
}
Result<ibv_wq*> create_wq(ibv_context*, ibv_wq_init_attr*) { return unsupported(); }
Status modify_wq(ibv_wq*, ibv_wq_attr*) { return unsupported(); }
Status destroy_wq(ibv_wq*) { return unsupported(); }
Result<ibv_rwq_ind_table*> create_rwq_ind_table(ibv_context*, ibv_rwq_ind_table_init_attr*) {
  return unsupported();
}
Status destroy_rwq_ind_table(ibv_rwq_ind_table*) { return unsupported(); }

// Addresses.

Status resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t*, uint16_t*) {
  return unsupported();
}

// Flow steering.

Result<ibv_flow*> create_flow(ibv_qp*, ibv_flow_attr*) { return unsupported(); }
Status destroy_flow(ibv_flow*) { return unsupported(); }
Result<ibv_flow_action*> create_flow_action_esp(ibv_context*, ibv_flow_action_esp_attr*) {
  return unsupported();
}
Status modify_flow_action_esp(ibv_flow_action*, ibv_flow_action_esp_attr*) { return unsupported(); }
Status destroy_flow_action(ibv_flow_action*) { return unsupported(); }

}  // namespace airdma::verbs
