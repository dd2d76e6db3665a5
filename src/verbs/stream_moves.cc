// SPDX-License-Identifier: MIT
// What ibv_modify_qp and ibv_query_qp mean for an iWARP queue pair.
//
// On iWARP a queue pair runs on the stream that the connection manager gave it (RFC 5040 5.1.2 has
// no other way into RTS): a program cannot enter RTR or RTS by hand, and such a request is EINVAL
// although its attributes are in order. A queue pair that is connected is moved within and between
// RTS and SQD as on any device. The steps that rdma_init_qp_attr() names for a queue pair of the
// program's own, which have no path and no peer in them, are taken: it gets its stream before or
// after them. The stream itself brings it to RTS, so no message reaches one in RTR and
// IBV_EVENT_COMM_EST does not exist here; SQE is not a state of reliable connections.
#include <cerrno>

#include "model/qp_state.h"
#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/qp_moves.h"

namespace airdma::verbs {
namespace {

using model::QpState;

constexpr unsigned kPeerRights =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

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

/// False when the connection has ended meanwhile.
bool move(Qp& qp, QpState from, QpState to, bool notify) {
  switch (to) {
    case QpState::kReset:
      qp.stream->set_state(QpState::kReset);
      return true;
    case QpState::kInit:
      if (from != QpState::kInit) qp.stream->set_state(QpState::kInit);
      return true;
    case QpState::kError:
      if (from != QpState::kError) qp.stream->fail();
      return true;
    case QpState::kRts:
      if (from == QpState::kSqd) return qp.stream->resume_sends();
      return from == to || qp.stream->step(from, to);
    case QpState::kSqd:
      return from != QpState::kRts || qp.stream->hold_sends(notify);
    case QpState::kRtr:
      return from == to || qp.stream->step(from, to);
    case QpState::kSqe:
      return true;
  }
  return true;
}

}  // namespace

Status modify_stream(Qp& qp, QpState from, QpState to, const ibv_qp_attr& attr,
                     std::uint32_t mask) {
  const auto fault = model::check_transition(model::QpType::kRc, from, to, mask);
  const bool in_order = fault == model::TransitionFault::kNone && possible(from, to);
  if (!in_order && !step_for_connection(from, to, mask)) return fail(EINVAL);
  if ((mask & IBV_QP_AV) != 0 && attr.ah_attr.grh.sgid_index >= kGidTableLength) {
    return fail(EINVAL);
  }
  const bool notify = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
  if ((mask & IBV_QP_STATE) != 0 && !move(qp, from, to, notify)) return fail(EINVAL);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    qp.stream->set_remote_access(attr.qp_access_flags & kPeerRights);
  }
  return {};
}

// What a program did not set and an iWARP connection has all the same.
void fill_stream(const Qp& qp, ibv_qp_attr& attr) {
  const auto state = static_cast<QpState>(attr.qp_state);
  ibv_port_attr port{};
  if ((state == QpState::kRts || state == QpState::kSqd) && attr.path_mtu == 0 &&
      query_port(qp.pub.context, 1, &port, sizeof port)) {
    attr.path_mtu = port.active_mtu;
  }
  // iWARP's queue pairs are made in a state Idle, which its devices call INIT when asked, and for
  // which programs (pyverbs) look in those of an RNIC.
  if (!qp.moved && attr.qp_state == IBV_QPS_RESET) attr.qp_state = IBV_QPS_INIT;
}

}  // namespace airdma::verbs
