// SPDX-License-Identifier: MIT
// Protection domains and memory regions. Nothing is pinned or locked: memory is a program's own,
// and the kernel pages it as it likes.
#include <sched.h>
#include <unistd.h>

#include <cerrno>

#include "io/fault_handler.h"
#include "verbs/address_range.h"
#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/on_demand.h"
#include "verbs/region.h"
#include "verbs/shared_handles.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
constexpr unsigned kRemoteChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/// Publishes under a random key that is free.
Status publish(State& all, model::Region& region) {
  for (;;) {
    const auto bits = all.random.take();
    if (!bits) return std::unexpected(bits.error());
    if (all.memory.publish(Stag(*bits), region)) return {};
  }
}

}  // namespace

Result<unsigned> check_access(unsigned access) {
  access &= ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  if ((access & ~kKnownAccess) != 0) return fail(EINVAL);
  if ((access & kRemoteChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return fail(EINVAL);
  return access;
}

Result<Mr*> add_region(ibv_pd* pd_handle, const Registration& wanted) {
  State& all = state();
  std::lock_guard lock(all.control);
  Pd* pd = all.pds.find(pd_handle);
  if (pd == nullptr) return fail(EINVAL);
  DeviceUse& use = all.use_of(*pd->context);
  if (use.regions >= kMaxRegions) return fail(ENOMEM);
  Mr* mr = all.mrs.create();
  if (mr == nullptr) return fail(ENOMEM);
  model::Region& region = *(mr->region = all.regions.take());
  region.start = wanted.start;
  region.base = wanted.base;
  region.length = wanted.length;
  region.sink = wanted.sink;
  region.pd = pd->id;
  region.access = wanted.access;
  if (Status published = publish(all, region); !published) {
    all.regions.give_back(&region);
    all.mrs.destroy(mr);
    return std::unexpected(published.error());
  }
  ++use.regions;
  ++pd->users;
  mr->pd = pd;
  mr->backing = wanted.backing;
  mr->fixed = wanted.fixed;
  const std::uint32_t key = region.key.load(std::memory_order_relaxed);
  mr->pub = {.context = pd->pub.context,
             .pd = &pd->pub,
             .addr = wanted.addr,
             .length = wanted.length,
             .handle = ++all.next_handle,
             .lkey = key,
             .rkey = key};
  return mr;
}

namespace {

Result<ibv_mr*> register_memory(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova,
                                unsigned access) {
  if (find_object(pd) == nullptr) return fail(EINVAL);
  const auto rights = check_access(access);
  if (!rights) return std::unexpected(rights.error());
  if (is_implicit(addr, length, *rights)) return register_everything(pd, iova, *rights);
  // Devices map pages: both addresses have the same offset in theirs.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if ((reinterpret_cast<std::uintptr_t>(addr) ^ iova) % page != 0) return fail(EINVAL);
  if (iova + length < iova) return fail(EINVAL);
  if (Status usable = check_memory(addr, length, *rights); !usable) {
    return std::unexpected(usable.error());
  }
  io::watch_faults();
  const bool zero_based = (*rights & IBV_ACCESS_ZERO_BASED) != 0;
  const auto mr = add_region(pd, {.start = static_cast<std::byte*>(addr),
                                  .length = length,
                                  .base = zero_based ? 0 : iova,
                                  .access = *rights,
                                  .addr = addr});
  if (!mr) return std::unexpected(mr.error());
  return &(*mr)->pub;
}

}  // namespace

Result<ibv_pd*> alloc_pd(ibv_context* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Context* context = all.contexts.find(handle);
  if (context == nullptr) return fail(EINVAL);
  DeviceUse& use = all.use_of(*context);
  if (use.pds >= kMaxProtectionDomains) return fail(ENOMEM);
  Pd* pd = all.pds.create();
  if (pd == nullptr) return fail(ENOMEM);
  ++use.pds;
  pd->context = context;
  pd->id = PdId(++all.next_pd);
  pd->pub = {.context = handle, .handle = ++all.next_handle};
  return &pd->pub;
}

void end_domain(State& all, Pd& pd) {
  if (pd.base != nullptr) --pd.base->users;
  if (pd.td != nullptr) --pd.td->users;
  --all.use_of(*pd.context).pds;
  all.pds.destroy(&pd);
}

Status dealloc_pd(ibv_pd* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Pd* pd = all.pds.find(handle);
  if (pd == nullptr) return fail(EINVAL);
  const auto handles = shared_handles(all, *pd);
  for (const Pd* each : handles) {
    if (each->users != 0) return fail(EBUSY);
  }
  for (Pd* each : handles) end_domain(all, *each);
  return {};
}

Result<ibv_mr*> reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return register_memory(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr),
                         static_cast<unsigned>(access));
}

Result<ibv_mr*> reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return register_memory(pd, addr, length, iova, static_cast<unsigned>(access));
}

Result<ibv_mr*> reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                             unsigned access) {
  return register_memory(pd, addr, length, iova, access);
}

