// SPDX-License-Identifier: MIT
// C symbols of librdmacm: ids, connections, events. Failures are -1 with errno.
#include "verbs/cm_api.h"

#include <rdma/rdma_verbs.h>

#include "abi/adapters.h"
#include "abi/export.h"

using airdma::Result;
using airdma::abi::return_errno;
using airdma::abi::return_minus_one;
using airdma::abi::return_pointer;
namespace cm = airdma::cm;

// Event channels and ids.

AIRDMA_EXPORT rdma_event_channel* rdma_create_event_channel(void) {
  return return_pointer([] { return cm::create_event_channel(); });
}

AIRDMA_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  return_errno([&] { cm::destroy_event_channel(channel); });
}

AIRDMA_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                                 rdma_port_space ps) {
  return return_minus_one([&] { return cm::create_id(channel, id, context, ps); });
}

AIRDMA_EXPORT int rdma_destroy_id(rdma_cm_id* id) {
  return return_minus_one([&] { return cm::destroy_id(id); });
}

AIRDMA_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return return_minus_one([&] { return cm::migrate_id(id, channel); });
}

AIRDMA_EXPORT int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd,
                                 ibv_qp_init_attr* attr) {
  return return_minus_one([&] { return cm::create_ep(id, res, pd, attr); });
}

AIRDMA_EXPORT void rdma_destroy_ep(rdma_cm_id* id) {
  return_errno([&] { cm::destroy_ep(id); });
}

AIRDMA_EXPORT int rdma_set_option(rdma_cm_id* id, int level, int optname, void* optval,
                                  size_t optlen) {
  return return_minus_one([&] { return cm::set_option(id, level, optname, optval, optlen); });
}

// Addresses.

AIRDMA_EXPORT int rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) {
  return return_minus_one([&] { return cm::bind_addr(id, addr); });
}

AIRDMA_EXPORT int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr,
                                    int timeout_ms) {
  return return_minus_one([&] { return cm::resolve_addr(id, src_addr, dst_addr, timeout_ms); });
}

AIRDMA_EXPORT int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
  return return_minus_one([&] { return cm::resolve_route(id, timeout_ms); });
}

AIRDMA_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) { return cm::get_src_port(id); }

AIRDMA_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) { return cm::get_dst_port(id); }

// Its failure may also be a value of getaddrinfo(3), which is none of errno's.
AIRDMA_EXPORT int rdma_getaddrinfo(const char* node, const char* service,
                                   const rdma_addrinfo* hints, rdma_addrinfo** res) {
  return return_minus_one([&] { return Result<int>(cm::getaddrinfo(node, service, hints, res)); });
}

AIRDMA_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* res) {
  return_errno([&] { cm::freeaddrinfo(res); });
}

AIRDMA_EXPORT ibv_context** rdma_get_devices(int* num_devices) {
  return return_pointer([&] { return cm::get_devices(num_devices); });
}

AIRDMA_EXPORT void rdma_free_devices(ibv_context** list) {
  return_errno([&] { cm::free_devices(list); });
}

// Connections.

AIRDMA_EXPORT int rdma_listen(rdma_cm_id* id, int backlog) {
  return return_minus_one([&] { return cm::listen(id, backlog); });
}

AIRDMA_EXPORT int rdma_connect(rdma_cm_id* id, rdma_conn_param* param) {
  return return_minus_one([&] { return cm::connect(id, param); });
}

AIRDMA_EXPORT int rdma_establish(rdma_cm_id* id) {
  return return_minus_one([&] { return cm::establish(id); });
}

AIRDMA_EXPORT int rdma_accept(rdma_cm_id* id, rdma_conn_param* param) {
  return return_minus_one([&] { return cm::accept(id, param); });
}

AIRDMA_EXPORT int rdma_reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return return_minus_one([&] { return cm::reject(id, private_data, private_data_len); });
}

AIRDMA_EXPORT int rdma_reject_ece(rdma_cm_id* id, const void* private_data,
                                  uint8_t private_data_len) {
  return return_minus_one([&] { return cm::reject_ece(id, private_data, private_data_len); });
}

AIRDMA_EXPORT int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  return return_minus_one([&] { return cm::notify(id, event); });
}

AIRDMA_EXPORT int rdma_disconnect(rdma_cm_id* id) {
  return return_minus_one([&] { return cm::disconnect(id); });
}

AIRDMA_EXPORT int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  return return_minus_one([&] { return cm::set_local_ece(id, ece); });
}

AIRDMA_EXPORT int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  return return_minus_one([&] { return cm::get_remote_ece(id, ece); });
}

// Queues of an id.

AIRDMA_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  return return_minus_one([&] { return cm::create_qp(id, pd, attr); });
}

AIRDMA_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  return return_minus_one([&] { return cm::create_qp_ex(id, attr); });
}

AIRDMA_EXPORT void rdma_destroy_qp(rdma_cm_id* id) {
  return_errno([&] { cm::destroy_qp(id); });
}

AIRDMA_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  return return_minus_one([&] { return cm::create_srq(id, pd, attr); });
}

AIRDMA_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  return return_minus_one([&] { return cm::create_srq_ex(id, attr); });
}

AIRDMA_EXPORT void rdma_destroy_srq(rdma_cm_id* id) {
  return_errno([&] { cm::destroy_srq(id); });
}

AIRDMA_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* attr_mask) {
  return return_minus_one([&] { return cm::init_qp_attr(id, attr, attr_mask); });
}

// Multicast.

AIRDMA_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) {
  return return_minus_one([&] { return cm::join_multicast(id, addr, context); });
}

AIRDMA_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr,
                                         void* context) {
  return return_minus_one([&] { return cm::join_multicast_ex(id, attr, context); });
}

AIRDMA_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) {
  return return_minus_one([&] { return cm::leave_multicast(id, addr); });
}

// Events.

AIRDMA_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  return return_minus_one([&] { return cm::ack_cm_event(event); });
}

AIRDMA_EXPORT const char* rdma_event_str(rdma_cm_event_type event) { return cm::event_str(event); }
