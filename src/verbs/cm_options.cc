// SPDX-License-Identifier: MIT
// Options of an id, and the calls that an iWARP device has no use for.
#include <errno.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "verbs/cm_api.h"
#include "verbs/cm_state.h"
#include "verbs/internal.h"

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
  id.socket.set(id.options);
  return {};
}

Status set_reuse_address(Id& id, const void* optval, size_t optlen) {
  auto value = value_of<int>(optval, optlen);
  if (!value) return std::unexpected(value.error());
  // It may come late, except for a listener, and be taken back before the id is bound.
  const bool allowed = *value != 0 ? id.state != IdState::kListening : id.state == IdState::kIdle;
  if (!allowed) return fail(EINVAL);
  id.options.reuse_address = *value != 0;
  id.socket.set(id.options);
  return {};
}

/// A socket decides whether it takes IPv4 too when it is bound, so it is bound anew.
Status rebind(Id& id, const io::SocketOptions& options) {
  const io::Address local = source_of(id);
  id.socket.close();
  auto socket = io::TcpSocket::bound(local, options);
  const Status outcome = socket ? Status{} : Status(std::unexpected(socket.error()));
  if (!socket) socket = io::TcpSocket::bound(local, id.options);
  if (socket) id.socket = std::move(*socket);
  return outcome;
}

Status set_family_only(Id& id, const void* optval, size_t optlen) {
  auto value = value_of<int>(optval, optlen);
  if (!value) return std::unexpected(value.error());
  if (id.state != IdState::kIdle && id.state != IdState::kBound) return fail(EINVAL);
  io::SocketOptions options = id.options;
  options.v6_only = *value != 0;
  const bool bound_wildcard = id.state == IdState::kBound && source_of(id).is_any();
  if (bound_wildcard && source_of(id).family() == AF_INET6) {
    if (auto bound = rebind(id, options); !bound) return bound;
  }
  id.options = options;
  return {};
}

/// InfiniBand's acknowledgement timeout: TCP has its own, so the value is only shown by the queue
/// pair of the connection.
Status set_ack_timeout(Id& id, const void* optval, size_t optlen) {
  auto value = value_of<std::uint8_t>(optval, optlen);
  if (!value) return std::unexpected(value.error());
  if (id.datagram()) return fail(EINVAL);
  id.ack_timeout = *value;
  if (id.qp() != nullptr) verbs::note_timeout(id.qp(), *value);
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
      return set_ack_timeout(id, optval, optlen);
    default:
      return fail(ENOSYS);
  }
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

// A queue pair of an iWARP device is connected before its first message can come, so COMM_EST says
// nothing new. An id that has no part in a connection cannot be told of one.
Status notify(rdma_cm_id* handle, ibv_event_type event) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  switch (id->state) {
    case IdState::kListening:
    case IdState::kConnecting:
    case IdState::kAnswered:
    case IdState::kRequested:
    case IdState::kAccepted:
    case IdState::kConnected:
    case IdState::kDisconnecting:
    case IdState::kDisconnected:
      return kind_of(*id).notify(*id, event);
    case IdState::kIdle:
    case IdState::kBound:
    case IdState::kAddressResolved:
    case IdState::kRouteResolved:
    case IdState::kClosed:
    case IdState::kDestroying:
      return fail(EINVAL);
  }
  return fail(EINVAL);
}

}  // namespace airdma::cm
