// SPDX-License-Identifier: MIT
// What ibv_modify_qp and ibv_query_qp mean for a RoCEv2 queue pair: the program moves it from state
// to state by hand, and the engine takes what it sets.
#include <cerrno>

#include "verbs/address_path.h"
#include "verbs/gid_table.h"
#include "verbs/limits.h"
#include "verbs/qp_moves.h"

namespace airdma::verbs {
namespace {

using model::QpState;

constexpr unsigned kPeerRights =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool names(std::uint32_t mask, std::uint32_t bit) { return (mask & bit) != 0; }

/// What an end of an XRC connection has not may be named all the same: programs set up both ends
/// alike, and the kernel's devices let them.
std::uint32_t own_attributes(model::QpType type, std::uint32_t mask) {
  if (type == model::QpType::kXrcSend) {
    return mask & ~std::uint32_t{IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
  }
  if (type == model::QpType::kXrcReceive) {
    return mask & ~std::uint32_t{IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY};
  }
  return mask;
}

/// The attributes in the engine's terms; what the mask does not name means nothing.
Result<runtime::PacketAttributes> attributes_of(const Qp& qp, QpState to, const ibv_qp_attr& attr,
                                                std::uint32_t mask) {
  runtime::PacketAttributes wanted{
      .state = to,
      .sqd_notify = names(mask, IBV_QP_EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify != 0,
      .remote_access = attr.qp_access_flags & kPeerRights,
      .pkey = Pkey(kDefaultPkey),
      .qkey = Qkey(attr.qkey),
      .address = {},
      .remote_qpn = Qpn(attr.dest_qp_num),
      .path_mtu = names(mask, IBV_QP_PATH_MTU) ? 128u << attr.path_mtu : 0,
      .rq_psn = Psn(attr.rq_psn),
      .sq_psn = Psn(attr.sq_psn),
      .max_rd_atomic = attr.max_rd_atomic,
      .max_dest_rd_atomic = attr.max_dest_rd_atomic,
      .min_rnr_timer = attr.min_rnr_timer,
      .timeout = attr.timeout,
      .retry_count = attr.retry_cnt,
      .rnr_retry = attr.rnr_retry};
  if (!names(mask, IBV_QP_AV)) return wanted;
  const auto address = resolve_path(*qp.context->device, attr.ah_attr);
  if (!address) return std::unexpected(address.error());
  if (address->destination.is_multicast()) return fail(EINVAL);
  wanted.address = *address;
  return wanted;
}

}  // namespace

Status modify_packets(Qp& qp, QpState from, QpState to, const ibv_qp_attr& attr,
                      std::uint32_t named) {
  const std::uint32_t mask = own_attributes(qp.type, named);
  const auto fault = model::check_transition(qp.type, from, to, mask);
  if (fault != model::TransitionFault::kNone) return fail(EINVAL);
  // Packets that do not fit the interface would all be lost.
  if (names(mask, IBV_QP_PATH_MTU) && attr.path_mtu > active_mtu(*qp.context->device)) {
    return fail(EINVAL);
  }
  const auto wanted = attributes_of(qp, to, attr, mask);
  if (!wanted) return std::unexpected(wanted.error());
  return qp.packets->modify(from, *wanted, mask) ? Status{} : fail(EINVAL);
}

void fill_packets(const Qp& qp, ibv_qp_attr& attr) {
  if (attr.qp_state == IBV_QPS_RESET || attr.qp_state == IBV_QPS_INIT) return;
  const runtime::PacketAttributes now = qp.packets->attributes();
  attr.rq_psn = now.rq_psn.value();
  attr.sq_psn = now.sq_psn.value();
}

}  // namespace airdma::verbs
