// SPDX-License-Identifier: MIT
// What this release has no implementation of, answered as by a device without the feature:
//   memory       reg_dmabuf_mr alloc_null_mr advise_mr, device memory (alloc_dm free_dm
//                reg_dm_mr), thread and parent domains (alloc_td dealloc_td
//                alloc_parent_domain), import_* unimport_*
//   completion   modify_cq
//   queue pairs  modify_qp_rate_limit query_qp_data_in_order
//                set_ece query_ece
//   queues       post_srq_ops, *_wq *_rwq_ind_table
//   addresses    resolve_eth_l2_from_gid
//   steering     *_flow *_flow_action* *_counters attach_counters_point_flow
// Whoever implements one moves its definition out of this file. Each takes anything, handles
// that are none included, because no handle of its kind can exist.
#include <errno.h>

#include "verbs/api.h"

namespace airdma::verbs {
namespace {

std::unexpected<Error> unsupported() { return fail(EOPNOTSUPP); }

}  // namespace

// Memory.

Result<ibv_mr*> reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  return unsupported();
}
Result<ibv_mr*> alloc_null_mr(ibv_pd*) { return unsupported(); }
Status advise_mr(ibv_pd*, ibv_advise_mr_advice, uint32_t, ibv_sge*, uint32_t) {
  return unsupported();
}
Result<ibv_dm*> alloc_dm(ibv_context*, ibv_alloc_dm_attr*) { return unsupported(); }
Status free_dm(ibv_dm*) { return unsupported(); }
Result<ibv_mr*> reg_dm_mr(ibv_pd*, ibv_dm*, uint64_t, size_t, unsigned) { return unsupported(); }
Result<ibv_td*> alloc_td(ibv_context*, ibv_td_init_attr*) { return unsupported(); }
Status dealloc_td(ibv_td*) { return unsupported(); }
Result<ibv_pd*> alloc_parent_domain(ibv_context*, ibv_parent_domain_init_attr*) {
  return unsupported();
}
Result<ibv_context*> import_device(int) { return unsupported(); }
Result<ibv_pd*> import_pd(ibv_context*, uint32_t) { return unsupported(); }
void unimport_pd(ibv_pd*) {}
Result<ibv_mr*> import_mr(ibv_pd*, uint32_t) { return unsupported(); }
void unimport_mr(ibv_mr*) {}
Result<ibv_dm*> import_dm(ibv_context*, uint32_t) { return unsupported(); }
void unimport_dm(ibv_dm*) {}

// Completion.

Status modify_cq(ibv_cq*, ibv_modify_cq_attr*) { return unsupported(); }

// Queue pairs.

Status modify_qp_rate_limit(ibv_qp*, ibv_qp_rate_limit_attr*) { return unsupported(); }
bool query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) noexcept { return false; }
Status set_ece(ibv_qp*, ibv_ece*) { return unsupported(); }
Status query_ece(ibv_qp*, ibv_ece*) { return unsupported(); }

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

// Flow steering and counters.

Result<ibv_flow*> create_flow(ibv_qp*, ibv_flow_attr*) { return unsupported(); }
Status destroy_flow(ibv_flow*) { return unsupported(); }
Result<ibv_flow_action*> create_flow_action_esp(ibv_context*, ibv_flow_action_esp_attr*) {
  return unsupported();
}
Status modify_flow_action_esp(ibv_flow_action*, ibv_flow_action_esp_attr*) { return unsupported(); }
Status destroy_flow_action(ibv_flow_action*) { return unsupported(); }
Result<ibv_counters*> create_counters(ibv_context*, ibv_counters_init_attr*) {
  return unsupported();
}
Status destroy_counters(ibv_counters*) { return unsupported(); }
Status attach_counters_point_flow(ibv_counters*, ibv_counter_attach_attr*, ibv_flow*) {
  return unsupported();
}
Status read_counters(ibv_counters*, uint64_t*, uint32_t, uint32_t) { return unsupported(); }

}  // namespace airdma::verbs
