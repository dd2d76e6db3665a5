// SPDX-License-Identifier: MIT
// Multicast groups of datagram queue pairs.
#include <algorithm>
#include <cerrno>
#include <mutex>

#include "runtime/roce_port.h"
#include "verbs/address_path.h"
#include "verbs/api.h"
#include "verbs/queue_pair.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

/// Calls `change(queue pair, group)` of a queue pair that may be in groups, with `control` held.
template <class Change>
Status change_group(ibv_qp* handle, const ibv_gid* gid, Change change) {
  if (find_object(handle) == nullptr || gid == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Qp* qp = all.qps.find(handle);
  if (qp == nullptr) return fail(EINVAL);
  if (qp->packets == nullptr) return fail(EOPNOTSUPP);
  const model::Gid group = group_of(*gid);
  if (qp->type != model::QpType::kUd || !group.is_multicast()) return fail(EINVAL);
  const auto interface = qp->context->device->look();
  if (!interface) return fail(ENODEV);
  return change(*qp, Qp::Group{group, interface->index});
}

}  // namespace

// A membership that is there already is a success, as with the kernel's devices, and counts once.
Status attach_mcast(ibv_qp* handle, const ibv_gid* gid, uint16_t) {
  return change_group(handle, gid, [](Qp& qp, const Qp::Group& group) {
    if (std::ranges::find(qp.groups, group) != qp.groups.end()) return Status{};
    qp.groups.reserve(qp.groups.size() + 1);
    Status joined =
        runtime::RocePort::get().join(group.gid, group.interface_index, Qpn(qp.pub.qp_num));
    if (joined) qp.groups.push_back(group);
    return joined;
  });
}

Status detach_mcast(ibv_qp* handle, const ibv_gid* gid, uint16_t) {
  return change_group(handle, gid, [](Qp& qp, const Qp::Group& group) -> Status {
    if (std::erase(qp.groups, group) == 0) return fail(EINVAL);
    return runtime::RocePort::get().leave(group.gid, group.interface_index, Qpn(qp.pub.qp_num));
  });
}

void leave_groups(Qp& qp) {
  for (const Qp::Group& group : qp.groups) {
    [[maybe_unused]] const Status left =
        runtime::RocePort::get().leave(group.gid, group.interface_index, Qpn(qp.pub.qp_num));
  }
  qp.groups.clear();
}

}  // namespace airdma::verbs
