// SPDX-License-Identifier: MIT
#include "verbs/internal.h"

#include "verbs/api.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

/// Calls `use(Qp&)` while nobody can destroy the object; nothing for a handle that is none.
template <class Use>
void with_queue_pair(const ibv_qp* handle, Use use) {
  if (find_object(handle) == nullptr) return;
  State& all = state();
  std::lock_guard lock(all.control);
  if (Qp* qp = all.qps.find(handle); qp != nullptr) use(*qp);
}

}  // namespace

std::shared_ptr<runtime::StreamQueuePair> stream_queue_pair_of(const ibv_qp* handle) {
  std::shared_ptr<runtime::StreamQueuePair> found;
  with_queue_pair(handle, [&](Qp& qp) {
    found = std::dynamic_pointer_cast<runtime::StreamQueuePair>(qp.runtime);
  });
  return found;
}

ibv_qp* queue_pair_with(std::uint32_t number, const ibv_device* device) {
  State& all = state();
  std::lock_guard lock(all.control);
  const auto found = all.qpns.find(number);
  if (found == all.qpns.end() || found->second == nullptr) return nullptr;
  Qp& qp = *found->second;
  return &qp.context->device->pub == device ? &qp.pub : nullptr;
}

Status init_queue_pair(ibv_qp* qp, model::AccessMask remote_access) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = remote_access | IBV_ACCESS_LOCAL_WRITE;
  return modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

void note_read_limits(ibv_qp* handle, std::uint8_t max_rd_atomic, std::uint8_t max_dest_rd_atomic) {
  with_queue_pair(handle, [&](Qp& qp) {
    std::lock_guard lock(qp.attributes_mutex);
    qp.attributes.max_rd_atomic = max_rd_atomic;
    qp.attributes.max_dest_rd_atomic = max_dest_rd_atomic;
  });
}

void note_timeout(ibv_qp* handle, std::uint8_t timeout) {
  with_queue_pair(handle, [&](Qp& qp) {
    std::lock_guard lock(qp.attributes_mutex);
    qp.attributes.timeout = timeout;
  });
}

void sync_state(ibv_qp* handle) {
  with_queue_pair(handle, [&](Qp& qp) {
    std::lock_guard lock(qp.attributes_mutex);
    qp.show_state(static_cast<ibv_qp_state>(qp.runtime->state()));
  });
}

bool is_live(const ibv_context* context) { return find_object(context) != nullptr; }
bool is_live(const ibv_pd* pd) { return find_object(pd) != nullptr; }

}  // namespace airdma::verbs
