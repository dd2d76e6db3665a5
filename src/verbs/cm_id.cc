// SPDX-License-Identifier: MIT
// Life of an id: creation, moves between channels, and its end.
#include <errno.h>

#include "verbs/cm_api.h"
#include "verbs/cm_ib.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

Result<ibv_qp_type> qp_type_of(rdma_port_space port_space) {
  switch (port_space) {
    case RDMA_PS_TCP:
    case RDMA_PS_IB:
      return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IBV_QPT_UD;
  }
  return fail(EINVAL);
}

/// The program's channel, or one of the id's own when there is none.
Result<Channel*> channel_for(rdma_event_channel* handle) {
  if (handle == nullptr) return make_channel();
  Channel* channel = control().channels.find(handle);
  if (channel == nullptr) return fail(EINVAL);
  return channel;
}

/// A synchronous id refers to the last event it waited for until the next call.
void acknowledge_last(Id& id) {
  Event* last = control().events.find(id.pub.event);
  if (id.synchronous && last != nullptr) acknowledge(*last);
  id.pub.event = nullptr;
}

void wait_for_acknowledgements(std::unique_lock<ControlMutex>& lock, const Id& id) {
  control().acknowledged.wait(lock, [&] { return id.unacked == 0; });
}

void end_connection(Id& id) {
  for (const auto& request : id.waiting) request->turn_away();
  id.waiting.clear();
  kind_of(id).abandon(id);
}

}  // namespace

Id* find_id(const rdma_cm_id* handle) {
  Id* id = control().ids.find(handle);
  return id != nullptr && id->state != IdState::kDestroying ? id : nullptr;
}

Id* make_id(Channel* channel, rdma_port_space port_space, void* context) {
  Id* id = control().ids.create();
  if (id == nullptr) return nullptr;
  id->link = std::make_shared<Link>(id);
  id->channel = channel;
  id->pub.channel = channel != nullptr ? &channel->pub : nullptr;
  id->pub.context = context;
  id->pub.ps = port_space;
  id->pub.qp_type = qp_type_of(port_space).value_or(IBV_QPT_RC);
  return id;
}

void silence(Id& id) {
  if (id.state == IdState::kRequested) note_handover();
  if (id.link) id.link->cut();
  if (id.listener) id.listener->close();
  stop_listening_ib(id);
  leave_groups(id);
  drop_events(id);
  end_connection(id);
  id.state = IdState::kDestroying;
}

void free_id(Id& id) {
  Channel* own = id.synchronous ? id.channel : nullptr;
  control().ids.destroy(&id);
  if (own != nullptr) free_channel(*own);
}

Status create_id(rdma_event_channel* handle, rdma_cm_id** out, void* context,
                 rdma_port_space port_space) {
  if (out == nullptr) return fail(EINVAL);
  if (auto type = qp_type_of(port_space); !type) return std::unexpected(type.error());
  std::lock_guard lock(control().mutex);
  auto channel = channel_for(handle);
  if (!channel) return std::unexpected(channel.error());
  Id* id = make_id(*channel, port_space, context);
  if (id == nullptr) {
    if (handle == nullptr) free_channel(**channel);
    return fail(ENOMEM);
  }
  id->synchronous = handle == nullptr;
  *out = &id->pub;
  return {};
}

Status destroy_id(rdma_cm_id* handle) {
  std::unique_lock lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  silence(*id);
  acknowledge_last(*id);
  wait_for_acknowledgements(lock, *id);
  free_id(*id);
  return {};
}

Status migrate_id(rdma_cm_id* handle, rdma_event_channel* target) {
  std::unique_lock lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  if (target == nullptr && id->synchronous) return {};
  auto channel = channel_for(target);
  if (!channel) return std::unexpected(channel.error());
  acknowledge_last(*id);
  Channel* own = id->synchronous ? id->channel : nullptr;
  move_events(*id, *channel);
  id->pub.channel = &(*channel)->pub;
  id->synchronous = target == nullptr;
  if (own != nullptr) free_channel(*own);
  // Events that were fetched from the old channel must not be mistaken for the new one's.
  control().acknowledged.wait(lock, [&] { return find_id(handle) != id || id->unacked == 0; });
  return {};
}

}  // namespace airdma::cm
