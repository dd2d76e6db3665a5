// SPDX-License-Identifier: MIT
// Multicast groups of ids on RoCE devices. An IP group is its own GID; nobody is asked, and the
// kernel's IGMP tells the network when a queue pair is attached.
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "verbs/api.h"
#include "verbs/cm_api.h"
#include "verbs/cm_ib.h"

namespace airdma::cm {
namespace {

constexpr std::uint32_t kMulticastQpn = 0xffffff;
constexpr std::uint8_t kHopLimit = 64;  // as the kernel's

ibv_gid gid_of(const io::Address& group) {
  const auto bytes = group.unmapped().gid();
  ibv_gid gid;
  std::memcpy(gid.raw, bytes.data(), bytes.size());
  return gid;
}

Result<ibv_ah_attr> path_to(const Id& id, const ibv_gid& gid) {
  model::AddressVector path;
  path.source.bytes = source_of(id).unmapped().gid();
  std::memcpy(path.destination.bytes.data(), gid.raw, sizeof gid.raw);
  path.hop_limit = kHopLimit;
  path.traffic_class = static_cast<std::uint8_t>(id.options.type_of_service.value_or(0));
  return ah_attr_of(id, path);
}

bool same(const Group& group, const io::Address& address) {
  return group.address.same_host(address);
}

Status check(const Id* id, const io::Address& address) {
  if (id == nullptr || id->pub.verbs == nullptr) return fail(EINVAL);
  if (id->device->transport != verbs::Transport::kRoce) return fail(ENOSYS);
  const bool bound = id->state == IdState::kBound || id->state == IdState::kAddressResolved ||
                     id->state == IdState::kRouteResolved;
  return bound && id->datagram() && !address.is_any() ? Status{} : fail(EINVAL);
}

/// An id may join a group again; its queue pair is attached once.
bool attached(const Id& id, const io::Address& address) {
  return std::ranges::any_of(
      id.groups, [&](const Group& one) { return same(one, address) && one.attached == id.pub.qp; });
}

Status start_joining(Id& id, const io::Address& address, bool attach, void* context) {
  Group group{.address = address, .gid = gid_of(address), .attached = nullptr};
  const auto path = path_to(id, group.gid);
  if (!path) return std::unexpected(path.error());
  EventDetails details{.qp_num = kMulticastQpn, .qkey = kDefaultQkey, .path = *path};
  details.context = context;
  if (attach && id.pub.qp != nullptr && !attached(id, address)) {
    if (auto attached = verbs::attach_mcast(id.pub.qp, &group.gid, 0); !attached) {
      details.status = -attached.error().code;
      report(id, RDMA_CM_EVENT_MULTICAST_ERROR, details);
      return {};
    }
    group.attached = id.pub.qp;
  }
  id.groups.push_back(group);
  report(id, RDMA_CM_EVENT_MULTICAST_JOIN, details);
  return {};
}

void detach(Group& group) {
  // The program may have destroyed the queue pair.
  if (group.attached != nullptr) [[maybe_unused]]
    const auto detached = verbs::detach_mcast(group.attached, &group.gid, 0);
  group.attached = nullptr;
}

Status join(rdma_cm_id* handle, const sockaddr* addr, bool attach, void* context) {
  const auto address = io::Address::from(addr);
  if (!address) return fail(EINVAL);
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (auto allowed = check(id, *address); !allowed) return allowed;
    if (auto started = start_joining(*id, *address, attach, context); !started) return started;
  }
  return complete(handle);
}

}  // namespace

void detach_groups(Id& id) {
  for (Group& group : id.groups) detach(group);
}

void leave_groups(Id& id) {
  detach_groups(id);
  id.groups.clear();
}

Status join_multicast(rdma_cm_id* handle, sockaddr* addr, void* context) {
  return join(handle, addr, true, context);
}

Status join_multicast_ex(rdma_cm_id* handle, rdma_cm_join_mc_attr_ex* attr, void* context) {
  constexpr std::uint32_t kBoth = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if (attr == nullptr || (attr->comp_mask & kBoth) != kBoth) return fail(EINVAL);
  if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return fail(EINVAL);
  if (attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return fail(EINVAL);
  const bool receives = attr->join_flags == RDMA_MC_JOIN_FLAG_FULLMEMBER;
  return join(handle, attr->addr, receives, context);
}

Status leave_multicast(rdma_cm_id* handle, sockaddr* addr) {
  const auto address = io::Address::from(addr);
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || !address) return fail(EINVAL);
  const auto found =
      std::ranges::find_if(id->groups, [&](const Group& one) { return same(one, *address); });
  if (found == id->groups.end()) return fail(EADDRNOTAVAIL);
  ibv_qp* attached = std::exchange(found->attached, nullptr);
  Group left = *found;
  id->groups.erase(found);
  const auto other =
      std::ranges::find_if(id->groups, [&](const Group& one) { return same(one, *address); });
  if (other != id->groups.end() && other->attached == nullptr) {
    other->attached = attached;  // it has joined more than once
  } else {
    left.attached = attached;
    detach(left);
  }
  return {};
}

}  // namespace airdma::cm
