// SPDX-License-Identifier: MIT
// The node IBVERBS_PRIVATE_34: what libibverbs 44.0 offers to its own providers. Programs never
// call it, but they link libmlx5, libefa, libmlx4 or libmana, whose symbols the loader looks up
// here and whose constructors register their driver. There is no driver of a kernel device under
// airdma, so registering has no effect and everything else fails.
//
// The number of the node, and the names in it, are those of one release: another release is
// another list.
#include <errno.h>

#include "abi/export.h"

// Commands to the kernel. All return 0 or errno.
// clang-format off
#define AIRDMA_KERNEL_COMMANDS(X)    \
  X(ibv_cmd_advise_mr)               \
  X(ibv_cmd_alloc_dm)                \
  X(ibv_cmd_alloc_mw)                \
  X(ibv_cmd_alloc_pd)                \
  X(ibv_cmd_attach_mcast)            \
  X(ibv_cmd_close_xrcd)              \
  X(ibv_cmd_create_ah)               \
  X(ibv_cmd_create_counters)         \
  X(ibv_cmd_create_cq)               \
  X(ibv_cmd_create_cq_ex)            \
  X(ibv_cmd_create_flow)             \
  X(ibv_cmd_create_flow_action_esp)  \
  X(ibv_cmd_create_qp)               \
  X(ibv_cmd_create_qp_ex)            \
  X(ibv_cmd_create_qp_ex2)           \
  X(ibv_cmd_create_rwq_ind_table)    \
  X(ibv_cmd_create_srq)              \
  X(ibv_cmd_create_srq_ex)           \
  X(ibv_cmd_create_wq)               \
  X(ibv_cmd_dealloc_mw)              \
  X(ibv_cmd_dealloc_pd)              \
  X(ibv_cmd_dereg_mr)                \
  X(ibv_cmd_destroy_ah)              \
  X(ibv_cmd_destroy_counters)        \
  X(ibv_cmd_destroy_cq)              \
  X(ibv_cmd_destroy_flow)            \
  X(ibv_cmd_destroy_flow_action)     \
  X(ibv_cmd_destroy_qp)              \
  X(ibv_cmd_destroy_rwq_ind_table)   \
  X(ibv_cmd_destroy_srq)             \
  X(ibv_cmd_destroy_wq)              \
  X(ibv_cmd_detach_mcast)            \
  X(ibv_cmd_free_dm)                 \
  X(ibv_cmd_get_context)             \
  X(ibv_cmd_modify_cq)               \
  X(ibv_cmd_modify_flow_action_esp)  \
  X(ibv_cmd_modify_qp)               \
  X(ibv_cmd_modify_qp_ex)            \
  X(ibv_cmd_modify_srq)              \
  X(ibv_cmd_modify_wq)               \
  X(ibv_cmd_open_qp)                 \
  X(ibv_cmd_open_xrcd)               \
  X(ibv_cmd_post_recv)               \
  X(ibv_cmd_post_send)               \
  X(ibv_cmd_post_srq_recv)           \
  X(ibv_cmd_query_context)           \
  X(ibv_cmd_query_device_any)        \
  X(ibv_cmd_query_mr)                \
  X(ibv_cmd_query_port)              \
  X(ibv_cmd_query_qp)                \
  X(ibv_cmd_query_srq)               \
  X(ibv_cmd_read_counters)           \
  X(ibv_cmd_reg_dm_mr)               \
  X(ibv_cmd_reg_dmabuf_mr)           \
  X(ibv_cmd_reg_mr)                  \
  X(ibv_cmd_req_notify_cq)           \
  X(ibv_cmd_rereg_mr)                \
  X(ibv_cmd_resize_cq)               \
  X(execute_ioctl)

// What returns -1 with errno: a count of completions, the length of a file.
#define AIRDMA_PRIVATE_COUNTS(X)  \
  X(ibv_cmd_poll_cq)              \
  X(ibv_read_ibdev_sysfs_file)

// What returns a context or NULL with errno.
#define AIRDMA_PRIVATE_OPENERS(X)   \
  X(_verbs_init_and_alloc_context)  \
  X(verbs_open_device)

// What returns nothing: the driver's registration, its parts of objects, its log.
#define AIRDMA_PRIVATE_NO_EFFECT(X)  \
  X(verbs_register_driver_34)        \
  X(verbs_set_ops)                   \
  X(verbs_init_cq)                   \
  X(verbs_uninit_context)            \
  X(__verbs_log)

#define AIRDMA_RETURN_ERRNO(name)          \
  AIRDMA_EXPORT int name(void) noexcept {  \
    errno = EOPNOTSUPP;                    \
    return EOPNOTSUPP;                     \
  }
#define AIRDMA_RETURN_MINUS_ONE(name)      \
  AIRDMA_EXPORT int name(void) noexcept {  \
    errno = EOPNOTSUPP;                    \
    return -1;                             \
  }
#define AIRDMA_RETURN_NULL(name)             \
  AIRDMA_EXPORT void* name(void) noexcept {  \
    errno = EOPNOTSUPP;                      \
    return nullptr;                          \
  }
#define AIRDMA_RETURN_NOTHING(name)          \
  AIRDMA_EXPORT void name(void) noexcept {}
// clang-format on

AIRDMA_KERNEL_COMMANDS(AIRDMA_RETURN_ERRNO)
AIRDMA_PRIVATE_COUNTS(AIRDMA_RETURN_MINUS_ONE)
AIRDMA_PRIVATE_OPENERS(AIRDMA_RETURN_NULL)
AIRDMA_PRIVATE_NO_EFFECT(AIRDMA_RETURN_NOTHING)

// Number of attributes of a command: the caller's, as if it had no command buffer.
AIRDMA_EXPORT unsigned __ioctl_final_num_attrs(unsigned num_attrs, void*) noexcept {
  return num_attrs;
}

// A provider's question whether a vanished device lets objects go: never, there is none.
extern "C" {
__attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy;
}
