// SPDX-License-Identifier: MIT
// Marks of exported symbols. Names and default versions are in airdma.map.
#pragma once

#include <infiniband/verbs.h>

// The headers hide these functions behind macros that call inline wrappers.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/// A symbol of the C interface.
#define AIRDMA_EXPORT extern "C" __attribute__((visibility("default")))

/// Gives the exported function `function` the older entry `name`@`version`. clang has no
/// attribute for it; GCC's survives link-time optimisation, which the directive does not.
#if defined(__has_attribute) && __has_attribute(symver)
#define AIRDMA_VERSION(function, name, version) \
  extern "C" __attribute__((symver(#name "@" version))) decltype(function) function;
#else
#define AIRDMA_VERSION(function, name, version) __asm__(".symver " #function "," #name "@" version);
#endif
