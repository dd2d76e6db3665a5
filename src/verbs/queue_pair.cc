// SPDX-License-Identifier: MIT
// Queue pairs come and go. What moves them is in qp_attributes.cc, what is posted in post.cc.
#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "runtime/packet_queue_pair.h"
#include "runtime/stream_queue_pair.h"
#include "verbs/api.h"
#include "verbs/gid_table.h"
#include "verbs/limits.h"
#include "verbs/queue_pair.h"
#include "verbs/raw_enum.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kQpnMask = 0xffffff;
constexpr std::uint32_t kFirstQpn = 2;  // 0 and 1 are special numbers

Status check_type(std::uint32_t type, const Device& device) {
  switch (type) {
    case IBV_QPT_RC:
      return {};
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return device.roce() ? Status{} : fail(EOPNOTSUPP);
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER:
      return fail(EOPNOTSUPP);
    default:
      return fail(EINVAL);
  }
}

bool has_sends(ibv_qp_type type) { return type != IBV_QPT_XRC_RECV; }
bool has_receives(ibv_qp_type type) { return type != IBV_QPT_XRC_SEND && type != IBV_QPT_XRC_RECV; }

/// What the program asked for, resolved; all of one context. Null where the type has none.
struct Parts {
  Context* context = nullptr;
  Pd* pd = nullptr;
  Xrcd* xrcd = nullptr;
  Cq* send_cq = nullptr;
  Cq* receive_cq = nullptr;
  Srq* srq = nullptr;
};

/// Each piece brings room for so many bytes of inline data, as on devices whose queues have either
/// in the same place. Programs that ask for none count on it (rdma_xclient).
constexpr std::uint32_t kInlineBytesOfPiece = 16;

/// Leaves out what queue pairs of the type have not.
ibv_qp_cap granted(const ibv_qp_init_attr& attr) {
  ibv_qp_cap cap = attr.cap;
  if (cap.max_send_sge <= std::uint32_t{kMaxSges}) {
    cap.max_inline_data = std::max(cap.max_inline_data, kInlineBytesOfPiece * cap.max_send_sge);
  }
  if (!has_sends(attr.qp_type)) cap.max_send_wr = cap.max_send_sge = cap.max_inline_data = 0;
  if (!has_receives(attr.qp_type) || attr.srq != nullptr) cap.max_recv_wr = cap.max_recv_sge = 0;
  return cap;
}

Status check_capacity(const ibv_qp_cap& cap) {
  const bool fits = cap.max_send_wr <= std::uint32_t{kMaxWorkRequests} &&
                    cap.max_send_sge <= std::uint32_t{kMaxSges} &&
                    cap.max_inline_data <= kMaxInlineBytes &&
                    cap.max_recv_wr <= std::uint32_t{kMaxWorkRequests} &&
                    cap.max_recv_sge <= std::uint32_t{kMaxSges};
  return fits ? Status{} : fail(EINVAL);
}

bool usable(const Cq* cq, const Context* context) {
  return cq != nullptr && cq->context == context && !cq->closing;
}

// The program may have its receives' buffers in another domain than the queue pair.
bool usable(const Srq* srq, const Context* context) {
  return srq != nullptr && srq->context == context && !srq->closing && srq->xrcd == nullptr;
}

Result<Parts> find_parts(State& all, const ibv_pd* pd, const ibv_xrcd* xrcd,
                         const ibv_qp_init_attr& attr) {
  Parts parts;
  if (has_sends(attr.qp_type)) {
    parts.pd = all.pds.find(pd);
    if (parts.pd == nullptr) return fail(EINVAL);
    parts.context = parts.pd->context;
    parts.send_cq = all.cqs.find(attr.send_cq);
    if (!usable(parts.send_cq, parts.context)) return fail(EINVAL);
  } else {
    parts.xrcd = all.xrcds.find(xrcd);
    if (parts.xrcd == nullptr) return fail(EINVAL);
    parts.context = parts.xrcd->context;
  }
  if (!has_receives(attr.qp_type)) return parts;
  parts.receive_cq = all.cqs.find(attr.recv_cq);
  if (!usable(parts.receive_cq, parts.context)) return fail(EINVAL);
  if (attr.srq == nullptr) return parts;
  parts.srq = all.srqs.find(attr.srq);
  if (!usable(parts.srq, parts.context)) return fail(EINVAL);
  return parts;
}

