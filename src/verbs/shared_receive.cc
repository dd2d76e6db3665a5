// SPDX-License-Identifier: MIT
// Shared receive queues, but for posting to them (post_receive.cc): basic ones, and those of XRC
// domains on RoCEv2 devices. Tag matching is neither's.
#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/raw_enum.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kKnownParts = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                      IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                                      IBV_SRQ_INIT_ATTR_TM;

bool good_size(std::uint32_t max_wr) {
  return max_wr >= 1 && max_wr <= std::uint32_t{kMaxSharedReceives};
}

Status check_size(const ibv_srq_attr& attr) {
  const bool fits = good_size(attr.max_wr) && attr.max_sge <= std::uint32_t{kMaxSges} &&
                    attr.srq_limit <= attr.max_wr;
  return fits ? Status{} : fail(EINVAL);
}

bool is_xrc(const ibv_srq_init_attr_ex& attr) {
  return (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr.srq_type == IBV_SRQT_XRC;
}

Status check_type(const ibv_srq_init_attr_ex& attr, const Device& device) {
  if ((attr.comp_mask & ~kKnownParts) != 0) return fail(EINVAL);
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) return {};
  switch (raw_value(attr.srq_type)) {
    case IBV_SRQT_BASIC:
      return {};
    case IBV_SRQT_XRC:
      return device.roce() ? Status{} : fail(EOPNOTSUPP);
    case IBV_SRQT_TM:
      return fail(EOPNOTSUPP);
    default:
      return fail(EINVAL);
  }
}

void fill(Srq& srq, State& all, Pd& pd, void* srq_context) {
  srq.context = pd.context;
  srq.pd = &pd;
  srq.pub.context = pd.context->handle();
  srq.pub.srq_context = srq_context;
  srq.pub.pd = &pd.pub;
  srq.pub.handle = ++all.next_handle;
  pthread_mutex_init(&srq.pub.mutex, nullptr);
  pthread_cond_init(&srq.pub.cond, nullptr);
}

/// What makes a shared receive queue one of an XRC domain; null for others.
struct XrcParts {
  ibv_xrcd* xrcd = nullptr;
  ibv_cq* cq = nullptr;
};

constexpr std::uint32_t kNumberMask = 0xffffff;

Result<Srqn> choose_number(State& all) {
  for (;;) {
    const auto bits = all.random.take();
    if (!bits) return std::unexpected(bits.error());
    const std::uint32_t number = *bits & kNumberMask;
    if (number != 0 && !all.srqns.contains(number)) return Srqn(number);
  }
}

/// With `control` held.
Status join_domain(Srq& srq, State& all, const XrcParts& parts) {
  Xrcd* xrcd = all.xrcds.find(parts.xrcd);
  Cq* cq = all.cqs.find(parts.cq);
  const bool usable = xrcd != nullptr && xrcd->context == srq.context && cq != nullptr &&
                      cq->context == srq.context && !cq->closing;
  if (!usable) return fail(EINVAL);
  const auto number = choose_number(all);
  if (!number) return std::unexpected(number.error());
  all.srqns[number->value()] = &srq;
  xrcd->domain->add(*number, srq.queue, *cq->queue);
  cq->queue->use_port(1);
  srq.xrcd = xrcd;
  srq.cq = cq;
  srq.number = *number;
  ++xrcd->users;
  ++cq->users;
  return {};
}

void leave_domain(Srq& srq) {
  if (srq.xrcd == nullptr) return;
  srq.xrcd->domain->remove(srq.number);
  srq.cq->queue->use_port(-1);
}

Result<ibv_srq*> add_srq(ibv_pd* pd_handle, const XrcParts& xrc, void* srq_context,
                         ibv_srq_attr& attr) {
  if (find_object(pd_handle) == nullptr) return fail(EINVAL);
  if (Status fits = check_size(attr); !fits) return std::unexpected(fits.error());
  State& all = state();
  std::lock_guard lock(all.control);
  Pd* pd = all.pds.find(pd_handle);
  if (pd == nullptr) return fail(EINVAL);
  if (all.use_of(*pd->context).srqs >= kMaxSharedQueues) return fail(ENOMEM);
  Srq* srq = all.srqs.create();
  if (srq == nullptr) return fail(ENOMEM);
  try {
    srq->observer = std::make_shared<SrqObserver>(&srq->pub, pd->context->events);
    srq->queue = std::make_shared<runtime::SharedReceiveQueue>(pd->id, attr.max_wr, attr.max_sge,
                                                               srq->observer);
    [[maybe_unused]] const Status armed = srq->queue->modify(nullptr, &attr.srq_limit);
    fill(*srq, all, *pd, srq_context);
    if (xrc.xrcd != nullptr) {
      if (Status joined = join_domain(*srq, all, xrc); !joined) {
        all.srqs.destroy(srq);
        return std::unexpected(joined.error());
      }
    }
  } catch (...) {
    all.srqs.destroy(srq);
    throw;
  }
  ++pd->users;
  ++all.use_of(*pd->context).srqs;
  return &srq->pub;
}

}  // namespace