namespace {

/// Waits until no access of the region is in progress, and keeps new ones away. False, with all as
/// it was, when windows are bound to it. On success the region stays hidden and `mr` closing.
bool quiesce(Mr& mr, std::unique_lock<std::mutex>& control, bool even_with_windows = false) {
  model::Region& region = *mr.region;
  const auto busy = [&] { return !even_with_windows && region.windows.load() != 0; };
  if (busy()) return false;
  for (Mr* each : shared_handles(state(), mr)) each->closing = true;
  model::MemoryTable::hide(region);
  control.unlock();
  // An access holds its pin for one copy or one system call.
  while (!model::MemoryTable::idle(region)) ::sched_yield();
  control.lock();
  if (!busy()) return true;
  model::MemoryTable::show(region);  // a window was bound meanwhile
  for (Mr* each : shared_handles(state(), mr)) each->closing = false;
  return false;
}

void end_region(State& all, Mr& mr) {
  all.memory.retract(*mr.region);
  all.regions.give_back(mr.region);
  --all.use_of(*mr.pd->context).regions;
  for (Mr* each : shared_handles(all, mr)) end_handle(all, *each);
}

}  // namespace

void end_handle(State& all, Mr& mr) {
  --mr.pd->users;
  all.mrs.destroy(&mr);
}

void tear_down(Mr& mr) {
  State& all = state();
  std::unique_lock lock(all.control);
  if (mr.closing) return;
  if (shared_handles(all, mr).size() > 1) return end_handle(all, mr);
  quiesce(mr, lock, true);
  end_region(all, mr);
}

Status dereg_mr(ibv_mr* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::unique_lock lock(all.control);
  Mr* mr = all.mrs.find(handle);
  if (mr == nullptr || mr->closing) return fail(EINVAL);
  if (!quiesce(*mr, lock)) return fail(EBUSY);
  end_region(all, *mr);
  return {};
}

namespace {

/// What a region becomes.
struct Change {
  int flags = 0;
  void* addr = nullptr;
  std::size_t length = 0;
  unsigned rights = 0;

  [[nodiscard]] bool has(int flag) const { return (flags & flag) != 0; }
};

Result<Change> wanted_change(const Mr& mr, int flags, void* addr, std::size_t length, int access) {
  constexpr int kKnown =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (flags == 0 || (flags & ~kKnown) != 0) return fail(EINVAL);
  if (mr.fixed || mr.shared) return fail(EINVAL);
  Change change{flags, mr.pub.addr, mr.pub.length, mr.region->access};
  if (change.has(IBV_REREG_MR_CHANGE_TRANSLATION)) {
    if (addr == nullptr || length == 0) return fail(EINVAL);
    change.addr = addr;
    change.length = length;
  }
  if (change.has(IBV_REREG_MR_CHANGE_ACCESS)) {
    const auto rights = check_access(static_cast<unsigned>(access));
    if (!rights) return std::unexpected(rights.error());
    change.rights = *rights;
  } else if (access != 0) {
    return fail(EINVAL);
  }
  return change;
}

void apply(Mr& mr, const Change& change, Pd* pd) {
  model::Region& region = *mr.region;
  const bool zero_based = (change.rights & IBV_ACCESS_ZERO_BASED) != 0;
  const bool was_zero_based = (region.access & IBV_ACCESS_ZERO_BASED) != 0;
  if (change.has(IBV_REREG_MR_CHANGE_TRANSLATION) || zero_based != was_zero_based) {
    region.base = zero_based ? 0 : reinterpret_cast<std::uintptr_t>(change.addr);
  }
  region.start = static_cast<std::byte*>(change.addr);
  region.length = change.length;
  region.access = change.rights;
  mr.pub.addr = change.addr;
  mr.pub.length = change.length;
  if (pd == nullptr) return;
  --mr.pd->users;
  ++pd->users;
  mr.pd = pd;
  region.pd = pd->id;
  mr.pub.pd = &pd->pub;
}

}  // namespace

// The keys stay: devices may change them, and need not. Whatever is refused leaves the region as it
// was.
Status rereg_mr(ibv_mr* handle, int flags, ibv_pd* pd_handle, void* addr, size_t length,
                int access) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::unique_lock lock(all.control);
  Mr* mr = all.mrs.find(handle);
  if (mr == nullptr || mr->closing) return fail(EINVAL);
  const auto change = wanted_change(*mr, flags, addr, length, access);
  if (!change) return std::unexpected(change.error());
  Pd* pd = nullptr;
  if (change->has(IBV_REREG_MR_CHANGE_PD)) {
    pd = all.pds.find(pd_handle);
    if (pd == nullptr || pd->pub.context != mr->pub.context) return fail(EINVAL);
  }
  if (Status usable = check_memory(change->addr, change->length, change->rights); !usable) {
    return usable;
  }
  if (pd != nullptr) ++pd->users;  // it must outlast the wait
  const bool quiet = quiesce(*mr, lock);
  if (pd != nullptr) --pd->users;
  if (!quiet) return fail(EBUSY);
  apply(*mr, *change, pd);
  mr->closing = false;
  model::MemoryTable::show(*mr->region);
  return {};
}

}  // namespace airdma::verbs
