// SPDX-License-Identifier: MIT
// Completion channels and completion queues.
#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "verbs/api.h"
#include "verbs/completion_queue.h"
#include "verbs/limits.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

void on_overflow(void* opaque) {
  Cq& cq = *static_cast<Cq*>(opaque);
  ibv_async_event event{};
  event.element.cq = &cq.pub;
  event.event_type = IBV_EVENT_CQ_ERR;
  cq.context->events->push(event);
}

void fill(Cq& cq, State& all, const CqRequest& request) {
  cq.pub.context = cq.context->handle();
  cq.pub.channel = cq.channel != nullptr ? &cq.channel->pub : nullptr;
  cq.pub.cq_context = request.cq_context;
  cq.pub.handle = ++all.next_handle;
  cq.pub.cqe = request.cqe;
  pthread_mutex_init(&cq.pub.mutex, nullptr);
  pthread_cond_init(&cq.pub.cond, nullptr);
}

/// Counts a fetched notification. False when the queue is gone or going.
bool deliver(const ibv_cq* handle) {
  State& all = state();
  std::lock_guard lock(all.gate_of(handle).mutex);
  Cq* cq = all.cqs.find(handle);
  if (cq == nullptr || cq->closing) return false;
  ++cq->completion_events.delivered;
  return true;
}

inline void convert(const model::Completion& from, ibv_wc& to) {
  to.wr_id = from.wr_id;
  to.status = static_cast<ibv_wc_status>(from.status);
  to.opcode = static_cast<ibv_wc_opcode>(from.opcode);
  to.vendor_err = from.vendor_error;
  to.byte_len = from.byte_len;
  to.imm_data = from.immediate;  // or the invalidated key: one union
  to.qp_num = from.qpn.value();
  to.src_qp = from.source_qpn.value();
  to.wc_flags = from.flags & model::kWcFlags;
  to.pkey_index = 0;
  to.slid = 0;
  to.sl = static_cast<std::uint8_t>(from.flags >> model::kWcServiceLevelShift);
  to.dlid_path_bits = 0;
}

/// Large enough that the lock is taken rarely, small enough for any stack.
constexpr int kPollBatch = 16;

int poll_many(runtime::CompletionQueue& queue, int count, ibv_wc* wc) {
  model::Completion batch[kPollBatch];
  int done = 0;
  while (done < count) {
    const int wanted = std::min(count - done, kPollBatch);
    const int got = queue.poll(wanted, batch);
    if (got < 0) return done > 0 ? done : got;
    for (int i = 0; i < got; ++i) convert(batch[i], wc[done + i]);
    done += got;
    if (got < wanted) break;
  }
  return done;
}

}  // namespace

Result<ibv_comp_channel*> create_comp_channel(ibv_context* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  auto queue = runtime::CompletionChannel::create();
  if (!queue) return std::unexpected(queue.error());
  State& all = state();
  std::lock_guard lock(all.control);
  if (all.contexts.find(handle) == nullptr) return fail(EINVAL);
  Channel* channel = all.channels.create();
  if (channel == nullptr) return fail(ENOMEM);
  channel->queue = std::move(*queue);
  channel->pub = {.context = handle, .fd = channel->queue->fd(), .refcnt = 0};
  return &channel->pub;
}

Status destroy_comp_channel(ibv_comp_channel* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Channel* channel = all.channels.find(handle);
  if (channel == nullptr) return fail(EINVAL);
  if (channel->pub.refcnt != 0) return fail(EBUSY);
  all.channels.destroy(channel);
  return {};
}

namespace {

/// Room for `capacity` entries in memory of the parent domain; nothing when there is none.
Result<ProgramMemory> take_memory(const ibv_pd* parent_domain, std::uint32_t capacity, bool timed) {
  if (parent_domain == nullptr) return ProgramMemory{};
  if (find_object(parent_domain) == nullptr) return fail(EINVAL);
  State& all = state();
  std::unique_lock lock(all.control);
  const Pd* pd = all.pds.find(parent_domain);
  if (pd == nullptr || pd->base == nullptr) return fail(EINVAL);
  const ProgramAllocator from = pd->memory;
  lock.unlock();
  return ProgramMemory::take(from, runtime::CompletionRing::bytes_for(capacity, timed),
                             runtime::CompletionRing::kAlignment);
}

/// With `control` held.
Result<Cq*> add_cq(State& all, ibv_context* context_handle, const CqRequest& request) {
  Context* context = all.contexts.find(context_handle);
  Channel* channel = nullptr;
  if (request.channel != nullptr) {
    channel = all.channels.find(request.channel);
    if (channel == nullptr || channel->pub.context != context_handle) return fail(EINVAL);
  }
  if (context == nullptr) return fail(EINVAL);
  Pd* domain = all.pds.find(request.parent_domain);
  if (request.parent_domain != nullptr) {
    if (domain == nullptr || domain->base == nullptr || domain->context != context) {
      return fail(EINVAL);
    }
  }
  DeviceUse& use = all.use_of(*context);
  if (use.cqs >= kMaxCompletionQueues) return fail(ENOMEM);
  Cq* cq = all.cqs.create();
  if (cq == nullptr) return fail(ENOMEM);
  try {
    cq->queue = std::make_unique<runtime::CompletionQueue>(
        static_cast<std::uint32_t>(request.cqe),
        channel != nullptr ? channel->queue.get() : nullptr, &cq->pub, request.options);
  } catch (...) {
    all.cqs.destroy(cq);
    throw;
  }
  cq->queue->set_overflow_handler(&on_overflow, cq);
  cq->context = context;
  cq->channel = channel;
  cq->parent_domain = domain;
  if (channel != nullptr) ++channel->pub.refcnt;
  if (domain != nullptr) ++domain->users;
  fill(*cq, all, request);
  ++use.cqs;
  return cq;
}

}  // namespace

