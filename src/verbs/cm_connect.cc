// SPDX-License-Identifier: MIT
// Connections, whatever they go over: parameters, the calls that begin and end them, and how a
// failure is told. What goes over the network is cm_iwarp.cc and cm_ib.cc.
#include <errno.h>

#include <utility>

#include "verbs/api.h"
#include "verbs/cm_api.h"
#include "verbs/cm_state.h"
#include "verbs/internal.h"

namespace airdma::cm {
namespace {

Status start_disconnecting(Id& id) {
  switch (id.state) {
    case IdState::kConnected:
    case IdState::kAccepted:
      if (id.datagram()) break;
      id.state = IdState::kDisconnecting;
      kind_of(id).disconnect(id);
      return {};
    case IdState::kAnswered:
      kind_of(id).abandon(id);
      report_disconnected(id);
      return {};
    case IdState::kDisconnected:
      kind_of(id).hang_up(id);
      return {};
    case IdState::kDisconnecting:
      return {};
    case IdState::kListening:
    case IdState::kConnecting:
    case IdState::kRequested:
    case IdState::kClosed:
      return kind_of(id).end_nothing(id);
    case IdState::kIdle:
    case IdState::kBound:
    case IdState::kAddressResolved:
    case IdState::kRouteResolved:
    case IdState::kDestroying:
      return fail(EINVAL);
  }
  kind_of(id).hang_up(id);
  return {};
}

}  // namespace

const ConnectionKind& kind_of(const Id& id) {
  const bool roce = id.device != nullptr && id.device->transport == verbs::Transport::kRoce;
  return roce ? ib_connections() : iwarp_connections();
}

Bytes connect_data(const Id& id, const rdma_conn_param* param) {
  if (param == nullptr) return id.default_private_data;
  return private_data_of(param->private_data, param->private_data_len);
}

Result<Depths> connect_depths(const Id& id, const rdma_conn_param* param) {
  if (param != nullptr) return depths_of(id, *param);
  return Depths{id.device->max_responder_resources, id.device->max_initiator_depth};
}

void give_up(Id& id, rdma_cm_event_type event, const EventDetails& details) {
  kind_of(id).abandon(id);
  id.state = IdState::kClosed;
  if (auto queue_pair = id.queue_pair.lock()) queue_pair->fail();
  verbs::sync_state(id.qp());
  report(id, event, details);
}

void report_disconnected(Id& id) {
  id.state = IdState::kDisconnected;
  verbs::sync_state(id.qp());
  report(id, RDMA_CM_EVENT_DISCONNECTED);
}

void find_program_qp(Id& id, const rdma_conn_param* param) {
  id.program_qp = id.pub.qp == nullptr && param != nullptr
                      ? verbs::queue_pair_with(param->qp_num, id.pub.verbs->device)
                      : nullptr;
}

Bytes private_data_of(const void* data, std::size_t length) {
  if (data == nullptr) return {};
  return {static_cast<const std::byte*>(data), length};
}

Result<Depths> depths_of(const Id& id, const rdma_conn_param& param) {
  const Device& device = *id.device;
  Depths depths{param.responder_resources, param.initiator_depth};
  if (depths.responder_resources == RDMA_MAX_RESP_RES) {
    depths.responder_resources = device.max_responder_resources;
  }
  if (depths.initiator_depth == RDMA_MAX_INIT_DEPTH) {
    depths.initiator_depth = device.max_initiator_depth;
  }
  if (depths.responder_resources > device.max_responder_resources ||
      depths.initiator_depth > device.max_initiator_depth) {
    return fail(EINVAL);
  }
  return depths;
}

Status connect(rdma_cm_id* handle, rdma_conn_param* param) {
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr || id->state != IdState::kRouteResolved) return fail(EINVAL);
    if (auto started = kind_of(*id).connect(*id, param); !started) return started;
  }
  return complete(handle);
}

Status establish(rdma_cm_id* handle) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || id->state != IdState::kAnswered) return fail(EINVAL);
  return kind_of(*id).establish(*id);
}

Status disconnect(rdma_cm_id* handle) {
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr) return fail(EINVAL);
    if (auto started = start_disconnecting(*id); !started) return started;
    const bool ends = id->state == IdState::kDisconnecting || id->state == IdState::kDisconnected;
    if (!ends) return {};  // no event follows
    // A synchronous program that has already seen the event would wait for ever.
    const bool told = id->state == IdState::kDisconnected &&
                      (id->channel == nullptr || id->channel->queue.empty());
    if (told) return {};
  }
  return complete(handle);
}

}  // namespace airdma::cm
