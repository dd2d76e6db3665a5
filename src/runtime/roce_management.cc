// SPDX-License-Identifier: MIT
// QP 1, which all processes of the host share: each management datagram goes to the process whose
// service or connection it names.
#include <netinet/in.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>

#include "io/address.h"
#include "runtime/mad_route.h"
#include "runtime/roce_state.h"
#include "runtime/roce_trace.h"
#include "wire/mad.h"
#include "wire/roce_packet.h"

namespace airdma::runtime {
namespace {

constexpr std::uint8_t kDatagramSend = static_cast<std::uint8_t>(wire::Service::kUd) << 5 |
                                       static_cast<std::uint8_t>(wire::PacketCode::kSendOnly);
constexpr Pkey kDefaultPkey{0xffff};

using AddressKind = model::AddressScope::Kind;

/// Ports for those who do not ask for one: the dynamic range.
constexpr std::uint32_t kFirstPort = 0xc000;
constexpr std::uint32_t kPorts = 0x10000 - kFirstPort;

std::string text_of(const model::AddressScope& scope) {
  switch (scope.kind) {
    case AddressKind::kEvery:
      return "any";
    case AddressKind::kEveryIpv4:
      return "any4";
    case AddressKind::kEveryIpv6:
      return "any6";
    case AddressKind::kOne:
      break;
  }
  return hex_of(scope.one);
}

std::string service_name(std::uint32_t service, const model::AddressScope& scope) {
  char text[32];
  std::snprintf(text, sizeof text, "airdma/cm/%04x/%u/", service >> 16, service & 0xffff);
  return text + text_of(scope);
}

/// What the service may be called that a request to the address is for, the narrowest first.
std::array<std::string, 3> names_for(std::uint32_t service, const model::Gid& address) {
  return {service_name(service, address),
          service_name(service, model::AddressScope::family_of(address)),
          service_name(service, model::AddressScope{})};
}

/// A management datagram in a packet for QP 1; nothing when it is something else.
struct Received {
  Bytes mad;
  Qpn source;
};
std::optional<Received> read(Bytes packet) {
  const auto parsed = wire::parse_roce_packet(packet);
  if (!parsed || parsed->info->opcode != kDatagramSend) return std::nullopt;
  if (parsed->qkey != wire::kManagementQkey || parsed->payload.size() != wire::kMadBytes) {
    return std::nullopt;
  }
  return Received{parsed->payload, parsed->source};
}

/// The names that a service has as long as it lives, and what takes in the connections to it.
struct ServiceHold {
  RoceState& state;
  std::string name;
  std::shared_ptr<LocalAcceptor> acceptor;
  WatchId watch = 0;
  io::LocalListener owner;

