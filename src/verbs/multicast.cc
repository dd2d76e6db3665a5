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
Status change_group(ibv_qp* handle, const ibv_gid* gid, std::uint16_t lid, Change change) {
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
  return change(*qp, Qp::Group{group, interface->index, lid});
}

Qpn qpn_of(const Qp& qp) { return Qpn(qp.pub.qp_num); }

bool is_member(const Qp& qp, const Qp::Group& group) {
  return std::ranges::any_of(qp.groups, [&](const Qp::Group& one) {
    return one.gid == group.gid && one.interface_index == group.interface_index;
  });
}

}  // namespace

// A membership that is there already is a success, as with the kernel's devices, and counts once.
// By another LID it is another membership of the same group.
Status attach_mcast(ibv_qp* handle, const ibv_gid* gid, uint16_t lid) {
  return change_group(handle, gid, lid, [](Qp& qp, const Qp::Group& group) {
    if (std::ranges::find(qp.groups, group) != qp.groups.end()) return Status{};
    qp.groups.reserve(qp.groups.size() + 1);
    Status joined;
    if (!is_member(qp, group)) {
      joined = runtime::RocePort::get().join(group.gid, group.interface_index, qpn_of(qp));
    }
    if (joined) qp.groups.push_back(group);
    return joined;
  });
}

Status detach_mcast(ibv_qp* handle, const ibv_gid* gid, uint16_t lid) {
  return change_group(handle, gid, lid, [](Qp& qp, const Qp::Group& group) -> Status {
    if (std::erase(qp.groups, group) == 0) return fail(EINVAL);
    if (is_member(qp, group)) return {};
    return runtime::RocePort::get().leave(group.gid, group.interface_index, qpn_of(qp));
  });
}

void leave_groups(Qp& qp) {
  while (!qp.groups.empty()) {
    const Qp::Group group = qp.groups.back();
    qp.groups.pop_back();
    if (is_member(qp, group)) continue;
    [[maybe_unused]] const Status left =
        runtime::RocePort::get().leave(group.gid, group.interface_index, qpn_of(qp));
  }
}

}  // namespace airdma::verbs