// --- Numbers ---

Result<Qpn> random_qpn(State& all) {
  for (;;) {
    const auto bits = all.random.take();
    if (!bits) return std::unexpected(bits.error());
    const std::uint32_t qpn = *bits & kQpnMask;
    if (qpn >= kFirstQpn && all.qpns.emplace(qpn, nullptr).second) return Qpn(qpn);
  }
}

/// One of those that packets from the network find this process by.
Result<Qpn> leased_qpn(State& all) {
  runtime::RocePort& port = runtime::RocePort::get();
  std::vector<Qpn> taken;  // by queue pairs of the other transport
  Result<Qpn> qpn = port.allocate_qpn();
  while (qpn && !all.qpns.emplace(qpn->value(), nullptr).second) {
    taken.push_back(*qpn);
    qpn = port.allocate_qpn();
  }
  for (const Qpn number : taken) port.release_qpn(number);
  return qpn;
}

Result<Qpn> choose_qpn(State& all, const Device& device) {
  return device.roce() ? leased_qpn(all) : random_qpn(all);
}

void give_back(State& all, const Device& device, Qpn qpn) {
  all.qpns.erase(qpn.value());
  if (device.roce()) runtime::RocePort::get().release_qpn(qpn);
}

// --- Making ---

runtime::QueuePairConfig config_of(const ibv_qp_init_attr& attr, Qpn qpn, const Parts& parts) {
  const ibv_qp_cap cap = granted(attr);
  // A ring has at least one slot; post_send and post_recv refuse what the program did not ask for.
  return {.type = static_cast<model::QpType>(attr.qp_type),
          .qpn = qpn,
          .pd = parts.pd != nullptr ? parts.pd->id : PdId{},
          .max_send_wr = std::max(cap.max_send_wr, 1u),
          .max_recv_wr = std::max(cap.max_recv_wr, 1u),
          .max_send_sge = std::max(cap.max_send_sge, 1u),
          // Receives of an XRC target may have as many pieces as any.
          .max_recv_sge =
              parts.xrcd != nullptr ? std::uint32_t{kMaxSges} : std::max(cap.max_recv_sge, 1u),
          .max_inline_data = cap.max_inline_data,
          .shared_receives = parts.srq != nullptr ? parts.srq->queue : nullptr};
}

runtime::CompletionQueue& queue_of(State& all, Cq* cq) {
  return cq != nullptr ? *cq->queue : all.no_completions;
}

/// The queue pair at work of an XRC target's first handle. Whatever it fails with leaves nothing.
Status start_target(Qp& qp, State& all, const Parts& parts, const runtime::QueuePairConfig& config,
                    const runtime::PacketQueuePair::Options& options) {
  auto observer = std::make_shared<TargetObserver>();
  observer->add(qp.observer);
  auto made = runtime::PacketQueuePair::create(config, options, all.memory, all.no_completions,
                                               all.no_completions, observer);
  if (!made) return std::unexpected(made.error());
  all.xrc_targets[config.qpn.value()] = {*made, parts.xrcd->domain, std::move(observer), 1};
  qp.packets = made->get();
  qp.runtime = std::move(*made);
  return {};
}

/// The queue pair at work, of the device's kind.
Status start(Qp& qp, State& all, const Parts& parts, const runtime::QueuePairConfig& config) {
  runtime::CompletionQueue& sends = queue_of(all, parts.send_cq);
  runtime::CompletionQueue& receives = queue_of(all, parts.receive_cq);
  if (!parts.context->device->roce()) {
    auto made = runtime::StreamQueuePair::create(config, all.memory, sends, receives, qp.observer);
    qp.stream = made.get();
    qp.runtime = std::move(made);
    return {};
  }
  runtime::PacketQueuePair::Options options{.datagram_bytes =
                                                128u << active_mtu(*parts.context->device)};
  if (parts.xrcd != nullptr) {
    options.xrc_domain = parts.xrcd->domain;
    return start_target(qp, all, parts, config, options);
  }
  auto made =
      runtime::PacketQueuePair::create(config, options, all.memory, sends, receives, qp.observer);
  if (!made) return std::unexpected(made.error());
  qp.packets = made->get();
  qp.runtime = std::move(*made);
  return {};
}