  explicit ServiceHold(RoceState& of) : state(of) {}
  ServiceHold(const ServiceHold&) = delete;
  ServiceHold& operator=(const ServiceHold&) = delete;
  ~ServiceHold() {
    if (watch != 0) state.progress().remove(watch);
    if (acceptor) acceptor->close();
    state.end_service(name);
  }
};

bool somebody_has(const std::string& name) {
  const auto connection = io::LocalConnection::connect(name);
  return connection || connection.error().code != ECONNREFUSED;
}

/// Whether a service of the same port stands in the way: one whose addresses hold this one's, or
/// the other way round. The name of just these addresses is taken already.
bool in_the_way(std::uint32_t service, const model::AddressScope& scope) {
  const auto taken = [&](const model::AddressScope& by) {
    return by != scope && somebody_has(service_name(service, by));
  };
  if (taken(model::AddressScope{})) return true;
  if (scope.kind == AddressKind::kOne) return taken(model::AddressScope::family_of(scope.one));
  if (scope.kind == AddressKind::kEvery) {
    if (taken(model::AddressScope(AddressKind::kEveryIpv4))) return true;
    if (taken(model::AddressScope(AddressKind::kEveryIpv6))) return true;
  }
  const auto interfaces = io::list_interfaces();
  if (!interfaces) return false;
  for (const io::Interface& one : *interfaces) {
    for (const io::Address& own : one.addresses) {
      const model::Gid gid{own.gid()};
      if (scope.covers(gid) && taken(gid)) return true;
    }
  }
  return false;
}

}  // namespace

void RoceState::set_mad_sink(std::weak_ptr<MadSink> sink) {
  std::lock_guard lock(mad_lock_);
  mad_sink_.swap(sink);
}

std::shared_ptr<MadSink> RoceState::mad_sink() {
  std::lock_guard lock(mad_lock_);
  return mad_sink_.lock();
}

void RoceState::tell_process_gone(std::uint32_t block) {
  if (const auto sink = mad_sink()) sink->on_process_gone(block);
}

bool RoceState::has_service(const std::string& name) {
  std::lock_guard lock(mad_lock_);
  return services_.contains(name);
}

void RoceState::end_service(const std::string& name) {
  std::lock_guard lock(mad_lock_);
  services_.erase(name);
}

void RoceState::deliver_mad_packet(Bytes packet, const rocev2::PacketOrigin& origin) {
  const auto received = read(packet);
  if (!received) return;
  if (const auto sink = mad_sink()) sink->on_mad(received->mad, origin, received->source);
}

// Which process it is for, only that process can tell.
void RoceState::pass_to_others(const rocev2::PacketOrigin& origin, const Frame& frame) {
  // A peer on a network may send as many as it likes.
  constexpr Duration kKeep = std::chrono::milliseconds(10);
  std::vector<std::uint32_t> all;
  {
    std::lock_guard lock(known_lock_);
    all = known_.look(QpnLease::kNamePrefix, kKeep);
  }
  for (const std::uint32_t block : all) {
    if (sinks_.owns(block)) continue;
    // Who does not get it hears of it when it answers the peer.
    [[maybe_unused]] const auto sent = peers_->send(origin, block, {&frame, 1});
  }
}

// True when it went to another process.
bool RoceState::pass_to_service(std::uint32_t service, const rocev2::PacketOrigin& origin,
                                Bytes packet) {
  const Frame frame{.header = packet, .pieces = {}, .pad_bytes = 0, .bytes = packet.size()};
  for (const std::string& name : names_for(service, origin.destination)) {
    if (has_service(name)) return false;
    if (LocalPeers::send_once(name, origin, frame)) return true;
  }
  return false;
}

// What nobody else has is this process's to refuse.
void RoceState::route_mad_packet(Bytes packet, const rocev2::PacketOrigin& origin) {
  const auto received = read(packet);
  if (!received) return;
  const auto route = route_mad(received->mad);
  const Frame frame{.header = packet, .pieces = {}, .pad_bytes = 0, .bytes = packet.size()};
  if (route && route->service) {
    if (pass_to_service(*route->service, origin, packet)) return;
  } else if (route && route->nameless) {
    pass_to_others(origin, frame);
  } else if (route && !sinks_.owns(route->block)) {
    const auto sent = peers_->send(origin, route->block, {&frame, 1});
    if (sent && sent->status != SendStatus::kUnreachable) return;
  }
  deliver_mad_packet(packet, origin);
}

Status RoceState::send_mad(Bytes mad, const model::AddressVector& destination) {
  if (mad.size() > wire::kMadBytes) return fail(EMSGSIZE, "send_mad");
  if (auto status = open(); !status) return status;
  std::array<std::byte, wire::kMaxRoceHeaderBytes> header;
  wire::RocePacket packet;
  packet.info = &wire::kRoceOpcodes[kDatagramSend];
  packet.pkey = kDefaultPkey;
  packet.destination = packet.source = wire::kManagementQpn;
  packet.qkey = wire::kManagementQkey;
  {
    std::lock_guard lock(mad_lock_);
    packet.psn = Psn(mad_psn_++ & 0xffffffu);
  }
  std::array<std::byte, wire::kMadBytes> whole{};
  std::ranges::copy(mad, whole.begin());
  const std::size_t header_bytes = wire::emit_roce_headers(header, packet);
  const Bytes payload(whole);
  const Frame frame{.header = Bytes(header).first(header_bytes),
                    .pieces = {&payload, 1},
                    .pad_bytes = 0,
                    .bytes = header_bytes + payload.size()};
  if (!addresses_->contains(destination.destination)) return send_mad_by_udp(destination, frame);
  return send_mad_locally(destination, whole, frame);
}

Status RoceState::send_to_service(const std::string& name, const rocev2::PacketOrigin& origin,
                                  const Frame& frame) {
  const SendTrace trace(origin, 0);
  const auto status = LocalPeers::send_once(name, origin, frame);
  if (status) trace.sent({&frame, 1}, {SendStatus::kSent, 1});
  return status;
}

Status RoceState::send_mad_by_udp(const model::AddressVector& destination, const Frame& frame) {
  const bool v6 = !destination.destination.is_v4();
  if (sender(v6) == nullptr) return fail(udp_error(v6), "bind");
  switch (send_by_udp(destination, {&frame, 1}).status) {
    case SendStatus::kSent:
      return {};
    case SendStatus::kBusy:
      return fail(EAGAIN, "sendmmsg");
    case SendStatus::kTooLong:
      return fail(EMSGSIZE, "sendmmsg");
    case SendStatus::kUnreadable:
    case SendStatus::kUnreachable:
      break;
  }
  return fail(EHOSTUNREACH, "sendmmsg");
}

Status RoceState::send_mad_locally(const model::AddressVector& destination, Bytes mad,
                                   const Frame& frame) {
  const rocev2::PacketOrigin origin = origin_of(destination);
  const auto route = route_mad(mad);
  if (!route) return fail(EINVAL, "send_mad");
  if (route->service) {
    Status failed = fail(ECONNREFUSED, "connect");
    for (const std::string& name : names_for(*route->service, origin.destination)) {
      const auto status = send_to_service(name, origin, frame);
      if (status) return {};
      if (status.error().code != ECONNREFUSED) failed = status;
    }
    return failed.error().code == EACCES ? send_mad_by_udp(destination, frame) : failed;
  }
  if (route->nameless) pass_to_others(origin, frame);
  const auto sent =
      send_to_peer(origin, route->nameless ? first_block() : route->block, {&frame, 1});
  if (!sent) return send_mad_by_udp(destination, frame);
  if (sent->status == SendStatus::kBusy) return fail(EAGAIN, "sendmsg");
  if (sent->status == SendStatus::kUnreachable) return fail(ECONNREFUSED, "connect");
  return {};
}

Result<ServiceLease> RoceState::lease_service(PortSpace space, std::uint16_t port,
                                              const model::AddressScope& scope) {
  if (auto status = open(); !status) return std::unexpected(status.error());
  if (port != 0) return take_service(space, port, scope);
  std::uint32_t start = 0;
  [[maybe_unused]] const ssize_t got = ::getrandom(&start, sizeof start, GRND_NONBLOCK);
  for (std::uint32_t i = 0; i < kPorts; ++i) {
    const auto any = static_cast<std::uint16_t>(kFirstPort + (start + i) % kPorts);
    auto lease = take_service(space, any, scope);
    if (lease || lease.error().code != EADDRINUSE) return lease;
  }
  return fail(EADDRNOTAVAIL, "bind");
}

// Taken first and looked at then: of two that stand in each other's way at least one is refused.
Result<ServiceLease> RoceState::take_service(PortSpace space, std::uint16_t port,
                                             const model::AddressScope& scope) {
  const std::uint32_t service = static_cast<std::uint32_t>(space) << 16 | port;
  const std::string name = service_name(service, scope);
  auto listener = io::LocalListener::open(name);
  if (!listener) return std::unexpected(listener.error());
  if (in_the_way(service, scope)) return fail(EADDRINUSE, "bind");
  auto hold = std::make_shared<ServiceHold>(*this);
  if (auto status = accept_from(std::move(*listener), hold->acceptor, hold->watch); !status) {
    return std::unexpected(status.error());
  }
  {
    std::lock_guard lock(mad_lock_);
    services_.insert(name);
  }
  hold->name = name;
  // For the program that steers; without it requests take a detour.
  if (auto owner = io::LocalListener::open(SteeringTable::name_of({service, first_block()}))) {
    hold->owner = std::move(*owner);
  }
  steering_->suspect();
  return ServiceLease(std::move(hold), port);
}

}  // namespace airdma::runtime
