// SPDX-License-Identifier: MIT
// C symbols: queue pairs, shared receive queues, address handles, multicast.
#include "abi/adapters.h"
#include "abi/export.h"
#include "verbs/api.h"

using airdma::abi::return_errno;
using airdma::abi::return_minus_one;
using airdma::abi::return_pointer;
namespace verbs = airdma::verbs;

AIRDMA_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return return_pointer([&] { return verbs::create_qp(pd, attr); });
}

AIRDMA_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) { return verbs::qp_to_qp_ex(qp); }

AIRDMA_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  return return_errno([&] { return verbs::modify_qp(qp, attr, attr_mask); });
}

AIRDMA_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask,
                               ibv_qp_init_attr* init_attr) {
  return return_errno([&] { return verbs::query_qp(qp, attr, attr_mask, init_attr); });
}

AIRDMA_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  return verbs::query_qp_data_in_order(qp, op, flags) ? 1 : 0;
}

AIRDMA_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  return return_errno([&] { return verbs::destroy_qp(qp); });
}

AIRDMA_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return return_errno([&] { return verbs::set_ece(qp, ece); });
}

AIRDMA_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return return_errno([&] { return verbs::query_ece(qp, ece); });
}

AIRDMA_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return return_pointer([&] { return verbs::create_srq(pd, attr); });
}

AIRDMA_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask) {
  return return_errno([&] { return verbs::modify_srq(srq, attr, attr_mask); });
}

AIRDMA_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return return_errno([&] { return verbs::query_srq(srq, attr); });
}

AIRDMA_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return return_errno([&] { return verbs::destroy_srq(srq); });
}

AIRDMA_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return return_pointer([&] { return verbs::create_ah(pd, attr); });
}

AIRDMA_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc,
                                      ibv_grh* grh, ibv_ah_attr* attr) {
  return return_minus_one([&] { return verbs::init_ah_from_wc(context, port_num, wc, grh, attr); });
}

AIRDMA_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh,
                                            uint8_t port_num) {
  return return_pointer([&] { return verbs::create_ah_from_wc(pd, wc, grh, port_num); });
}

AIRDMA_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return return_errno([&] { return verbs::destroy_ah(ah); });
}

AIRDMA_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                              uint8_t* eth_mac, uint16_t* vid) {
  return return_errno([&] { return verbs::resolve_eth_l2_from_gid(context, attr, eth_mac, vid); });
}

AIRDMA_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return return_errno([&] { return verbs::attach_mcast(qp, gid, lid); });
}

AIRDMA_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return return_errno([&] { return verbs::detach_mcast(qp, gid, lid); });
}
