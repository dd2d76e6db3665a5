// SPDX-License-Identifier: MIT
// ibv_modify_qp and ibv_query_qp. Which transition takes which attributes is the table of
// model/qp_state.h; this file checks values and keeps them. What follows from them differs between
// transports: stream_moves.cc, packet_moves.cc.
#include <bit>
#include <cerrno>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/qp_moves.h"
#include "verbs/qp_refusal.h"
#include "verbs/raw_enum.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

using model::QpState;

constexpr unsigned kPeerRights =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kKnownRights = kPeerRights | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
                                  IBV_ACCESS_ON_DEMAND | unsigned{IBV_ACCESS_OPTIONAL_RANGE};
constexpr std::uint32_t k24Bits = 0xffffff;
constexpr std::uint8_t k5Bits = 31;
constexpr std::uint8_t k3Bits = 7;

bool good_path(const ibv_ah_attr& path) { return path.port_num == 1 && path.is_global != 0; }

/// Whether the value of the attribute `bit` is one that exists.
bool good_value(std::uint32_t bit, const ibv_qp_attr& attr) {
  switch (bit) {
    case IBV_QP_STATE:
      return raw_value(attr.qp_state) <= IBV_QPS_ERR;
    case IBV_QP_CUR_STATE:
      return raw_value(attr.cur_qp_state) <= IBV_QPS_ERR;
    case IBV_QP_ACCESS_FLAGS:
      return (attr.qp_access_flags & ~kKnownRights) == 0;
    case IBV_QP_PKEY_INDEX:
      return attr.pkey_index < kPkeyTableLength;
    case IBV_QP_PORT:
      return attr.port_num == 1;
    case IBV_QP_AV:
      return good_path(attr.ah_attr);
    case IBV_QP_PATH_MTU:
      return raw_value(attr.path_mtu) >= IBV_MTU_256 && raw_value(attr.path_mtu) <= IBV_MTU_4096;
    case IBV_QP_TIMEOUT:
      return attr.timeout <= k5Bits;
    case IBV_QP_RETRY_CNT:
      return attr.retry_cnt <= k3Bits;
    case IBV_QP_RNR_RETRY:
      return attr.rnr_retry <= k3Bits;
    case IBV_QP_RQ_PSN:
      return attr.rq_psn <= k24Bits;
    case IBV_QP_MAX_QP_RD_ATOMIC:
      return attr.max_rd_atomic <= kMaxReads;
    case IBV_QP_MIN_RNR_TIMER:
      return attr.min_rnr_timer <= k5Bits;
    case IBV_QP_SQ_PSN:
      return attr.sq_psn <= k24Bits;
    case IBV_QP_MAX_DEST_RD_ATOMIC:
      return attr.max_dest_rd_atomic <= kMaxReads;
    case IBV_QP_PATH_MIG_STATE:
      return raw_value(attr.path_mig_state) == IBV_MIG_MIGRATED;
    case IBV_QP_DEST_QPN:
      return attr.dest_qp_num <= k24Bits;
    case IBV_QP_EN_SQD_ASYNC_NOTIFY:
    case IBV_QP_QKEY:
      return true;
    default:  // unknown, or ALT_PATH, CAP, RATE_LIMIT: one path, fixed queues, no rate limits
      return false;
  }
}

/// The first attribute that has no such value; 0 when all are good.
std::uint32_t bad_value(std::uint32_t mask, const ibv_qp_attr& attr) {
  for (; mask != 0; mask &= mask - 1) {
    const std::uint32_t bit = 1u << std::countr_zero(mask);
    if (!good_value(bit, attr)) return bit;
  }
  return 0;
}

/// Keeps what the program set, for query_qp.
void remember(ibv_qp_attr& kept, std::uint32_t mask, const ibv_qp_attr& attr) {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) kept.qp_access_flags = attr.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) kept.pkey_index = attr.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) kept.port_num = attr.port_num;
  if ((mask & IBV_QP_AV) != 0) kept.ah_attr = attr.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) kept.path_mtu = attr.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) kept.timeout = attr.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) kept.retry_cnt = attr.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) kept.rnr_retry = attr.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) kept.rq_psn = attr.rq_psn;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) kept.max_rd_atomic = attr.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) kept.min_rnr_timer = attr.min_rnr_timer;
  if ((mask & IBV_QP_SQ_PSN) != 0) kept.sq_psn = attr.sq_psn;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) kept.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if ((mask & IBV_QP_DEST_QPN) != 0) kept.dest_qp_num = attr.dest_qp_num;
  if ((mask & IBV_QP_QKEY) != 0) kept.qkey = attr.qkey;
}

}  // namespace

Status modify_qp(ibv_qp* handle, ibv_qp_attr* attr, int attr_mask) {
  Qp* qp = find_object(handle);
  if (qp == nullptr || attr == nullptr) return fail(EINVAL);
  const auto mask = static_cast<std::uint32_t>(attr_mask);
  std::lock_guard lock(qp->attributes_mutex);
  const Qpn qpn(qp->pub.qp_num);
  if (const std::uint32_t bit = bad_value(mask, *attr); bit != 0) {
    log_bad_value(qpn, bit);
    return fail(EINVAL);
  }
  const QpState from = qp->runtime->state();
  const bool moves = (mask & IBV_QP_STATE) != 0;
  const QpState to = moves ? static_cast<QpState>(attr->qp_state) : from;
  if ((mask & IBV_QP_CUR_STATE) != 0 && static_cast<QpState>(attr->cur_qp_state) != from) {
    log_bad_value(qpn, IBV_QP_CUR_STATE);
    return fail(EINVAL);
  }
  // That would wait for the lock that a batch of ibv_wr_* of the calling thread holds.
  if (to == QpState::kReset && moves && qp->batch.is_of_this_thread()) return fail(EINVAL);
  Status moved = qp->stream != nullptr ? modify_stream(*qp, from, to, *attr, mask)
                                       : modify_packets(*qp, from, to, *attr, mask);
  if (!moved) {
    log_refused_move(qpn, qp->type, from, to, mask);
    return moved;
  }
  if (moves && to == QpState::kReset) qp->attributes = {};
  remember(qp->attributes, mask, *attr);
  if (moves) {
    qp->show_state(static_cast<ibv_qp_state>(qp->runtime->state()));
    qp->moved = true;
  }
  return {};
}

Status query_qp(ibv_qp* handle, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  Qp* qp = find_object(handle);
  if (qp == nullptr || attr == nullptr) return fail(EINVAL);
  {
    std::lock_guard lock(qp->attributes_mutex);
    *attr = qp->attributes;
    attr->qp_state = static_cast<ibv_qp_state>(qp->runtime->state());
    qp->show_state(attr->qp_state);
    attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp->runtime->sends_draining() ? 1 : 0;
    qp->stream != nullptr ? fill_stream(*qp, *attr) : fill_packets(*qp, *attr);
  }
  attr->cur_qp_state = attr->qp_state;
  attr->cap = qp->cap;
  if (init_attr == nullptr) return {};
  *init_attr = {};
  init_attr->qp_context = qp->pub.qp_context;
  init_attr->send_cq = qp->pub.send_cq;
  init_attr->recv_cq = qp->pub.recv_cq;
  init_attr->srq = qp->pub.srq;
  init_attr->cap = qp->cap;
  init_attr->qp_type = qp->pub.qp_type;
  init_attr->sq_sig_all = qp->signal_all ? 1 : 0;
  return {};
}

}  // namespace airdma::verbs
