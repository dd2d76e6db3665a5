// SPDX-License-Identifier: MIT
// Contexts (a device opened by a program) and their asynchronous events.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/open_context.h"
#include "verbs/port_events.h"
#include "verbs/raw_enum.h"
#include "verbs/region.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

int completion_vectors() {
  const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
  return static_cast<int>(std::clamp<long>(processors, 1, kMaxCompletionVectors));
}

/// Objects of `pool` on the context, as they are now.
template <class Object>
std::vector<Object*> objects_on(ObjectPool<Object>& pool, const ibv_context* context) {
  std::vector<Object*> found;
  pool.for_each([&](Object& object) {
    if (object.handle()->context == context) found.push_back(&object);
  });
  return found;
}

/// Ends what the program left on a context it closes, users before what they use.
void end_objects(State& all, const ibv_context* context) {
  std::unique_lock lock(all.control);
  const auto qps = objects_on(all.qps, context);
  const auto srqs = objects_on(all.srqs, context);
  const auto cqs = objects_on(all.cqs, context);
  const auto mws = objects_on(all.mws, context);
  const auto mrs = objects_on(all.mrs, context);
  const auto ahs = objects_on(all.ahs, context);
  const auto xrcds = objects_on(all.xrcds, context);
  lock.unlock();
  for (Qp* qp : qps) tear_down(*qp, false);
  for (Srq* srq : srqs) tear_down(*srq, false);
  for (Xrcd* xrcd : xrcds) tear_down(*xrcd);
  for (Ah* ah : ahs) tear_down(*ah);
  for (Cq* cq : cqs) tear_down(*cq, false);
  for (Mw* mw : mws) tear_down(*mw);
  for (Mr* mr : mrs) tear_down(*mr);
  lock.lock();
  for (Channel* channel : objects_on(all.channels, context)) all.channels.destroy(channel);
  for (Pd* pd : objects_on(all.pds, context)) {
    if (pd->base != nullptr) end_domain(all, *pd);
  }
  for (Pd* pd : objects_on(all.pds, context)) end_domain(all, *pd);
  for (Td* td : objects_on(all.tds, context)) all.tds.destroy(td);
  for (Dm* dm : objects_on(all.dms, context)) all.dms.destroy(dm);
  for (Counters* counters : objects_on(all.counters, context)) all.counters.destroy(counters);
}

/// Counts `event` as handed out. False when its object is gone or going: the event is dropped.
template <class Handle>
bool deliver(const Handle* handle) {
  State& all = state();
  EventGate& gate = all.gate_of(handle);
  std::lock_guard lock(gate.mutex);
  auto* object = all.pool(handle).find(handle);
  if (object == nullptr || object->closing) return false;
  ++object->async_events.delivered;
  return true;
}

bool is_of_srq(const ibv_async_event& event) {
  const auto type = raw_value(event.event_type);
  return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

bool deliver(const ibv_async_event& event) {
  if (event.event_type == IBV_EVENT_CQ_ERR) return deliver(event.element.cq);
  if (is_of_srq(event)) return deliver(event.element.srq);
  return element_of(event) == nullptr || deliver(event.element.qp);
}

template <class Handle>
void acknowledge(const Handle* handle) {
  if (find_object(handle) == nullptr) return;
  State& all = state();
  EventGate& gate = all.gate_of(handle);
  std::lock_guard lock(gate.mutex);
  auto* object = all.pool(handle).find(handle);
  if (object == nullptr) return;
  object->async_events.ack(1);
  if constexpr (std::is_same_v<Handle, ibv_cq>) {
    object->pub.async_events_completed = object->async_events.acked;
  } else {
    object->pub.events_completed = object->async_events.acked;
  }
  gate.acked.notify_all();
}

}  // namespace

Result<ibv_context*> open_device(ibv_device* handle) {
  Device* device = find_device(handle);
  if (device == nullptr) return fail(EINVAL);
  return open_context(*device, 0, open_command_file);
}

Result<ibv_context*> open_context(Device& device, std::uint64_t group,
                                  const std::function<Result<io::Fd>()>& command) {
  if (device.roce()) {
    if (Status watched = watch_ports(); !watched) return std::unexpected(watched.error());
  }
  auto events = AsyncEvents::create();
  if (!events) return std::unexpected(events.error());
  State& all = state();
  std::lock_guard lock(all.control);
  Context* context = all.contexts.create();
  if (context == nullptr) return fail(ENOMEM);
  auto file = command();
  if (!file) {
    all.contexts.destroy(context);
    return std::unexpected(file.error());
  }
  context->device = &device;
  context->events = std::move(*events);
  context->command = std::move(*file);
  context->group = group != 0 ? group : ++all.next_group;
  ibv_context& pub = context->pub.context;
  pub.device = &device.pub;
  pub.cmd_fd = context->command.get();
  pub.async_fd = context->events->fd();
  pub.num_comp_vectors = completion_vectors();
  pthread_mutex_init(&pub.mutex, nullptr);
  fill_context_slots(context->pub);
  return &pub;
}

Status close_device(ibv_context* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  end_objects(all, handle);
  std::lock_guard lock(all.control);
  Context* context = find_object(handle);
  if (context == nullptr) return fail(EINVAL);
  all.contexts.destroy(context);
  return {};
}

Status get_async_event(ibv_context* handle, ibv_async_event* event) {
  const Context* context = find_object(handle);
  if (context == nullptr || event == nullptr) return fail(EINVAL);
  const std::shared_ptr<AsyncEvents> events = context->events;
  for (;;) {
    const auto next = events->pop();
    if (!next) return std::unexpected(next.error());
    if (!deliver(*next)) continue;
    *event = *next;
    return {};
  }
}

void ack_async_event(ibv_async_event* event) {
  if (event == nullptr || element_of(*event) == nullptr) return;
  if (raw_value(event->event_type) == IBV_EVENT_CQ_ERR) {
    acknowledge(event->element.cq);
  } else if (is_of_srq(*event)) {
    acknowledge(event->element.srq);
  } else {
    acknowledge(event->element.qp);
  }
}

}  // namespace airdma::verbs
