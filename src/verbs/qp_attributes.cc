// SPDX-License-Identifier: MIT
// ibv_modify_qp and ibv_query_qp. Which transition takes which attributes is the table of
// model/qp_state.h; this file checks values and keeps them.
//
// On iWARP a queue pair runs on the stream that the connection manager gave it (RFC 5040 5.1.2 has
// no other way into RTS): a program cannot enter RTR or RTS by hand, and such a request is EINVAL
// although its attributes are in order. A queue pair that is connected is moved within and between
// RTS and SQD as on any device. The steps that rdma_init_qp_attr() names for a queue pair of the
// program's own, which have no path and no peer in them, are taken: it gets its stream before or
// after them. The stream itself brings it to RTS, so no message reaches one in RTR and
// IBV_EVENT_COMM_EST does not exist here; SQE is not a state of reliable connections.
#include <bit>
#include <cerrno>

#include "model/qp_state.h"
#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/raw_enum.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

using model::QpState;

constexpr unsigned kPeerRights =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kKnownRights =
    kPeerRights | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | unsigned{IBV_ACCESS_OPTIONAL_RANGE};
constexpr std::uint32_t k24Bits = 0xffffff;
constexpr std::uint8_t k5Bits = 31;
constexpr std::uint8_t k3Bits = 7;

bool good_path(const ibv_ah_attr& path) {
  return path.port_num == 1 && path.is_global != 0 && path.grh.sgid_index < kGidTableLength;
}

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

bool good_values(std::uint32_t mask, const ibv_qp_attr& attr) {
  while (mask != 0) {
    const std::uint32_t bit = 1u << std::countr_zero(mask);
    if (!good_value(bit, attr)) return false;
    mask &= ~bit;
  }
  return true;
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
}

/// Whether this device can make the (legal) move.
bool possible(QpState from, QpState to) {
  switch (to) {
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kError:
      return true;
    case QpState::kRtr:
      return false;  // see above
    case QpState::kRts:
      return from == QpState::kRts || from == QpState::kSqd;  // connected
    case QpState::kSqd:
      return true;
    case QpState::kSqe:
      return false;  // an error of a reliable connection's sender ends the connection
  }
  return false;
}

/// A step of rdma_init_qp_attr().
bool step_for_connection(QpState from, QpState to, std::uint32_t mask) {
  if (from == QpState::kInit && to == QpState::kRtr) {
    return (mask & ~std::uint32_t{IBV_QP_ACCESS_FLAGS}) == IBV_QP_STATE;
  }
  return from == QpState::kRtr && to == QpState::kRts && mask == IBV_QP_STATE;
}

/// False when the connection has ended meanwhile, or to RESET within a batch of ibv_wr_* of the
/// calling thread, whose lock that would wait for.
bool move(Qp& qp, QpState from, QpState to, bool notify) {
  switch (to) {
    case QpState::kReset:
      if (qp.batch.is_of_this_thread()) return false;
      qp.runtime->set_state(QpState::kReset);
      qp.attributes = {};
      return true;
    case QpState::kInit:
      if (from != QpState::kInit) qp.runtime->set_state(QpState::kInit);
      return true;
    case QpState::kError:
      if (from != QpState::kError) qp.runtime->fail();
      return true;
    case QpState::kRts:
      if (from == QpState::kSqd) return qp.runtime->resume_sends();
      return from == to || qp.runtime->step(from, to);
    case QpState::kSqd:
      return from != QpState::kRts || qp.runtime->hold_sends(notify);
    case QpState::kRtr:
      return from == to || qp.runtime->step(from, to);
    case QpState::kSqe:
      return true;
  }
  return true;
}

/// What a program did not set and an iWARP connection has all the same.
void fill_connected(const Qp& qp, ibv_qp_attr& attr) {
  const auto state = static_cast<QpState>(attr.qp_state);
  if (state != QpState::kRts && state != QpState::kSqd) return;
  attr.sq_draining = qp.runtime->sends_draining() ? 1 : 0;
  ibv_port_attr port{};
  if (attr.path_mtu == 0 && query_port(qp.pub.context, 1, &port, sizeof port)) {
    attr.path_mtu = port.active_mtu;
  }
}

}  // namespace

Status modify_qp(ibv_qp* handle, ibv_qp_attr* attr, int attr_mask) {
  Qp* qp = find_object(handle);
  if (qp == nullptr || attr == nullptr) return fail(EINVAL);
  const auto mask = static_cast<std::uint32_t>(attr_mask);
  std::lock_guard lock(qp->attributes_mutex);
  if (!good_values(mask, *attr)) return fail(EINVAL);
  const QpState from = qp->runtime->state();
  const bool moves = (mask & IBV_QP_STATE) != 0;
  const QpState to = moves ? static_cast<QpState>(attr->qp_state) : from;
  if ((mask & IBV_QP_CUR_STATE) != 0 && static_cast<QpState>(attr->cur_qp_state) != from) {
    return fail(EINVAL);
  }
  const auto fault = model::check_transition(model::QpType::kRc, from, to, mask);
  const bool in_order = fault == model::TransitionFault::kNone && possible(from, to);
  if (!in_order && !step_for_connection(from, to, mask)) return fail(EINVAL);
  const bool notify = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr->en_sqd_async_notify != 0;
  if (moves && !move(*qp, from, to, notify)) return fail(EINVAL);
  remember(qp->attributes, mask, *attr);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    qp->runtime->set_remote_access(attr->qp_access_flags & kPeerRights);
  }
  if (moves) {
    qp->pub.state = static_cast<ibv_qp_state>(qp->runtime->state());
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
    qp->pub.state = attr->qp_state;
    fill_connected(*qp, *attr);
    // iWARP's queue pairs are made in a state Idle, which its devices call INIT when asked, and for
    // which programs (pyverbs) look in those of an RNIC.
    if (!qp->moved && attr->qp_state == IBV_QPS_RESET) attr->qp_state = IBV_QPS_INIT;
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
