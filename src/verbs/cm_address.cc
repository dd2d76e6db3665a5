// SPDX-License-Identifier: MIT
// Addresses of an id: binding to local ones, and resolving remote ones to a device.
#include <errno.h>

#include <cstring>

#include "verbs/cm_api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

void set_name(sockaddr_storage& storage, const io::Address& address) {
  std::memset(&storage, 0, sizeof storage);
  std::memcpy(&storage, address.raw(), address.length());
}

io::Address name_in(const sockaddr& address) {
  return io::Address::from(&address).value_or(io::Address{});
}

/// The kernel's RDMA CM tells a wildcard that collides with a used port from a specific address
/// that does.
int bind_error(int error, const io::Address& address) {
  return error == EADDRINUSE && address.is_any() ? EADDRNOTAVAIL : error;
}

/// A wildcard destination is this host, over its loopback interface.
io::Address reachable(const io::Address& destination, const io::Address& source) {
  if (!destination.is_any()) return destination;
  io::Address host = source;
  host.set_port(destination.port());
  return host;
}

Status bind_at(Id& id, const io::Address& address, const Device* device) {
  // Limit: RDMA_PS_UDP shares the numbers of RDMA_PS_TCP here; no datagram service runs on it.
  auto socket = io::TcpSocket::bound(address, id.options);
  if (!socket) return fail(bind_error(socket.error().code, address), socket.error().call);
  id.socket = std::move(*socket);
  set_source(id, id.socket.local_address());
  if (device != nullptr) use_device(id, *device);
  id.state = IdState::kBound;
  return {};
}

struct Resolved {
  io::Address source;
  const Device* device;
};

Result<Resolved> resolve(const io::Address& destination, const io::Address& wanted_source) {
  if (wanted_source.family() != 0 && wanted_source.family() != destination.family()) {
    return fail(EINVAL);
  }
  const bool any = wanted_source.family() == 0 || wanted_source.is_any();
  auto source = any ? source_towards(destination) : io::source_for(destination, wanted_source);
  if (!source) return std::unexpected(source.error());
  auto device = device_at(*source);
  if (!device) return std::unexpected(device.error());
  return Resolved{*source, *device};
}

Status start_resolving(Id& id, const sockaddr* src_addr, const io::Address& destination) {
  const bool bound = id.state == IdState::kBound;
  const auto given = io::Address::from(src_addr);
  check_host();
  if (src_addr != nullptr && !given) return fail(EINVAL);
  auto resolved = resolve(destination, bound ? source_of(id) : given.value_or(io::Address{}));
  if (!resolved) return std::unexpected(resolved.error());
  io::Address local = resolved->source;
  if (bound) {
    local.set_port(source_of(id).port());
    set_source(id, local);
  } else {
    local.set_port(given ? given->port() : 0);
    if (id.pub.ps == RDMA_PS_IPOIB) return fail(EINVAL);
    if (auto done = bind_at(id, local, resolved->device); !done) return done;
  }
  use_device(id, *resolved->device);
  set_destination(id, reachable(destination, local));
  id.state = IdState::kAddressResolved;
  report(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  return {};
}

}  // namespace

io::Address source_of(const Id& id) { return name_in(id.pub.route.addr.src_addr); }
io::Address destination_of(const Id& id) { return name_in(id.pub.route.addr.dst_addr); }
void set_source(Id& id, const io::Address& address) {
  set_name(id.pub.route.addr.src_storage, address);
}
void set_destination(Id& id, const io::Address& address) {
  set_name(id.pub.route.addr.dst_storage, address);
}

Status bind(Id& id, const io::Address& address) {
  if (id.pub.ps == RDMA_PS_IPOIB) return fail(EINVAL);
  const Device* device = nullptr;
  if (!address.is_any()) {
    check_host();
    auto found = device_at(address);
    if (!found) {
      const int error = found.error().code;
      return fail(error == ENODEV ? EADDRNOTAVAIL : error);
    }
    device = *found;
  }
  return bind_at(id, address, device);
}

Status bind_addr(rdma_cm_id* handle, sockaddr* addr) {
  const auto address = io::Address::from(addr);
  if (!address) return fail(EINVAL);
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || id->state != IdState::kIdle) return fail(EINVAL);
  return bind(*id, *address);
}

// Limit: `timeout_ms` bounds nothing, because the answer comes from the host's own tables at once;
// a neighbour that does not answer shows when connecting.
Status resolve_addr(rdma_cm_id* handle, sockaddr* src_addr, sockaddr* dst_addr, int) {
  const auto destination = io::Address::from(dst_addr);
  if (!destination) return fail(EINVAL);
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr) return fail(EINVAL);
    if (id->state != IdState::kIdle && id->state != IdState::kBound) return fail(EINVAL);
    if (auto started = start_resolving(*id, src_addr, *destination); !started) return started;
  }
  return complete(handle);
}

Status resolve_route(rdma_cm_id* handle, int) {
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr || id->state != IdState::kAddressResolved) return fail(EINVAL);
    id->state = IdState::kRouteResolved;
    report(*id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  return complete(handle);
}

__be16 get_src_port(rdma_cm_id* handle) noexcept {
  std::lock_guard lock(control().mutex);
  Id* id = control().ids.find(handle);
  if (id == nullptr) return 0;
  const io::Address address = source_of(*id);
  return address.family() != 0 ? htons(address.port()) : __be16{0};
}

__be16 get_dst_port(rdma_cm_id* handle) noexcept {
  std::lock_guard lock(control().mutex);
  Id* id = control().ids.find(handle);
  if (id == nullptr) return 0;
  const io::Address address = destination_of(*id);
  return address.family() != 0 ? htons(address.port()) : __be16{0};
}

}  // namespace airdma::cm