void fill(Qp& qp, State& all, const Parts& parts, const ibv_qp_init_attr& attr, Qpn qpn) {
  qp.type = static_cast<model::QpType>(attr.qp_type);
  qp.context = parts.context;
  qp.pd = parts.pd;
  qp.xrcd = parts.xrcd;
  qp.send_cq = parts.send_cq;
  qp.receive_cq = parts.receive_cq;
  qp.srq = parts.srq;
  qp.cap = granted(attr);
  qp.signal_all = attr.sq_sig_all != 0;
  qp.pub.context = qp.context->handle();
  qp.pub.qp_context = attr.qp_context;
  qp.pub.pd = qp.pd != nullptr ? &qp.pd->pub : nullptr;
  qp.pub.send_cq = qp.send_cq != nullptr ? &qp.send_cq->pub : nullptr;
  qp.pub.recv_cq = qp.receive_cq != nullptr ? &qp.receive_cq->pub : nullptr;
  qp.pub.srq = qp.srq != nullptr ? &qp.srq->pub : nullptr;
  qp.pub.handle = ++all.next_handle;
  qp.pub.qp_num = qpn.value();
  qp.pub.state = IBV_QPS_RESET;
  qp.pub.qp_type = attr.qp_type;
  pthread_mutex_init(&qp.pub.mutex, nullptr);
  pthread_cond_init(&qp.pub.cond, nullptr);
}

template <class Object>
void count_user(Object* object, int change) {
  if (object != nullptr) object->users += static_cast<std::uint32_t>(change);
}

/// Into or out of what the queue pair uses. With `control` held.
void count_users(State& all, Qp& qp, int change) {
  all.use_of(*qp.context).qps += change;
  count_user(qp.pd, change);
  count_user(qp.xrcd, change);
  count_user(qp.send_cq, change);
  count_user(qp.receive_cq, change);
  count_user(qp.srq, change);
}

/// Makes the object under `control`; on failure, exceptions included, nothing remains.
Result<ibv_qp*> add_queue_pair(State& all, const Parts& parts, const ibv_qp_init_attr& attr,
                               Qpn qpn) {
  Qp* qp = all.qps.create();
  if (qp == nullptr) return fail(ENOMEM);
  try {
    qp->observer = std::make_shared<QpObserver>(&qp->pub, parts.context->events);
    if (Status started = start(*qp, all, parts, config_of(attr, qpn, parts)); !started) {
      all.qps.destroy(qp);
      return std::unexpected(started.error());
    }
  } catch (...) {
    all.qps.destroy(qp);
    throw;
  }
  fill(*qp, all, parts, attr, qpn);
  count_users(all, *qp, 1);
  if (parts.xrcd == nullptr) all.qpns[qpn.value()] = qp;
  return &qp->pub;
}

/// With `control` held, and the queue pair at work ended if this was its last handle.
void release_number(State& all, const Qp& qp) {
  const Qpn qpn(qp.pub.qp_num);
  if (all.xrc_targets.contains(qpn.value())) return;
  unbind_windows(all, qpn);
  give_back(all, *qp.context->device, qpn);
}

/// True when the queue pair at work ends with this handle of it.
bool drop_handle(State& all, const Qp& qp) {
  if (qp.xrcd == nullptr) return true;
  std::lock_guard lock(all.control);
  const auto target = all.xrc_targets.find(qp.pub.qp_num);
  if (--target->second.handles != 0) return false;
  all.xrc_targets.erase(target);
  return true;
}

}  // namespace

void QpObserver::on_qp_event(model::QpEvent event) {
  std::lock_guard lock(mutex_);
  if (qp_ == nullptr) return;
  ibv_async_event async{};
  async.element.qp = qp_;
  async.event_type = static_cast<ibv_event_type>(event);
  if (event == model::QpEvent::kAccessError || event == model::QpEvent::kRequestError) {
    AIRDMA_LOG_INFO("qp 0x%x: a request of the peer's was refused (%s)", qp_->qp_num,
                    event == model::QpEvent::kAccessError ? "QP_ACCESS_ERR" : "QP_REQ_ERR");
  }
  events_->push(async);
}

