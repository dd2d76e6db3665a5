// SPDX-License-Identifier: MIT
// What the ibv_* functions mean, in C++: one declaration per function of <infiniband/verbs.h>,
// those that it reaches through ibv_context.ops and struct verbs_context included. Parameters
// are the public function's; a failure is an errno value in the Result, which src/abi turns into
// the C convention (0/errno, NULL+errno, -1+errno) of that function.
//
// Rules for all of them: NULL, destroyed and foreign handles and NULL output pointers are
// EINVAL, and so are a parent's handles in a fork() child (devices excepted: they belong to the
// host; and with them query_device, query_device_ex and alloc_dm); memory that cannot be had is
// ENOMEM; none of them crashes. Output parameters are written on success only.
// What this release has no implementation of answers EOPNOTSUPP (unsupported.cc).
//
// Programs cancel threads (rping does, in its event loops). src/abi turns cancellation off during
// every call; get_async_event, get_cq_event, cm::get_cm_event and cm::get_request sleep outside of
// the library's frames (base/event_wait.h). The data path (post_*, poll_cq, req_notify_cq)
// is called through its slots with nothing in between, and is noexcept: what it calls must be no
// cancellation point (raw syscall() is none, recv() and sendmsg() are), or the program aborts.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/event_wait.h"
#include "base/memory_reserve.h"
#include "base/result.h"

namespace airdma::verbs {

// Devices and contexts.

/// NULL-terminated array of devices, `*num_devices` (may be NULL) its length; an empty list is a
/// success. Device pointers stay valid while the list is held or a context is open on them.
/// Providers' libraries (mlx5dv_is_supported, efadv_query_device) look at the pointer behind the
/// ibv_device to tell whether it is theirs: memory there must be ours, and NULL is safe.
Result<ibv_device**> get_device_list(int* num_devices);
/// Frees the array; NULL is allowed.
void free_device_list(ibv_device** list);
/// Name such as "iwarp_eth0"; EINVAL for NULL.
Result<const char*> get_device_name(ibv_device* device);
/// GUID in network byte order. EINVAL for a device that is not ours.
Result<__be64> get_device_guid(ibv_device* device);
/// Index of the device, unique among those that exist, >= 1 (the kernel's are per host).
Result<int> get_device_index(ibv_device* device);
/// New context, an object of its own each time. Its slots are filled by fill_context_slots().
Result<ibv_context*> open_device(ibv_device* device);
/// Frees the context; what the program still holds on it becomes invalid.
Status close_device(ibv_context* context);
/// Attributes of the device.
Status query_device(ibv_context* context, ibv_device_attr* attr);
/// The same and the extended ones: writes at most `attr_bytes` of `*attr`, which the caller's
/// headers define; EINVAL when `input` asks for something unknown or `attr_bytes` is too small
/// for the plain attributes.
Status query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attr, size_t attr_bytes);
/// Port attributes, the first `attr_bytes` of them (callers' headers may be older or newer than
/// ours; what lies behind our struct is zeroed). EINVAL for a port number other than 1.
Status query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attr, size_t attr_bytes);
/// GID table entry; an unused one is all zero. EINVAL for an index outside the table.
Status query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid);
/// GID with its type and interface; ENODATA for an unused entry, EINVAL for unknown flags.
Status query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index,
                    ibv_gid_entry* entry, uint32_t flags, size_t entry_bytes);
/// Up to `max_entries` used entries of all ports, `entry_bytes` apart; the number of them.
/// EINVAL when there are more, or for unknown flags.
Result<ssize_t> query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                                uint32_t flags, size_t entry_bytes);
/// Partition key, in network byte order. EINVAL for an index outside the table.
Status query_pkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey);
/// Index of `pkey` (network byte order) in the table; ENOENT (as EINVAL would hide it) if none.
Result<int> get_pkey_index(ibv_context* context, uint8_t port_num, __be16 pkey);
/// Clock of the device: what completions are stamped with, split into seconds and nanoseconds.
Status query_rt_values(ibv_context* context, ibv_values_ex* values);

/// Blocks until an asynchronous event is there (EAGAIN on a non-blocking async_fd, EINTR).
Status get_async_event(ibv_context* context, ibv_async_event* event);
/// Acknowledges one event. Destroying the object of an unacknowledged event waits for this.
void ack_async_event(ibv_async_event* event);

/// Puts the C functions of every slot into a new context, and the fields which tell inline
/// functions that there are slots (`sz`, `abi_compat`). open_device() calls it before anybody
/// sees the context; without a registered filler (unit tests) all slots stay NULL.
void fill_context_slots(verbs_context& context);
/// Registered once, by src/abi while the library is loaded: it owns the C side of the slots.
void set_slot_filler(void (*filler)(verbs_context& context)) noexcept;

// Protection domains and memory.

