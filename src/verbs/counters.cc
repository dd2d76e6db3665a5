// SPDX-License-Identifier: MIT
// Counters: objects that hold values at the places where something was attached. The one thing that
// can be attached is a flow, and flows steer raw packets, which no device here has: so a program
// can make them, is told ENOTSUP where it attaches, and reads zeroes.
#include <algorithm>
#include <cerrno>

#include "verbs/api.h"
#include "verbs/raw_enum.h"
#include "verbs/state.h"

namespace airdma::verbs {

Result<ibv_counters*> create_counters(ibv_context* handle, ibv_counters_init_attr* attr) {
  if (find_object(handle) == nullptr || attr == nullptr) return fail(EINVAL);
  if (attr->comp_mask != 0) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  if (all.contexts.find(handle) == nullptr) return fail(EINVAL);
  Counters* counters = all.counters.create();
  if (counters == nullptr) return fail(ENOMEM);
  counters->pub = {.context = handle};
  return &counters->pub;
}

Status destroy_counters(ibv_counters* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Counters* counters = all.counters.find(handle);
  if (counters == nullptr) return fail(EINVAL);
  all.counters.destroy(counters);
  return {};
}

Status attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr,
                                  ibv_flow* flow) {
  if (find_object(counters) == nullptr || attr == nullptr) return fail(EINVAL);
  if (attr->comp_mask != 0) return fail(EINVAL);
  if (flow != nullptr) return fail(EINVAL);  // there is none
  const auto what = raw_value(attr->counter_desc);
  if (what != IBV_COUNTER_PACKETS && what != IBV_COUNTER_BYTES) return fail(EINVAL);
  return fail(ENOTSUP);
}

Status read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags) {
  if (find_object(counters) == nullptr || values == nullptr || count == 0) return fail(EINVAL);
  if ((flags & ~std::uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0) return fail(EINVAL);
  std::fill_n(values, count, 0);
  return {};
}

}  // namespace airdma::verbs
