// SPDX-License-Identifier: MIT
// Queue pairs come and go. What moves them is in qp_attributes.cc, what is posted in post.cc.
#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "runtime/stream_queue_pair.h"
#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/raw_enum.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kQpnMask = 0xffffff;
constexpr std::uint32_t kFirstQpn = 2;  // 0 and 1 are special numbers

Status check_type(std::uint32_t type) {
  switch (type) {
    case IBV_QPT_RC:
      return {};
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER:
      return fail(EOPNOTSUPP);
    default:
      return fail(EINVAL);
  }
}

Status check_capacity(const ibv_qp_cap& cap, bool own_receives) {
  const bool fits = cap.max_send_wr <= std::uint32_t{kMaxWorkRequests} &&
                    cap.max_send_sge <= std::uint32_t{kMaxSges} &&
                    cap.max_inline_data <= kMaxInlineBytes &&
                    (!own_receives || (cap.max_recv_wr <= std::uint32_t{kMaxWorkRequests} &&
                                       cap.max_recv_sge <= std::uint32_t{kMaxSges}));
  return fits ? Status{} : fail(EINVAL);
}

Result<Qpn> choose_qpn(State& all) {
  for (;;) {
    const auto bits = all.random.take();
    if (!bits) return std::unexpected(bits.error());
    const std::uint32_t qpn = *bits & kQpnMask;
    if (qpn >= kFirstQpn && all.qpns.emplace(qpn, nullptr).second) return Qpn(qpn);
  }
}

/// What the program asked for, resolved; all of one context.
struct Parts {
  Pd* pd;
  Cq* send_cq;
  Cq* receive_cq;
  Srq* srq;  // or null
};

Result<Parts> find_parts(State& all, const ibv_pd* pd, const ibv_qp_init_attr& attr) {
  const Parts parts{all.pds.find(pd), all.cqs.find(attr.send_cq), all.cqs.find(attr.recv_cq),
                    all.srqs.find(attr.srq)};
  if (parts.pd == nullptr || parts.send_cq == nullptr || parts.receive_cq == nullptr) {
    return fail(EINVAL);
  }
  const Context* context = parts.pd->context;
  if (parts.send_cq->context != context || parts.receive_cq->context != context) {
    return fail(EINVAL);
  }
  if (parts.send_cq->closing || parts.receive_cq->closing) return fail(EINVAL);
  if (attr.srq == nullptr) return parts;
  // The program may have its buffers in another domain than the queue pairs.
  const bool usable = parts.srq != nullptr && parts.srq->context == context && !parts.srq->closing;
  if (!usable) return fail(EINVAL);
  return parts;
}

runtime::QueuePairConfig config_of(const ibv_qp_cap& cap, Qpn qpn, const Parts& parts) {
  // A ring has at least one slot; post_send and post_recv refuse what the program did not ask for.
  return {.qpn = qpn,
          .pd = parts.pd->id,
          .max_send_wr = std::max(cap.max_send_wr, 1u),
          .max_recv_wr = std::max(cap.max_recv_wr, 1u),
          .max_send_sge = std::max(cap.max_send_sge, 1u),
          .max_recv_sge = std::max(cap.max_recv_sge, 1u),
          .max_inline_data = cap.max_inline_data,
          .shared_receives = parts.srq != nullptr ? parts.srq->queue : nullptr};
}

void fill(Qp& qp, State& all, const Parts& parts, const ibv_qp_init_attr& attr, Qpn qpn) {
  qp.context = parts.pd->context;
  qp.pd = parts.pd;
  qp.send_cq = parts.send_cq;
  qp.receive_cq = parts.receive_cq;
  qp.srq = parts.srq;
  qp.cap = attr.cap;
  if (qp.srq != nullptr) qp.cap.max_recv_wr = qp.cap.max_recv_sge = 0;
  qp.signal_all = attr.sq_sig_all != 0;
  qp.pub.context = qp.context->handle();
  qp.pub.qp_context = attr.qp_context;
  qp.pub.pd = &qp.pd->pub;
  qp.pub.send_cq = &qp.send_cq->pub;
  qp.pub.recv_cq = &qp.receive_cq->pub;
  qp.pub.srq = attr.srq;
  qp.pub.handle = ++all.next_handle;
  qp.pub.qp_num = qpn.value();
  qp.pub.state = IBV_QPS_RESET;
  qp.pub.qp_type = attr.qp_type;
  pthread_mutex_init(&qp.pub.mutex, nullptr);
  pthread_cond_init(&qp.pub.cond, nullptr);
}

