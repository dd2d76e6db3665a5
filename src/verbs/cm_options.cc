// SPDX-License-Identifier: MIT
// Options of an id, and the calls that an iWARP device has no use for.
#include <errno.h>

#include <cstring>

#include "verbs/cm_api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

template <class T>
Result<T> value_of(const void* optval, size_t optlen) {
  if (optlen != sizeof(T)) return fail(EINVAL);
  T value;
  std::memcpy(&value, optval, sizeof value);
  return value;
}

Status set_type_of_service(Id& id, const void* optval, size_t optlen) {
  auto value = value_of<std::uint8_t>(optval, optlen);
  if (!value) return std::unexpected(value.error());
  id.options.type_of_service = *value;
  return {};
}

Status set_reuse_address(Id& id, const void* optval, size_t optlen) {
  auto value = value_of<int>(optval, optlen);
  if (!value) return std::unexpected(value.error());
  // A socket decides this when it is bound.
  if (id.state != IdState::kIdle) return fail(EINVAL);
  id.options.reuse_address = *value != 0;
  return {};
}

Status set_family_only(Id& id, const void* optval, size_t optlen) {
  auto value = value_of<int>(optval, optlen);
  if (!value) return std::unexpected(value.error());
  if (id.state != IdState::kIdle) return fail(EINVAL);
  id.options.v6_only = *value != 0;
  return {};
}

/// InfiniBand's acknowledgement timeout: TCP has its own, so the value is only checked.
Status set_ack_timeout(const void* optval, size_t optlen) {
  auto value = value_of<std::uint8_t>(optval, optlen);
  if (!value) return std::unexpected(value.error());
  return {};
}

Status set_id_option(Id& id, int optname, const void* optval, size_t optlen) {
  switch (optname) {
    case RDMA_OPTION_ID_TOS:
      return set_type_of_service(id, optval, optlen);
    case RDMA_OPTION_ID_REUSEADDR:
      return set_reuse_address(id, optval, optlen);
    case RDMA_OPTION_ID_AFONLY:
      return set_family_only(id, optval, optlen);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      return set_ack_timeout(optval, optlen);
    default:
      return fail(ENOSYS);
  }
}

/// EINVAL for an id without a device; `error` for one with.
Status refuse(rdma_cm_id* handle, int error) {
  std::lock_guard lock(control().mutex);
  const Id* id = find_id(handle);
  return fail(id == nullptr || id->pub.verbs == nullptr ? EINVAL : error);
}

}  // namespace

Status set_option(rdma_cm_id* handle, int level, int optname, void* optval, size_t optlen) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || optval == nullptr) return fail(EINVAL);
  switch (level) {
    case RDMA_OPTION_ID:
      return set_id_option(*id, optname, optval, optlen);
    case RDMA_OPTION_IB:
      // Path records mean nothing to an iWARP device.
      return fail(optname == RDMA_OPTION_IB_PATH ? EINVAL : ENOSYS);
    default:
      return fail(ENOSYS);
  }
}

// Only a program that connects queue pairs of its own, outside of ids, completes connections
// itself, and iWARP does not have that.
Status establish(rdma_cm_id* handle) { return refuse(handle, EINVAL); }

// A queue pair of an iWARP device is connected before its first message can come.
Status notify(rdma_cm_id* handle, ibv_event_type) {
  std::lock_guard lock(control().mutex);
  const Id* id = find_id(handle);
  if (id == nullptr || id->pub.verbs == nullptr) return fail(EINVAL);
  return {};
}

Status join_multicast(rdma_cm_id* handle, sockaddr* addr, void*) {
  if (!io::Address::from(addr)) return fail(EINVAL);
  return refuse(handle, ENOSYS);
}

Status join_multicast_ex(rdma_cm_id* handle, rdma_cm_join_mc_attr_ex* attr, void* context) {
  constexpr std::uint32_t kBoth = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if (attr == nullptr || (attr->comp_mask & kBoth) != kBoth) return fail(EINVAL);
  if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return fail(EINVAL);
  if (attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return fail(EINVAL);
  return join_multicast(handle, attr->addr, context);
}

Status leave_multicast(rdma_cm_id* handle, sockaddr* addr) {
  std::lock_guard lock(control().mutex);
  if (find_id(handle) == nullptr || !io::Address::from(addr)) return fail(EINVAL);
  return fail(EADDRNOTAVAIL);  // nothing can have been joined
}

}  // namespace airdma::cm
