// SPDX-License-Identifier: MIT
// Entries of the first libibverbs (version node IBVERBS_1.0, until 2007). Its contexts, PDs, QPs
// and all other objects had another layout, and inline functions of its headers reached into
// them, so no function of today can stand in for one that takes or gives such an object. Every
// way to an object starts with ibv_get_device_list or ibv_open_device, which fail here; whoever
// calls anything else holds an object that is none. So all of them fail, and none looks at its
// arguments. The entries of that node that take no object have no old twin: they are the ones
// of today. No program built since then names these; they are here for the loader.
//
// ibv_register_driver is how providers of that age announced themselves: accepted, ignored.
#include <errno.h>

#include "abi/export.h"

// (return type, value on failure, name without ibv_)
// clang-format off
#define AIRDMA_LEGACY_ENTRIES(X)            \
  X(void*, nullptr, get_device_list)        \
  X(const char*, nullptr, get_device_name)  \
  X(uint64_t, 0, get_device_guid)           \
  X(void*, nullptr, open_device)            \
  X(int, -1, close_device)                  \
  X(int, EOPNOTSUPP, query_device)          \
  X(int, EOPNOTSUPP, query_port)            \
  X(int, -1, query_gid)                     \
  X(int, -1, query_pkey)                    \
  X(int, -1, get_async_event)               \
  X(void*, nullptr, alloc_pd)               \
  X(int, EOPNOTSUPP, dealloc_pd)            \
  X(void*, nullptr, reg_mr)                 \
  X(int, EOPNOTSUPP, dereg_mr)              \
  X(void*, nullptr, create_cq)              \
  X(int, EOPNOTSUPP, resize_cq)             \
  X(int, EOPNOTSUPP, destroy_cq)            \
  X(int, -1, get_cq_event)                  \
  X(void*, nullptr, create_srq)             \
  X(int, EOPNOTSUPP, modify_srq)            \
  X(int, EOPNOTSUPP, query_srq)             \
  X(int, EOPNOTSUPP, destroy_srq)           \
  X(void*, nullptr, create_qp)              \
  X(int, EOPNOTSUPP, query_qp)              \
  X(int, EOPNOTSUPP, modify_qp)             \
  X(int, EOPNOTSUPP, destroy_qp)            \
  X(void*, nullptr, create_ah)              \
  X(int, EOPNOTSUPP, destroy_ah)            \
  X(int, EOPNOTSUPP, attach_mcast)          \
  X(int, EOPNOTSUPP, detach_mcast)

// (name without ibv_, version)
#define AIRDMA_LEGACY_NO_EFFECT(X)    \
  X(free_device_list, "IBVERBS_1.0")  \
  X(ack_async_event, "IBVERBS_1.0")   \
  X(ack_cq_events, "IBVERBS_1.0")     \
  X(register_driver, "IBVERBS_1.1")

#define AIRDMA_LEGACY_ENTRY(type, failure, name)                   \
  AIRDMA_EXPORT type airdma_legacy_##name(void) noexcept;          \
  AIRDMA_VERSION(airdma_legacy_##name, ibv_##name, "IBVERBS_1.0")  \
  AIRDMA_EXPORT type airdma_legacy_##name(void) noexcept {         \
    errno = EOPNOTSUPP;                                            \
    return failure;                                                \
  }

#define AIRDMA_LEGACY_NOTHING(name, version)                 \
  AIRDMA_EXPORT void airdma_legacy_##name(void) noexcept;    \
  AIRDMA_VERSION(airdma_legacy_##name, ibv_##name, version)  \
  AIRDMA_EXPORT void airdma_legacy_##name(void) noexcept {}
// clang-format on

AIRDMA_LEGACY_ENTRIES(AIRDMA_LEGACY_ENTRY)
AIRDMA_LEGACY_NO_EFFECT(AIRDMA_LEGACY_NOTHING)
