// SPDX-License-Identifier: MIT
// Synchronous ids: calls that wait for the event of what they started.
#include <errno.h>

#include "verbs/cm_api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

/// The channel to wait on, with the last event acknowledged; null for an asynchronous id.
Result<rdma_event_channel*> prepare_wait(rdma_cm_id* handle) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  if (!id->synchronous) return nullptr;
  if (Event* last = control().events.find(id->pub.event)) acknowledge(*last);
  id->pub.event = nullptr;
  return &id->channel->pub;
}

Status outcome_of(const rdma_cm_event& event) {
  if (event.status == 0) return {};
  if (event.event == RDMA_CM_EVENT_REJECTED) return fail(ECONNREFUSED);
  return fail(event.status < 0 ? -event.status : event.status);
}

/// Makes the id of a fetched request synchronous, with the event that announced it.
Status adopt_request(rdma_cm_event& event) {
  if (auto moved = migrate_id(event.id, nullptr); !moved) return moved;
  event.id->event = &event;
  return {};
}

/// A copy, because create_qp writes what was granted.
std::optional<ibv_qp_init_attr> endpoint_attributes(const rdma_cm_id* listener) {
  std::lock_guard lock(control().mutex);
  const Id* id = find_id(listener);
  if (id == nullptr || !id->endpoint) return std::nullopt;
  return id->endpoint->qp;
}

Status take_request(rdma_cm_id* listener, rdma_cm_event& event) {
  if (event.event != RDMA_CM_EVENT_CONNECT_REQUEST) return fail(EINVAL);
  if (auto adopted = adopt_request(event); !adopted) return adopted;
  auto attributes = endpoint_attributes(listener);
  if (!attributes) return {};
  auto made = create_qp(event.id, listener->pd, &*attributes);
  if (!made) [[maybe_unused]]
    const auto ended = destroy_id(event.id);
  return made;
}

}  // namespace

Status complete(rdma_cm_id* handle) {
  auto channel = prepare_wait(handle);
  if (!channel) return std::unexpected(channel.error());
  if (*channel == nullptr) return {};
  rdma_cm_event* event = nullptr;
  if (auto got = get_cm_event(*channel, &event); !got) return got;
  const Status outcome = outcome_of(*event);
  std::lock_guard lock(control().mutex);
  if (find_id(handle) != nullptr) handle->event = event;
  return outcome;
}

Status get_request(rdma_cm_id* listener, rdma_cm_id** out) {
  if (out == nullptr) return fail(EINVAL);
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(listener);
    if (id == nullptr || id->state != IdState::kListening) return fail(EINVAL);
  }
  auto channel = prepare_wait(listener);
  if (!channel) return std::unexpected(channel.error());
  if (*channel == nullptr) return fail(EINVAL);
  rdma_cm_event* event = nullptr;
  if (auto got = get_cm_event(*channel, &event); !got) return got;
  rdma_cm_id* fresh = event->id;
  if (auto taken = take_request(listener, *event); !taken) {
    [[maybe_unused]] const auto acked = ack_cm_event(event);  // unless its id's end did
    return taken;
  }
  *out = fresh;
  return {};
}

}  // namespace airdma::cm