/// Makes the object under `control`; on failure, exceptions included, nothing remains.
Result<ibv_qp*> add_queue_pair(State& all, const Parts& parts, const ibv_qp_init_attr& attr,
                               Qpn qpn) {
  Qp* qp = all.qps.create();
  if (qp == nullptr) return fail(ENOMEM);
  try {
    qp->observer = std::make_shared<QpObserver>(&qp->pub, parts.pd->context->events);
    qp->runtime = runtime::StreamQueuePair::create(config_of(attr.cap, qpn, parts), all.memory,
                                                   *parts.send_cq->queue, *parts.receive_cq->queue,
                                                   qp->observer);
  } catch (...) {
    all.qps.destroy(qp);
    throw;
  }
  fill(*qp, all, parts, attr, qpn);
  ++all.use_of(*qp->context).qps;
  all.qpns[qpn.value()] = qp;
  ++parts.pd->users;
  ++parts.send_cq->users;
  ++parts.receive_cq->users;
  if (parts.srq != nullptr) ++parts.srq->users;
  return &qp->pub;
}

}  // namespace

void QpObserver::on_qp_event(model::QpEvent event) {
  std::lock_guard lock(mutex_);
  if (qp_ == nullptr) return;
  ibv_async_event async{};
  async.element.qp = qp_;
  async.event_type = static_cast<ibv_event_type>(event);
  events_->push(async);
}

void QpObserver::detach() {
  std::lock_guard lock(mutex_);
  qp_ = nullptr;
}

Result<ibv_qp*> create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (find_object(pd) == nullptr || attr == nullptr) return fail(EINVAL);
  if (Status known = check_type(raw_value(attr->qp_type)); !known)
    return std::unexpected(known.error());
  const bool own_receives = attr->srq == nullptr;
  if (Status fits = check_capacity(attr->cap, own_receives); !fits) {
    return std::unexpected(fits.error());
  }
  State& all = state();
  std::lock_guard lock(all.control);
  const auto parts = find_parts(all, pd, *attr);
  if (!parts) return std::unexpected(parts.error());
  if (all.use_of(*parts->pd->context).qps >= kMaxQueuePairs) return fail(ENOMEM);
  const auto qpn = choose_qpn(all);
  if (!qpn) return std::unexpected(qpn.error());
  try {
    auto qp = add_queue_pair(all, *parts, *attr, *qpn);
    if (!qp) all.qpns.erase(qpn->value());
    if (qp && !own_receives) attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
    return qp;
  } catch (...) {
    all.qpns.erase(qpn->value());
    throw;
  }
}

void tear_down(Qp& qp, bool wait) {
  State& all = state();
  EventGate& gate = all.gate_of(&qp.pub);
  std::unique_lock events(gate.mutex);
  if (qp.closing) return;
  qp.closing = true;                    // no event is handed out from here on
  qp.batch.error = SendBatch::kClosed;  // in case the program is still within one
  events.unlock();
  qp.runtime->destroy();
  qp.observer->detach();
  qp.context->events->purge(&qp.pub);
  events.lock();
  if (wait) gate.acked.wait(events, [&] { return qp.settled(); });
  events.unlock();
  std::lock_guard control(all.control);
  events.lock();
  --all.use_of(*qp.context).qps;
  --qp.pd->users;
  --qp.send_cq->users;
  --qp.receive_cq->users;
  if (qp.srq != nullptr) --qp.srq->users;
  unbind_windows(all, Qpn(qp.pub.qp_num));
  all.qpns.erase(qp.pub.qp_num);
  all.qps.destroy(&qp);
}

Status destroy_qp(ibv_qp* handle) {
  Qp* qp = find_object(handle);
  if (qp == nullptr) return fail(EINVAL);
  tear_down(*qp, true);
  return {};
}

}  // namespace airdma::verbs