Result<ibv_pd*> alloc_pd(ibv_context* context);
/// EBUSY while a memory region, QP, ... is on it.
Status dealloc_pd(ibv_pd* pd);
/// Registers [addr, addr + length) under the address it has. `access`: IBV_ACCESS_* bits;
/// EINVAL for unknown bits outside IBV_ACCESS_OPTIONAL_RANGE, or REMOTE_WRITE / REMOTE_ATOMIC
/// without LOCAL_WRITE; EFAULT when the memory is not mapped as the access wants it.
Result<ibv_mr*> reg_mr(ibv_pd* pd, void* addr, size_t length, int access);
/// The same; remote peers (and local keys) address its first byte as `iova`.
Result<ibv_mr*> reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access);
/// The same; callers pass optional access bits, which are masked when unsupported.
Result<ibv_mr*> reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access);
/// Region over a dma-buf descriptor.
Result<ibv_mr*> reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                              int access);
/// Changes what IBV_REREG_MR_CHANGE_* `flags` name. The old region stays valid on failure.
Status rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access);
/// EBUSY while a memory window is bound to it. Once it returned, no access by its keys follows.
Status dereg_mr(ibv_mr* mr);
/// Region whose reads give zeroes and whose writes vanish.
Result<ibv_mr*> alloc_null_mr(ibv_pd* pd);
/// Prefetch hint; `sg_list` has `num_sge` entries, all of regions on demand. The errors are those
/// of ibv_advise_mr(3); nothing was prefetched when one entry is bad.
Status advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sg_list,
                 uint32_t num_sge);
Result<ibv_mw*> alloc_mw(ibv_pd* pd, ibv_mw_type type);
/// Posts the bind of a type 1 window. EINVAL for other types, EPERM when PDs differ.
Status bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
Status dealloc_mw(ibv_mw* mw);
/// Device memory: of the host, max_dm_size bytes per device (ENOMEM above). EBUSY to free it while
/// a region is over it. A region over it has offsets for addresses, and IBV_ACCESS_ZERO_BASED.
Result<ibv_dm*> alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
Status free_dm(ibv_dm* dm);
Result<ibv_mr*> reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t dm_offset, size_t length,
                          unsigned access);
/// Thread domains and parent domains. EBUSY to end what a parent domain is made of.
Result<ibv_td*> alloc_td(ibv_context* context, ibv_td_init_attr* attr);
Status dealloc_td(ibv_td* td);
Result<ibv_pd*> alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);
/// Contexts by a duplicate of their command descriptor, which is the new context's on success, and
/// their objects by number. EOPNOTSUPP for a descriptor of another process, EINVAL for another
/// file and for a number of no object. What ends an object ends all its handles; unimport ends one,
/// but not the last one or one in use.
Result<ibv_context*> import_device(int cmd_fd);
Result<ibv_pd*> import_pd(ibv_context* context, uint32_t pd_handle);
void unimport_pd(ibv_pd* pd);
Result<ibv_mr*> import_mr(ibv_pd* pd, uint32_t mr_handle);
void unimport_mr(ibv_mr* mr);
Result<ibv_dm*> import_dm(ibv_context* context, uint32_t dm_handle);
void unimport_dm(ibv_dm* dm);

// Completion.

Result<ibv_comp_channel*> create_comp_channel(ibv_context* context);
/// EBUSY while a CQ uses it.
Status destroy_comp_channel(ibv_comp_channel* channel);
/// At least `cqe` entries (EINVAL for <= 0 or above max_cqe); `channel` may be NULL;
/// `comp_vector` < num_comp_vectors, else EINVAL.
Result<ibv_cq*> create_cq(ibv_context* context, int cqe, void* cq_context,
                          ibv_comp_channel* channel, int comp_vector);
/// The same with functions for ibv_start_poll and ibv_wc_read_*. EOPNOTSUPP for fields and flags
/// that the device has not (VLAN, flow tag, tag matching), EINVAL for unknown attributes and for
/// what is no parent domain of the context. A parent domain's allocator gives the entries' memory.
Result<ibv_cq_ex*> create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
/// At least `cqe` entries from now on. EINVAL below what it holds.
Status resize_cq(ibv_cq* cq, int cqe);
/// Event moderation.
Status modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
/// EBUSY while a QP uses it; else waits until all its events are acknowledged.
Status destroy_cq(ibv_cq* cq);
/// Blocks until a CQ of the channel has an event (EAGAIN on a non-blocking channel, EINTR).
Status get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
/// Acknowledges `nevents` events.
void ack_cq_events(ibv_cq* cq, unsigned nevents);
/// Slot `poll_cq`: up to `num_entries` completions into `wc`; their number, negative on failure.
int poll_cq(ibv_cq* cq, int num_entries, ibv_wc* wc) noexcept;
/// Slot `req_notify_cq`: the next (solicited) completion makes an event. 0 or errno.
int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept;

// Queue pairs.

