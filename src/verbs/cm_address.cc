// SPDX-License-Identifier: MIT
// Addresses of an id: binding to local ones, and resolving remote ones to a device.
#include <errno.h>

#include <cstring>

#include "model/address_vector.h"
#include "verbs/cm_api.h"
#include "verbs/cm_ib.h"
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

bool is_group(const io::Address& address) {
  return model::Gid{address.unmapped().gid()}.is_multicast();
}

bool on_iwarp(const Device* device) {
  return device == nullptr || device->transport == verbs::Transport::kIwarp;
}

bool on_roce(const Device* device) {
  return device == nullptr ? has_roce() : device->transport == verbs::Transport::kRoce;
}

/// Datagram services are RoCE's alone, where there is RoCE.
bool wants_socket(const Id& id, const Device* device) {
  return on_iwarp(device) && (!id.datagram() || !on_roce(device));
}

Status bind_socket(Id& id, const io::Address& address) {
  // Limit: where there is no RoCE device, RDMA_PS_UDP shares the numbers of RDMA_PS_TCP; no
  // datagram service runs on it.
  auto socket = io::TcpSocket::bound(address, id.options);
  if (!socket) return fail(bind_error(socket.error().code, address), socket.error().call);
  id.socket = std::move(*socket);
  set_source(id, id.socket.local_address());
  return {};
}

bool is_link_local(const io::Address& address) {
  return address.family() == AF_INET6 && model::Gid{address.gid()}.is_link_local();
}

/// Other ids that hold the port in the id's port space, without those that have connections.
template <class Visit>
void for_each_holder(const Id& id, std::uint16_t port, Visit visit) {
  control().ids.for_each([&](Id& other) {
    const bool holds = other.state == IdState::kBound || other.state == IdState::kListening;
    if (&other == &id || !holds || other.pub.ps != id.pub.ps) return;
    if (source_of(other).port() == port) visit(other);
  });
}

/// Whether all of this process that have the port of the same address let others have it, too.
bool shares_port(const Id& id, const io::Address& address) {
  if (!id.options.reuse_address) return false;
  bool any = false;
  bool all = true;
  for_each_holder(id, address.port(), [&](const Id& other) {
    if (!source_of(other).same_host(address)) return;
    any = true;
    all = all && other.options.reuse_address && other.state == IdState::kBound;
  });
  return any && all;
}

Status bind_both(Id& id, const io::Address& address, bool socket) {
  if (socket) {
    if (auto bound = bind_socket(id, address); !bound) return bound;
  }
  io::Address local = address;
  if (socket) local.set_port(source_of(id).port());
  if (auto leased = lease_port(id, local); !leased) {
    if (!socket && leased.error().code == EADDRINUSE && shares_port(id, local)) {
      set_source(id, local);
      return {};
    }
    // A host that has no way for RoCE has iWARP all the same.
    if (socket && leased.error().code != EADDRINUSE) return {};
    return fail(bind_error(leased.error().code, address), leased.error().call);
  }
  local.set_port(id.service.port());
  set_source(id, local);
  return {};
}

/// One port of both transports where both are served. Any port: one that both have free.
Status bind_ports(Id& id, const io::Address& address, const Device* device) {
  constexpr int kMostTries = 32;
  const bool socket = wants_socket(id, device);
  // Ports that are shared may be had twice until somebody listens.
  if (!on_roce(device) || (id.options.reuse_address && socket)) return bind_socket(id, address);
  Status bound;
  for (int tries = 0; tries < kMostTries; ++tries) {
    bound = bind_both(id, address, socket);
    if (bound || address.port() != 0 || !socket) break;
    id.socket.close();
  }
  if (!bound) id.socket.close();
  return bound;
}

Status bind_at(Id& id, const io::Address& address, const Device* device) {
  if (auto bound = bind_ports(id, address, device); !bound) return bound;
  if (device != nullptr) use_device(id, *device);
  id.state = IdState::kBound;
  return {};
}

/// For an active side: no other process has to know which port it is on.
Status bind_active(Id& id, const io::Address& local, const Device& device) {
  if (on_iwarp(&device) || local.port() != 0) return bind_at(id, local, &device);
  io::Address named = local;
  named.set_port(some_port());
  set_source(id, named);
  return {};
}

/// The kernel's RDMA CM takes a loopback address for any address: the id gets no device. Programs
/// that look for the devices there are bind a synchronous id to "localhost" and no port, and take a
/// device that they are shown for the only one.
/// Deviation: who names a port, or waits for events, is about to serve and gets the device at once.
bool only_looks_around(const Id& id, const io::Address& address) {
  return id.synchronous && address.is_loopback() && address.port() == 0;
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
  // A group has no place: the source's interface is where it is joined, whether routes know or not.
  if (!source && !any && is_group(destination)) source = wanted_source;
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
    if (auto done = bind_active(id, local, *resolved->device); !done) return done;
    local = source_of(id);
  }
  use_device(id, *resolved->device);
  set_destination(id, reachable(destination, local));
  if (!on_iwarp(id.device)) name_gids(id);
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
void name_gids(Id& id) {
  constexpr std::uint16_t kDefaultPkey = 0xffff;
  rdma_ib_addr& gids = id.pub.route.addr.addr.ibaddr;
  const auto source = source_of(id).unmapped().gid();
  const auto destination = destination_of(id).unmapped().gid();
  std::memcpy(gids.sgid.raw, source.data(), source.size());
  std::memcpy(gids.dgid.raw, destination.data(), destination.size());
  gids.pkey = kDefaultPkey;
}

Status bind(Id& id, const io::Address& address) {
  const Device* device = nullptr;
  check_host();
  if (is_link_local(address) && address.scope() == 0) return fail(EINVAL);
  if (!address.is_any()) {
    auto found = device_at(address);
    if (!found) {
      const int error = found.error().code;
      return fail(error == ENODEV ? EADDRNOTAVAIL : error);
    }
    if (!only_looks_around(id, address)) device = *found;
  }
  // No interface here is one of IP over InfiniBand.
  if (id.pub.ps == RDMA_PS_IPOIB && (device != nullptr || !on_roce(device))) return fail(EINVAL);
  return bind_at(id, address, device);
}

Status claim_port(const Id& id) {
  if (!id.options.reuse_address) return {};
  const io::Address own = source_of(id);
  int error = 0;
  for_each_holder(id, own.port(), [&](const Id& other) {
    const io::Address theirs = source_of(other);
    const bool only_own = id.options.v6_only && other.options.v6_only;
    if (only_own && own.family() != theirs.family()) return;
    if (own.is_any() || theirs.is_any()) {
      error = EADDRNOTAVAIL;
    } else if (own.same_host(theirs)) {
      error = EADDRINUSE;
    }
  });
  if (error != 0) return fail(error);
  return {};
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
    if (!on_iwarp(id->device)) show_path(*id);
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