void QpObserver::detach() {
  std::lock_guard lock(mutex_);
  qp_ = nullptr;
}

void TargetObserver::on_qp_event(model::QpEvent event) {
  std::lock_guard lock(mutex_);
  for (const auto& handle : handles_) {
    if (const auto observer = handle.lock()) observer->on_qp_event(event);
  }
}

void TargetObserver::add(const std::shared_ptr<QpObserver>& handle) {
  std::lock_guard lock(mutex_);
  std::erase_if(handles_, [](const auto& one) { return one.expired(); });
  handles_.push_back(handle);
}

Result<ibv_qp*> make_queue_pair(ibv_pd* pd, ibv_xrcd* xrcd, ibv_qp_init_attr& attr) {
  if (Status fits = check_capacity(granted(attr)); !fits) return std::unexpected(fits.error());
  State& all = state();
  std::lock_guard lock(all.control);
  const auto parts = find_parts(all, pd, xrcd, attr);
  if (!parts) return std::unexpected(parts.error());
  const Device& device = *parts->context->device;
  if (Status known = check_type(raw_value(attr.qp_type), device); !known) {
    return std::unexpected(known.error());
  }
  if (all.use_of(*parts->context).qps >= kMaxQueuePairs) return fail(ENOMEM);
  const auto qpn = choose_qpn(all, device);
  if (!qpn) return std::unexpected(qpn.error());
  try {
    auto qp = add_queue_pair(all, *parts, attr, *qpn);
    if (!qp) give_back(all, device, *qpn);
    if (qp) attr.cap = granted(attr);
    return qp;
  } catch (...) {
    give_back(all, device, *qpn);
    throw;
  }
}

Result<ibv_qp*> create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const Pd* found = find_object(pd);
  if (found == nullptr || attr == nullptr) return fail(EINVAL);
  if (Status known = check_type(raw_value(attr->qp_type), *found->context->device); !known) {
    return std::unexpected(known.error());
  }
  return make_queue_pair(pd, nullptr, *attr);
}

Result<ibv_qp*> add_target_handle(State& all, Context& context, Xrcd& xrcd, Qpn qpn,
                                  void* qp_context) {
  XrcTarget& target = all.xrc_targets.at(qpn.value());
  Qp* qp = all.qps.create();
  if (qp == nullptr) return fail(ENOMEM);
  try {
    qp->observer = std::make_shared<QpObserver>(&qp->pub, context.events);
    target.observer->add(qp->observer);
  } catch (...) {
    all.qps.destroy(qp);
    throw;
  }
  qp->runtime = target.queue_pair;
  qp->packets = target.queue_pair.get();
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.qp_context = qp_context;
  fill(*qp, all, {.context = &context, .xrcd = &xrcd}, attr, qpn);
  qp->pub.state = static_cast<ibv_qp_state>(qp->runtime->state());
  count_users(all, *qp, 1);
  ++target.handles;
  return &qp->pub;
}

void tear_down(Qp& qp, bool wait) {
  State& all = state();
  EventGate& gate = all.gate_of(&qp.pub);
  std::unique_lock events(gate.mutex);
  if (qp.closing) return;
  qp.closing = true;                    // no event is handed out from here on
  qp.batch.error = SendBatch::kClosed;  // in case the program is still within one
  events.unlock();
  leave_groups(qp);
  if (drop_handle(all, qp)) qp.runtime->destroy();
  qp.observer->detach();
  qp.context->events->purge(&qp.pub);
  events.lock();
  if (wait) gate.acked.wait(events, [&] { return qp.settled(); });
  events.unlock();
  std::lock_guard control(all.control);
  events.lock();
  count_users(all, qp, -1);
  release_number(all, qp);
  all.qps.destroy(&qp);
}

Status destroy_qp(ibv_qp* handle) {
  Qp* qp = find_object(handle);
  if (qp == nullptr) return fail(EINVAL);
  {
    std::lock_guard lock(state().control);
    if (!qp->groups.empty()) return fail(EBUSY);
  }
  tear_down(*qp, true);
  return {};
}

}  // namespace airdma::verbs
