// SPDX-License-Identifier: MIT
// Memory windows. Binding and invalidating are work requests (post.cc); here is what makes and ends
// a window.
#include <cerrno>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/raw_enum.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

/// Publishes under a random key whose first 24 bits no other key has.
Result<std::uint32_t> publish(State& all, model::Region& window) {
  for (;;) {
    const auto bits = all.random.take();
    if (!bits) return std::unexpected(bits.error());
    if (all.memory.publish_window(Stag(*bits), window)) return *bits;
  }
}

}  // namespace

Result<ibv_mw*> alloc_mw(ibv_pd* pd_handle, ibv_mw_type type) {
  const auto raw_type = raw_value(type);
  if (raw_type != IBV_MW_TYPE_1 && raw_type != IBV_MW_TYPE_2) return fail(EINVAL);
  if (find_object(pd_handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Pd* pd = all.pds.find(pd_handle);
  if (pd == nullptr) return fail(EINVAL);
  DeviceUse& use = all.use_of(*pd->context);
  if (use.windows >= kMaxWindows) return fail(ENOMEM);
  Mw* mw = all.mws.create();
  if (mw == nullptr) return fail(ENOMEM);
  mw->region = all.regions.take();
  mw->region->pd = pd->id;
  mw->region->kind =
      type == IBV_MW_TYPE_1 ? model::RegionKind::kWindow1 : model::RegionKind::kWindow2;
  const auto key = publish(all, *mw->region);
  if (!key) {
    all.regions.give_back(mw->region);
    all.mws.destroy(mw);
    return std::unexpected(key.error());
  }
  ++use.windows;
  ++pd->users;
  mw->pd = pd;
  mw->pub = {.context = pd->pub.context,
             .pd = &pd->pub,
             .rkey = *key,
             .handle = ++all.next_handle,
             .type = type};
  return &mw->pub;
}

void tear_down(Mw& mw) {
  State& all = state();
  std::lock_guard lock(all.control);
  all.memory.retract_window(*mw.region);
  all.regions.give_back(mw.region);
  --mw.pd->users;
  --all.use_of(*mw.pd->context).windows;
  all.mws.destroy(&mw);
}

Status dealloc_mw(ibv_mw* handle) {
  Mw* mw = find_object(handle);
  if (mw == nullptr) return fail(EINVAL);
  tear_down(*mw);
  return {};
}

void unbind_windows(State& all, Qpn qpn) {
  all.mws.for_each([&](Mw& mw) { all.memory.unbind_from(*mw.region, qpn); });
}

}  // namespace airdma::verbs
