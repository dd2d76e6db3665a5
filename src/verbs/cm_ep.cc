// SPDX-License-Identifier: MIT
// Endpoints: an id, its addresses and its queue pair in one call.
#include <errno.h>

#include "verbs/cm_api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

constexpr int kResolveTimeoutMs = 2000;

Status prepare_passive(rdma_cm_id* handle, const rdma_addrinfo& res, ibv_pd* pd,
                       const ibv_qp_init_attr* attr) {
  if (auto bound = bind_addr(handle, res.ai_src_addr); !bound) return bound;
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  if (pd != nullptr) id->pub.pd = pd;
  if (attr == nullptr) return {};
  id->endpoint = EndpointAttributes{*attr};
  id->endpoint->qp.qp_type = static_cast<ibv_qp_type>(res.ai_qp_type);
  return {};
}

void keep_private_data(rdma_cm_id* handle, const rdma_addrinfo& res) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || res.ai_connect == nullptr) return;
  const Bytes data = private_data_of(res.ai_connect, res.ai_connect_len);
  id->default_private_data.assign(data.begin(), data.end());
}

Status prepare_active(rdma_cm_id* handle, const rdma_addrinfo& res, ibv_pd* pd,
                      ibv_qp_init_attr* attr) {
  auto resolved = resolve_addr(handle, res.ai_src_addr, res.ai_dst_addr, kResolveTimeoutMs);
  if (!resolved) return resolved;
  if (auto routed = resolve_route(handle, kResolveTimeoutMs); !routed) return routed;
  keep_private_data(handle, res);
  if (attr == nullptr) return {};
  attr->qp_type = static_cast<ibv_qp_type>(res.ai_qp_type);
  return create_qp(handle, pd, attr);
}

}  // namespace

Status create_ep(rdma_cm_id** out, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (out == nullptr || res == nullptr) return fail(EINVAL);
  rdma_cm_id* handle = nullptr;
  auto made =
      create_id(nullptr, &handle, nullptr, static_cast<rdma_port_space>(res->ai_port_space));
  if (!made) return made;
  handle->qp_type = static_cast<ibv_qp_type>(res->ai_qp_type);
  auto prepared = (res->ai_flags & RAI_PASSIVE) != 0 ? prepare_passive(handle, *res, pd, attr)
                                                     : prepare_active(handle, *res, pd, attr);
  if (!prepared) {
    [[maybe_unused]] const auto destroyed = destroy_id(handle);
    return prepared;
  }
  *out = handle;
  return {};
}

void destroy_ep(rdma_cm_id* handle) {
  destroy_qp(handle);
  destroy_srq(handle);
  [[maybe_unused]] const auto destroyed = destroy_id(handle);
}

}  // namespace airdma::cm