void SrqObserver::on_limit_reached() {
  std::lock_guard lock(mutex_);
  if (srq_ == nullptr) return;
  ibv_async_event async{};
  async.element.srq = srq_;
  async.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  events_->push(async);
}

void SrqObserver::detach() {
  std::lock_guard lock(mutex_);
  srq_ = nullptr;
}

Result<ibv_srq*> create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (find_object(pd) == nullptr || attr == nullptr) return fail(EINVAL);
  return add_srq(pd, {}, attr->srq_context, attr->attr);
}

Result<ibv_srq*> create_srq_ex(ibv_context* handle, ibv_srq_init_attr_ex* attr) {
  const Context* context = find_object(handle);
  if (context == nullptr || attr == nullptr) return fail(EINVAL);
  if (Status known = check_type(*attr, *context->device); !known) {
    return std::unexpected(known.error());
  }
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) return fail(EINVAL);
  if (find_object(attr->pd) == nullptr || attr->pd->context != handle) return fail(EINVAL);
  if (!is_xrc(*attr)) return add_srq(attr->pd, {}, attr->srq_context, attr->attr);
  constexpr std::uint32_t kNeeded = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((attr->comp_mask & kNeeded) != kNeeded) return fail(EINVAL);
  if (find_object(attr->xrcd) == nullptr) return fail(EINVAL);
  return add_srq(attr->pd, {attr->xrcd, attr->cq}, attr->srq_context, attr->attr);
}

Status modify_srq(ibv_srq* handle, ibv_srq_attr* attr, int attr_mask) {
  const Srq* srq = find_object(handle);
  if (srq == nullptr || attr == nullptr) return fail(EINVAL);
  if ((attr_mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return fail(EINVAL);
  const bool resizes = (attr_mask & IBV_SRQ_MAX_WR) != 0;
  const bool arms = (attr_mask & IBV_SRQ_LIMIT) != 0;
  if (resizes && !good_size(attr->max_wr)) return fail(EINVAL);
  return srq->queue->modify(resizes ? &attr->max_wr : nullptr, arms ? &attr->srq_limit : nullptr);
}

Status query_srq(ibv_srq* handle, ibv_srq_attr* attr) {
  const Srq* srq = find_object(handle);
  if (srq == nullptr || attr == nullptr) return fail(EINVAL);
  *attr = {.max_wr = srq->queue->max_wr(),
           .max_sge = srq->queue->max_sge(),
           .srq_limit = srq->queue->limit()};
  return {};
}

void tear_down(Srq& srq, bool wait) {
  State& all = state();
  EventGate& gate = all.gate_of(&srq.pub);
  std::unique_lock events(gate.mutex);
  if (srq.closing) return;
  srq.closing = true;  // no event is handed out from here on
  events.unlock();
  leave_domain(srq);
  srq.observer->detach();
  srq.context->events->purge(&srq.pub);
  events.lock();
  if (wait) gate.acked.wait(events, [&] { return srq.settled(); });
  events.unlock();
  std::lock_guard control(all.control);
  events.lock();
  --srq.pd->users;
  if (srq.xrcd != nullptr) {
    --srq.xrcd->users;
    --srq.cq->users;
    all.srqns.erase(srq.number.value());
  }
  --all.use_of(*srq.context).srqs;
  all.srqs.destroy(&srq);
}

Status destroy_srq(ibv_srq* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  Srq* srq = nullptr;
  {
    std::lock_guard lock(all.control);
    srq = all.srqs.find(handle);
    if (srq == nullptr) return fail(EINVAL);
    if (srq->users != 0) return fail(EBUSY);
  }
  tear_down(*srq, true);
  return {};
}

}  // namespace airdma::verbs
