// SPDX-License-Identifier: MIT
// Thread domains and parent domains. Every object may be used from all threads, so a thread domain
// saves nothing and is only kept count of. A parent domain is its protection domain under another
// handle; its allocator is asked for the rings of completion queues made with it (completion.cc).
#include <cerrno>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kKnownAttributes =
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

Result<ProgramAllocator> allocator_of(const ibv_parent_domain_init_attr& attr) {
  ProgramAllocator memory;
  if ((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
    if (attr.alloc == nullptr || attr.free == nullptr) return fail(EINVAL);
    memory.alloc = attr.alloc;
    memory.free = attr.free;
  }
  if ((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0) {
    memory.context = attr.pd_context;
  }
  return memory;
}

}  // namespace

Result<ibv_td*> alloc_td(ibv_context* handle, ibv_td_init_attr* attr) {
  if (find_object(handle) == nullptr || attr == nullptr) return fail(EINVAL);
  if (attr->comp_mask != 0) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  if (all.contexts.find(handle) == nullptr) return fail(EINVAL);
  Td* td = all.tds.create();
  if (td == nullptr) return fail(ENOMEM);
  td->pub = {.context = handle};
  return &td->pub;
}

Status dealloc_td(ibv_td* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Td* td = all.tds.find(handle);
  if (td == nullptr) return fail(EINVAL);
  if (td->users != 0) return fail(EBUSY);
  all.tds.destroy(td);
  return {};
}

Result<ibv_pd*> alloc_parent_domain(ibv_context* handle, ibv_parent_domain_init_attr* attr) {
  if (find_object(handle) == nullptr || attr == nullptr) return fail(EINVAL);
  if ((attr->comp_mask & ~kKnownAttributes) != 0) return fail(EINVAL);
  const auto memory = allocator_of(*attr);
  if (!memory) return std::unexpected(memory.error());
  State& all = state();
  std::lock_guard lock(all.control);
  Context* context = all.contexts.find(handle);
  Pd* base = all.pds.find(attr->pd);
  Td* td = all.tds.find(attr->td);
  if (context == nullptr || base == nullptr || base->context != context) return fail(EINVAL);
  if (attr->td != nullptr && (td == nullptr || td->pub.context != handle)) return fail(EINVAL);
  DeviceUse& use = all.use_of(*context);
  if (use.pds >= kMaxProtectionDomains) return fail(ENOMEM);
  Pd* pd = all.pds.create();
  if (pd == nullptr) return fail(ENOMEM);
  ++use.pds;
  ++base->users;
  if (td != nullptr) ++td->users;
  pd->context = context;
  pd->id = base->id;
  pd->base = base;
  pd->td = td;
  pd->memory = *memory;
  pd->memory.domain = &pd->pub;
  pd->pub = {.context = handle, .handle = base->pub.handle};
  return &pd->pub;
}

}  // namespace airdma::verbs
