// SPDX-License-Identifier: MIT
// The C functions which inline functions of <infiniband/verbs.h> reach through a context. All
// slots are filled: some of those functions do not look whether theirs is. What a device has
// not answers EOPNOTSUPP, like an empty slot.
#include <cstddef>

#include "abi/adapters.h"
#include "abi/export.h"
#include "verbs/api.h"

namespace airdma::abi {
namespace {

// A slot of a control function: the same parameters, the convention of its return type.
template <auto kFunction>
struct Slot;

template <class... Args, Status (*kFunction)(Args...)>
struct Slot<kFunction> {
  static int call(Args... args) {
    return return_errno([&] { return kFunction(args...); });
  }
};

template <class Object, class... Args, Result<Object*> (*kFunction)(Args...)>
struct Slot<kFunction> {
  static Object* call(Args... args) {
    return return_pointer([&] { return kFunction(args...); });
  }
};

int compat_query_port(ibv_context* context, uint8_t port_num, _compat_ibv_port_attr* attr) {
  return ibv_query_port(context, port_num, attr);
}

// The other _compat_* slots have been unused, and NULL, since functions took their place.
void fill_operations(ibv_context_ops& ops) {
  ops._compat_query_device = Slot<verbs::query_device>::call;
  ops._compat_query_port = compat_query_port;
  ops.alloc_mw = Slot<verbs::alloc_mw>::call;
  ops.bind_mw = Slot<verbs::bind_mw>::call;
  ops.dealloc_mw = Slot<verbs::dealloc_mw>::call;
  ops.poll_cq = verbs::poll_cq;
  ops.req_notify_cq = verbs::req_notify_cq;
  ops.post_srq_recv = verbs::post_srq_recv;
  ops.post_send = verbs::post_send;
  ops.post_recv = verbs::post_recv;
}

void fill_memory(verbs_context& slots) {
  slots.advise_mr = Slot<verbs::advise_mr>::call;
  slots.alloc_null_mr = Slot<verbs::alloc_null_mr>::call;
  slots.reg_dm_mr = Slot<verbs::reg_dm_mr>::call;
  slots.alloc_dm = Slot<verbs::alloc_dm>::call;
  slots.free_dm = Slot<verbs::free_dm>::call;
  slots.alloc_parent_domain = Slot<verbs::alloc_parent_domain>::call;
  slots.alloc_td = Slot<verbs::alloc_td>::call;
  slots.dealloc_td = Slot<verbs::dealloc_td>::call;
}

void fill_queues(verbs_context& slots) {
  slots.create_cq_ex = Slot<verbs::create_cq_ex>::call;
  slots.modify_cq = Slot<verbs::modify_cq>::call;
  slots.create_qp_ex = Slot<verbs::create_qp_ex>::call;
  slots.open_qp = Slot<verbs::open_qp>::call;
  slots.modify_qp_rate_limit = Slot<verbs::modify_qp_rate_limit>::call;
  slots.create_srq_ex = Slot<verbs::create_srq_ex>::call;
  slots.get_srq_num = Slot<verbs::get_srq_num>::call;
  slots.post_srq_ops = verbs::post_srq_ops;
  slots.open_xrcd = Slot<verbs::open_xrcd>::call;
  slots.close_xrcd = Slot<verbs::close_xrcd>::call;
  slots.create_wq = Slot<verbs::create_wq>::call;
  slots.modify_wq = Slot<verbs::modify_wq>::call;
  slots.destroy_wq = Slot<verbs::destroy_wq>::call;
  slots.create_rwq_ind_table = Slot<verbs::create_rwq_ind_table>::call;
  slots.destroy_rwq_ind_table = Slot<verbs::destroy_rwq_ind_table>::call;
}

void fill_steering(verbs_context& slots) {
  slots.ibv_create_flow = Slot<verbs::create_flow>::call;
  slots.ibv_destroy_flow = Slot<verbs::destroy_flow>::call;
  slots.create_flow_action_esp = Slot<verbs::create_flow_action_esp>::call;
  slots.modify_flow_action_esp = Slot<verbs::modify_flow_action_esp>::call;
  slots.destroy_flow_action = Slot<verbs::destroy_flow_action>::call;
  slots.create_counters = Slot<verbs::create_counters>::call;
  slots.destroy_counters = Slot<verbs::destroy_counters>::call;
  slots.attach_counters_point_flow = Slot<verbs::attach_counters_point_flow>::call;
  slots.read_counters = Slot<verbs::read_counters>::call;
}

void fill(verbs_context& slots) {
  slots.query_port = Slot<verbs::query_port>::call;
  slots.query_device_ex = Slot<verbs::query_device_ex>::call;
  slots.query_rt_values = Slot<verbs::query_rt_values>::call;
  fill_memory(slots);
  fill_queues(slots);
  fill_steering(slots);
  fill_operations(slots.context.ops);
  slots.sz = sizeof(slots);
  slots.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

// Runs before the constructors of what is linked against this library.
__attribute__((constructor)) void register_filler() { verbs::set_slot_filler(fill); }

}  // namespace
}  // namespace airdma::abi