Result<Cq*> make_cq(ibv_context* context_handle, CqRequest request) {
  if (find_object(context_handle) == nullptr) return fail(EINVAL);
  if (request.cqe <= 0 || request.cqe > kMaxCompletions) return fail(EINVAL);
  const int vector = request.comp_vector;
  if (vector < 0 || vector >= context_handle->num_comp_vectors) return fail(EINVAL);
  auto memory = take_memory(request.parent_domain, static_cast<std::uint32_t>(request.cqe),
                            request.options.timed);
  if (!memory) return std::unexpected(memory.error());
  request.options.memory = memory->data();
  State& all = state();
  std::lock_guard lock(all.control);
  const auto cq = add_cq(all, context_handle, request);
  if (cq) (*cq)->memory = std::move(*memory);
  return cq;
}

Result<ibv_cq*> create_cq(ibv_context* context, int cqe, void* cq_context,
                          ibv_comp_channel* channel, int comp_vector) {
  const auto cq = make_cq(
      context,
      {.cqe = cqe, .cq_context = cq_context, .channel = channel, .comp_vector = comp_vector});
  if (!cq) return std::unexpected(cq.error());
  return &(*cq)->pub;
}

Status resize_cq(ibv_cq* handle, int cqe) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  if (cqe <= 0 || cqe > kMaxCompletions) return fail(EINVAL);
  const auto entries = static_cast<std::uint32_t>(cqe);
  State& all = state();
  std::unique_lock lock(all.control);
  Cq* cq = all.cqs.find(handle);
  if (cq == nullptr) return fail(EINVAL);
  const ibv_pd* domain = cq->parent_domain != nullptr ? &cq->parent_domain->pub : nullptr;
  const bool timed = cq->queue->timed();
  lock.unlock();
  auto memory = take_memory(domain, entries, timed);
  if (!memory) return std::unexpected(memory.error());
  lock.lock();  // two at once would leave the number of one in `cqe`
  cq = all.cqs.find(handle);
  Status resized = fail(EINVAL);
  if (cq != nullptr) resized = cq->queue->resize(entries, memory->data());
  if (resized) {
    cq->pub.cqe = cqe;
    std::swap(cq->memory, *memory);
  }
  lock.unlock();  // what is not used any more goes back to the program
  return resized;
}

void tear_down(Cq& cq, bool wait) {
  State& all = state();
  EventGate& gate = all.gate_of(&cq.pub);
  std::unique_lock events(gate.mutex);
  if (cq.closing) return;
  cq.closing = true;  // nothing is handed out from here on
  events.unlock();
  if (cq.channel != nullptr) cq.channel->queue->purge(&cq.pub);
  cq.context->events->purge(&cq.pub);
  events.lock();
  if (wait) gate.acked.wait(events, [&] { return cq.settled(); });
  events.unlock();
  std::unique_lock control(all.control);
  events.lock();
  if (cq.channel != nullptr) --cq.channel->pub.refcnt;
  --all.use_of(*cq.context).cqs;
  Pd* domain = cq.parent_domain;
  ProgramMemory memory = std::move(cq.memory);
  all.cqs.destroy(&cq);
  events.unlock();
  if (domain == nullptr) return;
  control.unlock();
  memory = {};  // given back while its domain is still there
  control.lock();
  --domain->users;
}

Status destroy_cq(ibv_cq* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  Cq* cq = nullptr;
  {
    std::lock_guard lock(all.control);
    cq = all.cqs.find(handle);
    if (cq == nullptr) return fail(EINVAL);
    if (cq->users != 0) return fail(EBUSY);
  }
  tear_down(*cq, true);
  return {};
}

Status get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** cq_context) {
  const Channel* channel = find_object(handle);
  if (channel == nullptr || cq == nullptr || cq_context == nullptr) return fail(EINVAL);
  const std::shared_ptr<runtime::CompletionChannel> queue = channel->queue;
  for (;;) {
    const auto entry = queue->pop();
    if (!entry) return std::unexpected(entry.error());
    auto* found = static_cast<ibv_cq*>(*entry);
    if (!deliver(found)) continue;
    *cq = found;
    *cq_context = found->cq_context;
    return {};
  }
}

void ack_cq_events(ibv_cq* handle, unsigned nevents) {
  if (find_object(handle) == nullptr) return;
  State& all = state();
  EventGate& gate = all.gate_of(handle);
  std::lock_guard lock(gate.mutex);
  Cq* cq = all.cqs.find(handle);
  if (cq == nullptr) return;
  cq->completion_events.ack(nevents);
  cq->pub.comp_events_completed = cq->completion_events.acked;
  gate.acked.notify_all();
}

int poll_cq(ibv_cq* handle, int num_entries, ibv_wc* wc) noexcept {
  Cq* cq = find_object(handle);
  if (cq == nullptr || num_entries < 0) return -EINVAL;
  if (num_entries == 0) return 0;
  if (wc == nullptr) return -EINVAL;
  if (num_entries > 1) return poll_many(*cq->queue, num_entries, wc);
  model::Completion one;
  const int got = cq->queue->poll(1, &one);
  if (got == 1) convert(one, *wc);
  return got;
}

int req_notify_cq(ibv_cq* handle, int solicited_only) noexcept {
  Cq* cq = find_object(handle);
  if (cq == nullptr) return EINVAL;
  cq->queue->request_notify(solicited_only != 0);
  return 0;
}

}  // namespace airdma::verbs