/// QP in RESET; `attr->cap` becomes what was granted. EINVAL for a missing CQ or PD, more than
/// the device has, unknown types; EOPNOTSUPP for types that the device has not.
Result<ibv_qp*> create_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
/// The same, ready for ibv_wr_* when it says for which operations. EOPNOTSUPP for attributes, flags
/// and operations that the device has not; EINVAL for unknown attributes.
Result<ibv_qp*> create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
/// Shared (XRC target) QP of another process.
Result<ibv_qp*> open_qp(ibv_context* context, ibv_qp_open_attr* attr);
/// The extended posting interface of `qp`; NULL when it was made without one.
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept;
/// `attr_mask`: IBV_QP_* bits. EINVAL for a transition, attribute or value that its table
/// refuses, and then nothing has changed.
Status modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask);
/// All attributes (a mask is a hint only), and how it was created if `init_attr` is not NULL.
Status query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr);
/// True if data of `op` is written to memory in order.
bool query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) noexcept;
Status modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);
/// Waits until its asynchronous events are acknowledged. EBUSY while attached to multicast.
Status destroy_qp(ibv_qp* qp);
/// Slots `post_send` and `post_recv`: 0, or errno with `*bad_wr` the first request that was not
/// taken (those before it are): EINVAL for a bad request or state, ENOMEM for a full queue.
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) noexcept;
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept;
/// Enhanced connection establishment options.
Status set_ece(ibv_qp* qp, ibv_ece* ece);
Status query_ece(ibv_qp* qp, ibv_ece* ece);

// Shared receive queues, XRC domains, work queues.

/// Up to max_srq_wr receives of up to max_srq_sge pieces (EINVAL above, for no receives at all, or
/// for a limit above max_wr). Buffers belong to `pd`, which need not be that of the queue pairs.
Result<ibv_srq*> create_srq(ibv_pd* pd, ibv_srq_init_attr* attr);
/// EOPNOTSUPP for XRC and tag matching.
Result<ibv_srq*> create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
/// `attr_mask`: IBV_SRQ_MAX_WR resizes, IBV_SRQ_LIMIT arms the limit event. EINVAL for other bits,
/// a size below what the queue holds, or a limit above the size; nothing has changed then.
Status modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask);
Status query_srq(ibv_srq* srq, ibv_srq_attr* attr);
/// XRC only.
Status get_srq_num(ibv_srq* srq, uint32_t* srq_num);
/// EBUSY while a queue pair uses it; else waits until its events are acknowledged.
Status destroy_srq(ibv_srq* srq);
/// Slots: 0, or errno with `*bad_wr` the first request that was not taken.
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept;
int post_srq_ops(ibv_srq* srq, ibv_ops_wr* op, ibv_ops_wr** bad_op) noexcept;
Result<ibv_xrcd*> open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
Status close_xrcd(ibv_xrcd* xrcd);
Result<ibv_wq*> create_wq(ibv_context* context, ibv_wq_init_attr* attr);
Status modify_wq(ibv_wq* wq, ibv_wq_attr* attr);
Status destroy_wq(ibv_wq* wq);
Result<ibv_rwq_ind_table*> create_rwq_ind_table(ibv_context* context,
                                                ibv_rwq_ind_table_init_attr* attr);
Status destroy_rwq_ind_table(ibv_rwq_ind_table* table);

// Address handles and multicast.

/// EINVAL for a port, GID index or attribute that does not exist.
Result<ibv_ah*> create_ah(ibv_pd* pd, ibv_ah_attr* attr);
/// Attributes that answer the sender of `wc`; `grh` is read if the completion says it is valid.
Status init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                       ibv_ah_attr* attr);
Result<ibv_ah*> create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num);
Status destroy_ah(ibv_ah* ah);
/// Ethernet address (6 bytes) and VLAN id (0xffff: none) behind the GID of `attr`.
Status resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t* eth_mac,
                               uint16_t* vid);
/// UD only; `lid` is in host byte order.
Status attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);
Status detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);

// Flow steering and counters.

Result<ibv_flow*> create_flow(ibv_qp* qp, ibv_flow_attr* attr);
Status destroy_flow(ibv_flow* flow);
Result<ibv_flow_action*> create_flow_action_esp(ibv_context* context,
                                                ibv_flow_action_esp_attr* attr);
Status modify_flow_action_esp(ibv_flow_action* action, ibv_flow_action_esp_attr* attr);
Status destroy_flow_action(ibv_flow_action* action);
Result<ibv_counters*> create_counters(ibv_context* context, ibv_counters_init_attr* attr);
Status destroy_counters(ibv_counters* counters);
Status attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr,
                                  ibv_flow* flow);
Status read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags);

// fork() (host.cc): a child gets copies of registered pages as of all others, and nothing reads
// the parent's memory but the parent, so these have nothing to do.

Status fork_init();
ibv_fork_status is_fork_initialized() noexcept;
Status dontfork_range(void* base, size_t bytes);
Status dofork_range(void* base, size_t bytes);

// The host's sysfs (host.cc), for programs that look for devices by themselves.

/// Mount point of sysfs; the environment's SYSFS_PATH wins in a program without privileges.
const char* get_sysfs_path() noexcept;
/// Up to `size` bytes of `dir`/`file` without the last newline, NUL-terminated if there is
/// room: their number. ENOENT and the other errors of open and read.
Result<int> read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);

}  // namespace airdma::verbs
