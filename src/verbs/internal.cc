// SPDX-License-Identifier: MIT
#include "verbs/internal.h"

#include <cerrno>

#include "verbs/api.h"
#include "verbs/state.h"

namespace airdma::verbs {

std::shared_ptr<runtime::QueuePair> queue_pair_of(const ibv_qp* qp) {
  const Qp* found = find_object(qp);
  return found != nullptr ? found->runtime : nullptr;
}

Status init_queue_pair(ibv_qp* qp, model::AccessMask remote_access) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = remote_access | IBV_ACCESS_LOCAL_WRITE;
  return modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

Status set_peer_access(ibv_qp* handle, model::AccessMask remote_access) {
  Qp* qp = find_object(handle);
  if (qp == nullptr) return fail(EINVAL);
  std::lock_guard lock(qp->attributes_mutex);
  qp->attributes.qp_access_flags = remote_access | IBV_ACCESS_LOCAL_WRITE;
  qp->runtime->set_remote_access(remote_access);
  return {};
}

void note_read_limits(ibv_qp* handle, std::uint8_t max_rd_atomic, std::uint8_t max_dest_rd_atomic) {
  Qp* qp = find_object(handle);
  if (qp == nullptr) return;
  std::lock_guard lock(qp->attributes_mutex);
  qp->attributes.max_rd_atomic = max_rd_atomic;
  qp->attributes.max_dest_rd_atomic = max_dest_rd_atomic;
}

void sync_state(ibv_qp* handle) {
  Qp* qp = find_object(handle);
  if (qp == nullptr) return;
  std::lock_guard lock(qp->attributes_mutex);
  qp->pub.state = static_cast<ibv_qp_state>(qp->runtime->state());
}

bool is_live(const ibv_context* context) { return find_object(context) != nullptr; }
bool is_live(const ibv_pd* pd) { return find_object(pd) != nullptr; }
bool is_live(const ibv_cq* cq) { return find_object(cq) != nullptr; }
bool is_live(const ibv_qp* qp) { return find_object(qp) != nullptr; }

ibv_device* device_of_interface(unsigned interface_index) {
  const auto interfaces = io::list_interfaces();
  if (!interfaces) return nullptr;
  for (const io::Interface& interface : *interfaces) {
    if (interface.index == interface_index) return &device_of(interface)->pub;
  }
  return nullptr;
}

std::optional<io::Interface> interface_of(const ibv_context* handle) {
  const Context* context = find_object(handle);
  if (context == nullptr) return std::nullopt;
  return context->device->look();
}

}  // namespace airdma::verbs
