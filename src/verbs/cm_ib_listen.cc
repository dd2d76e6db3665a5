// SPDX-License-Identifier: MIT
// Ports of RoCE devices, and the requests that come to them.
#include <errno.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "verbs/cm_ib.h"
#include "verbs/gid_table.h"
#include "verbs/internal.h"

namespace airdma::cm {
namespace {

using runtime::IbCm;

constexpr std::size_t kMostPending = 4096;

runtime::PortSpace space_of(const Id& id) { return static_cast<runtime::PortSpace>(id.pub.ps); }

/// 0.0.0.0 has no IPv6 addresses, nor :: those of IPv4 when it is told so.
model::AddressScope scope_of(const Id& id, const io::Address& local) {
  using Kind = model::AddressScope::Kind;
  if (!local.is_any()) return model::Gid{local.unmapped().gid()};
  if (local.family() == AF_INET) return model::AddressScope(Kind::kEveryIpv4);
  return model::AddressScope(id.options.v6_only ? Kind::kEveryIpv6 : Kind::kEvery);
}

class IbRequest final : public Request {
 public:
  /// Of a REQ or a SIDR_REQ.
  IbRequest(const ibcm::Event& event, std::uint16_t port) : event_(event), port_(port) {}

  io::Address local() const override { return named(event_.path.source, port_); }
  io::Address peer() const override {
    const auto header = wire::parse_cma(private_data());
    return named(event_.path.destination, header ? header->source_port : 0);
  }
  verbs::Transport transport() const override { return verbs::Transport::kRoce; }
  EventDetails give_to(Id& fresh) override;
  void turn_away() override { (*IbCm::get())->release(event_.id); }
  RequestName name() const override { return event_.id; }

 private:
  [[nodiscard]] io::Address named(const model::Gid& gid, std::uint16_t port) const {
    io::Address address = address_of(gid, event_.path.interface_index);
    address.set_port(port);
    return address;
  }
  [[nodiscard]] Bytes private_data() const;
  [[nodiscard]] EventDetails details_of(Id& fresh, const wire::CmReq& req) const;

  ibcm::Event event_;
  std::uint16_t port_;
};

/// Points into the datagram.
Bytes IbRequest::private_data() const {
  const auto mad = wire::parse_cm(event_.mad);
  if (!mad) return {};
  if (const auto* req = std::get_if<wire::CmReq>(&mad->message)) return req->private_data;
  if (const auto* req = std::get_if<wire::CmSidrReq>(&mad->message)) return req->private_data;
  return {};
}

EventDetails IbRequest::details_of(Id& fresh, const wire::CmReq& req) const {
  IbSide& ib = fresh.ib;
  ib.remote_qpn = req.local_qpn;
  ib.rq_psn = random_psn();  // a program's own queue pair needs it before rdma_accept()
  ib.sq_psn = req.starting_psn;
  ib.path_mtu = req.path_mtu;
  ib.path.traffic_class = req.primary.traffic_class;
  ib.path.flow_label = req.primary.flow_label;
  if (req.primary.hop_limit > 1) ib.path.hop_limit = req.primary.hop_limit;
  ib.ack_timeout = fresh.ack_timeout.value_or(req.primary.ack_timeout);
  ib.retry_count = req.retry_count;
  ib.rnr_retry_count = req.rnr_retry_count;
  ib.offered_depth = req.responder_resources;
  ib.responder_resources = std::min(req.initiator_depth, fresh.device->max_responder_resources);
  ib.initiator_depth = std::min(req.responder_resources, fresh.device->max_initiator_depth);
  return {.responder_resources = ib.responder_resources,
          .initiator_depth = ib.initiator_depth,
          .flow_control = req.flow_control,
          .srq = req.srq,
          .retry_count = req.retry_count,
          .rnr_retry_count = req.rnr_retry_count,
          .qp_num = req.local_qpn.value()};
}

EventDetails IbRequest::give_to(Id& fresh) {
  fresh.ib.id = event_.id;
  fresh.ib.path = path_of(fresh);
  name_gids(fresh);
  show_path(fresh);
  (*IbCm::get())->observe(event_.id, fresh.link);
  EventDetails details;
  const auto mad = wire::parse_cm(event_.mad);
  if (const auto* req = mad ? std::get_if<wire::CmReq>(&mad->message) : nullptr) {
    details = details_of(fresh, *req);
    if (req->transport == wire::CmTransport::kUc) fresh.pub.qp_type = IBV_QPT_UC;
    if (req->transport == wire::CmTransport::kXrc) fresh.pub.qp_type = IBV_QPT_XRC_RECV;
  }
  // The RDMA CM's header is not the program's.
  const Bytes all = private_data();
  const bool headed = wire::parse_cma(all).has_value();
  details.private_data = headed ? all.subspan(wire::kCmaHeaderBytes) : all;
  return details;
}

/// What a connection to this device cannot have.
bool impossible(const Id& listener, const ibcm::Event& event) {
  const auto mad = wire::parse_cm(event.mad);
  const auto* req = mad ? std::get_if<wire::CmReq>(&mad->message) : nullptr;
  if (req == nullptr || listener.datagram()) return false;
  const auto device =
      device_at(address_of(event.path.source, event.path.interface_index), verbs::Transport::kRoce);
  if (!device) return false;
  const auto mtu = static_cast<std::uint8_t>(verbs::active_mtu(*(*device)->device));
  if (req->path_mtu >= IBV_MTU_256 && req->path_mtu <= mtu) return false;
  const std::byte acceptable{static_cast<std::uint8_t>(mtu << 4)};
  [[maybe_unused]] const auto told =
      (*IbCm::get())
          ->reject(event.id, wire::CmRejectReason::kInvalidMtu, Bytes(&acceptable, 1), {});
  return true;
}

}  // namespace

Status lease_port(Id& id, const io::Address& local) {
  auto lease =
      runtime::RocePort::get().lease_service(space_of(id), local.port(), scope_of(id, local));
  if (!lease) return std::unexpected(lease.error());
  id.service = std::move(*lease);
  return {};
}

std::uint16_t some_port() {
  constexpr unsigned kFirst = 0xc000;
  static std::atomic<unsigned> last{std::random_device{}()};
  return static_cast<std::uint16_t>(kFirst + ++last % (0x10000 - kFirst));
}

bool may_listen_ib(const Id& id) {
  check_host();
  return id.device != nullptr ? id.device->transport == verbs::Transport::kRoce : has_roce();
}

Status listen_ib(Id& id) {
  const io::Address local = source_of(id);
  if (!id.service) {
    if (auto leased = lease_port(id, local); !leased) return leased;
  }
  const auto cm = IbCm::get();
  if (!cm) return std::unexpected(cm.error());
  const auto service = wire::service_of(static_cast<std::uint16_t>(id.pub.ps), local.port());
  id.ib_listener = (*cm)->listen(service, scope_of(id, local), kMostPending, id.link);
  return {};
}

void stop_listening_ib(Id& id) {
  if (id.ib_listener) (*IbCm::get())->stop_listening(*id.ib_listener);
  id.ib_listener.reset();
  id.service = {};
}

void take_ib_request(Id& listener, const ibcm::Event& event) {
  check_host();
  if (listener.state != IdState::kListening) {
    return (*IbCm::get())->release(event.id);
  }
  if (impossible(listener, event)) return;
  take_request(listener, std::make_unique<IbRequest>(event, source_of(listener).port()));
}

}  // namespace airdma::cm
