// SPDX-License-Identifier: MIT
// What the rdma_* functions mean, in C++: one declaration per function of <rdma/rdma_cma.h>,
// same parameters, a failure being an errno value in the Result, which src/abi turns into
// -1+errno or NULL+errno.
//
// Rules for all of them: NULL, destroyed and foreign handles are EINVAL, and so is a call that
// the state of the id does not allow; none crashes. An id whose creator gave no event channel is
// synchronous: a call on it that waits for an event returns when that event came, and a
// negative or positive event status is the call's failure (ECONNREFUSED for a reject).
// Inside this namespace `connect`, `listen`, ... are these functions: the system's are `::connect`.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace airdma::cm {

// Event channels and ids.

/// Its `fd` is readable while an event waits; programs poll it and make it non-blocking.
Result<rdma_event_channel*> create_event_channel();
/// All ids on it must be gone. NULL is ignored.
void destroy_event_channel(rdma_event_channel* channel);
/// `channel` NULL makes a synchronous id. EINVAL for a port space that does not exist;
/// EOPNOTSUPP for one that this release does not serve.
Status create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                 rdma_port_space port_space);
/// Waits until every event reported on it is acknowledged. EBUSY is never returned.
Status destroy_id(rdma_cm_id* id);
/// Moves the id and its unreported events to `channel` (NULL: makes it synchronous).
Status migrate_id(rdma_cm_id* id, rdma_event_channel* channel);

/// Id from a result of getaddrinfo(): bound (RAI_PASSIVE) or resolved; with `attr` a QP too, on
/// `pd` or the default PD.
Status create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr);
/// Destroys its QP and SRQ, then the id.
void destroy_ep(rdma_cm_id* id);

// Addresses and connections.

/// EADDRINUSE, EADDRNOTAVAIL (no such local address), EINVAL when already bound.
Status bind_addr(rdma_cm_id* id, sockaddr* addr);
/// ADDR_RESOLVED or ADDR_ERROR follows. `src_addr` may be NULL. Within `timeout_ms`.
Status resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int timeout_ms);
/// ROUTE_RESOLVED or ROUTE_ERROR follows. EINVAL before the address is resolved.
Status resolve_route(rdma_cm_id* id, int timeout_ms);
/// `backlog` 0 means the implementation's default.
Status listen(rdma_cm_id* id, int backlog);
/// Next connection request of a synchronous listener, as an id of its own.
Status get_request(rdma_cm_id* listen_id, rdma_cm_id** id);
/// ESTABLISHED, CONNECT_RESPONSE (the QP is the program's own: `param->qp_num`), REJECTED,
/// UNREACHABLE or CONNECT_ERROR follows. `param` may be NULL. EINVAL without a QP and for
/// private data longer than the transport's.
Status connect(rdma_cm_id* id, rdma_conn_param* param);
/// Completes a connection, after CONNECT_RESPONSE, for an id whose QP the program made itself and
/// named in conn_param. EINVAL while that QP is in RESET or ERR.
Status establish(rdma_cm_id* id);
/// ESTABLISHED follows. EINVAL unless the id came with a CONNECT_REQUEST not yet answered.
Status accept(rdma_cm_id* id, rdma_conn_param* param);
/// Answers a CONNECT_REQUEST with no; the peer's REJECTED event carries the data.
Status reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_bytes);
/// The same because of its ECE options.
Status reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_bytes);
/// The program saw an asynchronous event of a QP that the CM should know (COMM_EST).
Status notify(rdma_cm_id* id, ibv_event_type event);
/// DISCONNECTED follows on both sides; the QP goes to ERR and its requests are flushed.
Status disconnect(rdma_cm_id* id);

// Queue pairs of an id.

/// QP at `id->qp` on `pd`, or on the default PD of its device if NULL, with CQs of its own where
/// `attr` names none; in INIT. The CM moves it from then on. EINVAL before there is a device.
Status create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr);
Status create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr);
/// No effect on an id without one.
void destroy_qp(rdma_cm_id* id);
Status create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr);
Status create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr);
void destroy_srq(rdma_cm_id* id);
/// Attributes that move a QP of the program's own into `attr->qp_state`.
Status init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* attr_mask);
Status set_local_ece(rdma_cm_id* id, ibv_ece* ece);
Status get_remote_ece(rdma_cm_id* id, ibv_ece* ece);

// Multicast.

Status join_multicast(rdma_cm_id* id, sockaddr* addr, void* context);
Status join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context);
Status leave_multicast(rdma_cm_id* id, sockaddr* addr);

// Events.

/// Blocks for the next event (EAGAIN on a non-blocking channel, EINTR).
Status get_cm_event(rdma_event_channel* channel, rdma_cm_event** event);
/// Frees the event. Each one must be acknowledged, once.
Status ack_cm_event(rdma_cm_event* event);
/// Name of the constant; "UNKNOWN EVENT" for a value that is none. Defined in strings.cc.
const char* event_str(rdma_cm_event_type event) noexcept;

// The rest.

/// In network byte order; 0 when unbound, unconnected, or not an id.
__be16 get_src_port(rdma_cm_id* id) noexcept;
__be16 get_dst_port(rdma_cm_id* id) noexcept;
/// NULL-terminated array of one open context per device; `*num_devices` may be NULL.
Result<ibv_context**> get_devices(int* num_devices);
void free_devices(ibv_context** list);
/// RDMA_OPTION_ID (TOS, REUSEADDR, AFONLY, ACK_TIMEOUT) or RDMA_OPTION_IB; EINVAL for a length
/// that is not the option's, ENOSYS for an unknown level or option.
Status set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen);
/// What the C function returns: 0, a nonzero EAI_* value of the resolver, or -1 with errno set.
int getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                rdma_addrinfo** res);
void freeaddrinfo(rdma_addrinfo* res);

}  // namespace airdma::cm
