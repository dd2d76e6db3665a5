// SPDX-License-Identifier: MIT
// Connections of RoCE devices: InfiniBand's communication manager (runtime/ib_cm.h). Datagram
// services are looked up by it (SIDR), and have no connection afterwards. As with the kernel's RDMA
// CM, the manager hears nothing of a queue pair that is destroyed: the connection ends with
// rdma_disconnect() or the id.
#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <utility>

#include "verbs/cm_api.h"
#include "verbs/cm_ib.h"
#include "verbs/gid_table.h"
#include "verbs/internal.h"

namespace airdma::cm {
namespace {

using ibcm::CommunicationId;
using ibcm::EventKind;
using runtime::IbCm;

/// What a peer's queue pair waits for an acknowledgement: 0.54 s. The kernel's RDMA CM says 1.07 s
/// or 2.1 s.
constexpr std::uint8_t kAckTimeout = 17;
constexpr std::uint8_t kMostRetries = 7;  // what three bits hold

IbCm& manager() { return *IbCm::get().value(); }

bool under_way(const Id& id) { return id.ib.id != CommunicationId{}; }

wire::CmTransport transport_of(const Id& id) {
  const ibv_qp_type type = id.qp() != nullptr ? id.qp()->qp_type : id.pub.qp_type;
  switch (type) {
    case IBV_QPT_UC:
      return wire::CmTransport::kUc;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return wire::CmTransport::kXrc;
    default:
      return wire::CmTransport::kRc;
  }
}

/// In front of the private data of requests: who asks whom.
std::vector<std::byte> with_header(const Id& id, Bytes private_data) {
  wire::CmaHeader header;
  header.source_port = source_of(id).port();
  header.source = source_of(id).unmapped().gid();
  header.destination = destination_of(id).unmapped().gid();
  std::array<std::byte, wire::kCmaHeaderBytes> bytes;
  wire::emit_cma(bytes, header);
  std::vector<std::byte> all(bytes.size() + private_data.size());
  std::ranges::copy(private_data, std::ranges::copy(bytes, all.begin()).out);
  return all;
}

wire::ServiceId service_of(const Id& id) {
  return wire::service_of(static_cast<std::uint16_t>(id.pub.ps), destination_of(id).port());
}

/// Of the id's own queue pair, or of the one that the program names.
Result<Qpn> qpn_of(const Id& id, const rdma_conn_param* param) {
  if (id.pub.qp != nullptr) return Qpn{id.pub.qp->qp_num};
  if (param == nullptr || param->qp_num == 0) return fail(EINVAL);
  return Qpn{param->qp_num};
}

bool has_srq(const Id& id, const rdma_conn_param* param) {
  if (id.pub.qp != nullptr) return id.pub.qp->srq != nullptr;
  return param != nullptr && param->srq != 0;
}

/// The id's own queue pair waits in INIT.
bool ready_to_connect(const Id& id) {
  if (id.pub.qp == nullptr) return true;
  verbs::sync_state(id.pub.qp);
  return id.pub.qp->state == IBV_QPS_INIT;
}

class IbConnections final : public ConnectionKind {
 public:
  Status connect(Id& id, const rdma_conn_param* param) const override;
  Status establish(Id& id) const override;
  Status accept(Id& id, const rdma_conn_param* param) const override;
  Status reject(Id& id, Bytes private_data, bool by_ece) const override;
  void disconnect(Id& id) const override;
  void hang_up(Id& id) const override;
  Status end_nothing(Id& id) const override;
  Status notify(Id& id, ibv_event_type event) const override;
  void abandon(Id& id) const override;
  Status init_qp_attr(const Id& id, ibv_qp_attr& attr, int& mask) const override;
};

Status look_up_service(Id& id, const rdma_conn_param* param) {
  const auto data = with_header(id, connect_data(id, param));
  const auto cm = IbCm::get();
  if (!cm) return std::unexpected(cm.error());
  const auto started = (*cm)->look_up(
      {.service = service_of(id), .path = path_of(id), .private_data = data}, id.link);
  if (!started) return std::unexpected(started.error());
  id.ib.id = *started;
  id.ib.path = path_of(id);
  id.state = IdState::kConnecting;
  return {};
}

ibcm::ConnectParams request_of(Id& id, const rdma_conn_param* param, const Depths& depths) {
  ibcm::ConnectParams request;
  request.service = service_of(id);
  request.path = path_of(id);
  request.ca_guid = be64toh(id.device->device->guid);
  request.starting_psn = random_psn();
  request.transport = transport_of(id);
  request.responder_resources = depths.responder_resources;
  request.initiator_depth = depths.initiator_depth;
  request.srq = has_srq(id, param);
  request.path_mtu = static_cast<std::uint8_t>(verbs::active_mtu(*id.device->device));
  request.ack_timeout = id.ack_timeout.value_or(kAckTimeout);
  if (param != nullptr) {
    request.retry_count = std::min(param->retry_count, kMostRetries);
    request.rnr_retry_count = std::min(param->rnr_retry_count, kMostRetries);
    request.flow_control = param->flow_control != 0;
  }
  return request;
}

Status IbConnections::connect(Id& id, const rdma_conn_param* param) const {
  if (id.datagram()) return look_up_service(id, param);
  find_program_qp(id, param);
  const auto qpn = qpn_of(id, param);
  if (!qpn || !ready_to_connect(id)) return fail(EINVAL);
  const auto depths = connect_depths(id, param);
  if (!depths) return std::unexpected(depths.error());
  auto request = request_of(id, param, *depths);
  request.qpn = *qpn;
  const auto data = with_header(id, connect_data(id, param));
  request.private_data = data;
  const auto cm = IbCm::get();
  if (!cm) return std::unexpected(cm.error());
  // What the network would bring back at once could come before this is known.
  id.ib = {.id = {},
           .path = request.path,
           .remote_qpn = {},
           .rq_psn = request.starting_psn,
           .sq_psn = {},
           .path_mtu = request.path_mtu,
           .ack_timeout = request.ack_timeout,
           .retry_count = request.retry_count,
           .rnr_retry_count = {},
           .responder_resources = depths->responder_resources,
           .initiator_depth = depths->initiator_depth};
  const auto started = (*cm)->connect(request, id.link);
  if (!started) return std::unexpected(started.error());
  id.ib.id = *started;
  id.state = IdState::kConnecting;
  return {};
}

Status IbConnections::establish(Id& id) const {
  if (auto done = manager().ready(id.ib.id, {}); !done) return done;
  id.state = IdState::kConnected;
  return {};
}

/// Limits of both ends: READs that the peer has room for, and we.
Depths accept_depths(const Id& id, const Depths& wished) {
  return {wished.responder_resources, std::min(wished.initiator_depth, id.ib.offered_depth)};
}

Status answer_lookup(Id& id, const rdma_conn_param* param) {
  const auto qpn = qpn_of(id, param);
  if (!qpn) return std::unexpected(qpn.error());
  ibcm::LookupAnswer answer;
  answer.qpn = *qpn;
  answer.qkey = Qkey{kDefaultQkey};
  if (param != nullptr) {
    answer.private_data = private_data_of(param->private_data, param->private_data_len);
  }
  if (auto done = manager().answer(id.ib.id, answer); !done) return done;
  note_handover();
  id.ib.id = {};
  id.request = {};
  id.state = IdState::kConnected;
  return {};
}

Status IbConnections::accept(Id& id, const rdma_conn_param* param) const {
  if (id.datagram()) return answer_lookup(id, param);
  const auto qpn = qpn_of(id, param);
  if (!qpn || !ready_to_connect(id)) return fail(EINVAL);
  const auto wished =
      param != nullptr ? depths_of(id, *param)
                       : Result<Depths>(Depths{id.ib.responder_resources, id.ib.initiator_depth});
  if (!wished) return std::unexpected(wished.error());
  ibcm::AcceptParams answer;
  if (param != nullptr) {
    answer.private_data = private_data_of(param->private_data, param->private_data_len);
    answer.rnr_retry_count = std::min(param->rnr_retry_count, kMostRetries);
    answer.flow_control = param->flow_control != 0;
  }
  if (answer.private_data.size() > wire::kRepPrivateBytes) {
    // As with the kernel, whose answer this becomes: the peer need not wait for another.
    [[maybe_unused]] const auto refused = reject(id, {}, false);
    id.state = IdState::kClosed;
    note_handover();
    return fail(EINVAL);
  }
  const Depths depths = accept_depths(id, *wished);
  id.ib.responder_resources = depths.responder_resources;
  id.ib.initiator_depth = depths.initiator_depth;
  if (id.pub.qp != nullptr) {
    if (auto started = start_queue_pair(id); !started) return started;
  }
  answer.ca_guid = be64toh(id.device->device->guid);
  answer.qpn = *qpn;
  answer.starting_psn = id.ib.rq_psn;
  answer.responder_resources = depths.responder_resources;
  answer.initiator_depth = depths.initiator_depth;
  answer.srq = has_srq(id, param);
  note_handover();
  id.request = {};
  if (auto done = manager().accept(id.ib.id, answer); !done) {
    abandon(id);
    id.state = IdState::kClosed;
    flush_queue_pair(id);
    return fail(EINVAL, "accept");
  }
  id.state = IdState::kAccepted;
  return {};
}

Status IbConnections::reject(Id& id, Bytes private_data, bool by_ece) const {
  if (id.datagram()) {
    if (private_data.size() > wire::kSidrRepPrivateBytes) return fail(EINVAL);
    [[maybe_unused]] const auto answered = manager().answer(
        id.ib.id, {.status = wire::CmSidrStatus::kRejected, .private_data = private_data});
  } else {
    if (private_data.size() > wire::kRejPrivateBytes) return fail(EINVAL);
    const auto reason =
        by_ece ? wire::CmRejectReason::kVendorOption : wire::CmRejectReason::kConsumer;
    // The peer may be gone already.
    [[maybe_unused]] const auto answered = manager().reject(id.ib.id, reason, {}, private_data);
  }
  manager().release(id.ib.id);
  id.ib.id = {};
  id.request = {};
  return {};
}

void IbConnections::disconnect(Id& id) const {
  flush_queue_pair(id);
  if (!manager().disconnect(id.ib.id)) report_disconnected(id);
}

void IbConnections::hang_up(Id& id) const {
  flush_queue_pair(id);
  if (!id.datagram()) [[maybe_unused]]
    const auto answered = manager().disconnect(id.ib.id);
}

/// As with the kernel's RDMA CM: what is sent then means nothing to the peer, and the queue pair is
/// flushed.
Status IbConnections::end_nothing(Id& id) const {
  flush_queue_pair(id);
  return {};
}

Status IbConnections::notify(Id& id, ibv_event_type event) const {
  const bool connected = id.state == IdState::kConnected && !id.datagram();
  switch (event) {
    case IBV_EVENT_COMM_EST:
      if (connected) return fail(EISCONN);
      if (id.state != IdState::kAccepted) return fail(EINVAL);
      manager().traffic_seen(id.ib.id);
      return {};
    case IBV_EVENT_PATH_MIG:
      if (!connected) return fail(EINVAL);
      return {};
    default:
      return fail(EINVAL);
  }
}

void IbConnections::abandon(Id& id) const {
  id.request = {};
  if (!under_way(id)) return;
  manager().release(id.ib.id);
  id.ib.id = {};
}

/// What the kernel's RDMA CM tells: before there is a connection to ask, what INIT takes, whatever
/// was asked for; nothing of a listener or after the end.
Status IbConnections::init_qp_attr(const Id& id, ibv_qp_attr& attr, int& mask) const {
  const ibv_qp_type type = id.qp() != nullptr ? id.qp()->qp_type : id.pub.qp_type;
  switch (id.state) {
    case IdState::kBound:
    case IdState::kAddressResolved:
    case IdState::kRouteResolved: {
      const ibv_qp_state asked = std::exchange(attr.qp_state, IBV_QPS_INIT);
      auto filled = fill_attributes(id, type, attr, mask);
      attr.qp_state = asked;
      return filled;
    }
    case IdState::kConnecting:
    case IdState::kAnswered:
    case IdState::kRequested:
    case IdState::kAccepted:
    case IdState::kConnected:
      return fill_attributes(id, type, attr, mask);
    case IdState::kIdle:
    case IdState::kListening:
    case IdState::kDisconnecting:
    case IdState::kDisconnected:
    case IdState::kClosed:
    case IdState::kDestroying:
      return fail(EINVAL);
  }
  return fail(EINVAL);
}

// What the network brings. The parsed messages point into the event.

void on_reply(Id& id, const wire::CmRep& rep, Bytes private_data) {
  id.ib.remote_qpn = rep.local_qpn != Qpn{} ? rep.local_qpn : Qpn{rep.local_eecn};
  id.ib.sq_psn = rep.starting_psn;
  id.ib.rnr_retry_count = rep.rnr_retry_count;
  id.ib.responder_resources = std::min(rep.initiator_depth, id.device->max_responder_resources);
  id.ib.initiator_depth = std::min(rep.responder_resources, id.device->max_initiator_depth);
  const EventDetails details{.responder_resources = rep.initiator_depth,
                             .initiator_depth = rep.responder_resources,
                             .private_data = private_data,
                             .flow_control = rep.flow_control,
                             .srq = rep.srq,
                             .rnr_retry_count = rep.rnr_retry_count,
                             .qp_num = id.ib.remote_qpn.value()};
  if (id.pub.qp == nullptr) {
    id.state = IdState::kAnswered;
    return report(id, RDMA_CM_EVENT_CONNECT_RESPONSE, details);
  }
  auto started = start_queue_pair(id);
  if (started) started = manager().ready(id.ib.id, {});
  if (!started) {
    flush_queue_pair(id);
    return give_up(id, RDMA_CM_EVENT_CONNECT_ERROR, {.status = -started.error().code});
  }
  id.state = IdState::kConnected;
  report(id, RDMA_CM_EVENT_ESTABLISHED, details);
}

void on_looked_up(Id& id, const wire::CmSidrRep& rep) {
  id.ib.id = {};
  const auto path = ah_attr_of(id, id.ib.path);
  if (rep.status != wire::CmSidrStatus::kValid || !path) {
    const int status = path ? static_cast<int>(rep.status) : -path.error().code;
    id.state = IdState::kClosed;
    return report(id, RDMA_CM_EVENT_UNREACHABLE,
                  {.status = status, .private_data = rep.private_data});
  }
  id.state = IdState::kConnected;
  report(id, RDMA_CM_EVENT_ESTABLISHED,
         {.private_data = rep.private_data,
          .qp_num = rep.qpn.value(),
          .qkey = rep.qkey.value(),
          .path = *path});
}

/// It is over before it was up.
void on_failed(Id& id, rdma_cm_event_type event, const EventDetails& details) {
  id.ib.id = {};
  const bool waited = id.state == IdState::kConnecting || id.state == IdState::kAnswered ||
                      id.state == IdState::kAccepted;
  if (!waited) return;
  flush_queue_pair(id);
  give_up(id, event, details);
}

void on_disconnected(Id& id) {
  switch (id.state) {
    case IdState::kConnected:  // the program hangs up when it has done with what is under way
    case IdState::kDisconnecting:
      return report_disconnected(id);
    case IdState::kConnecting:
    case IdState::kAnswered:
    case IdState::kAccepted:
      flush_queue_pair(id);
      return give_up(id, RDMA_CM_EVENT_CONNECT_ERROR, {.status = -ECONNRESET});
    case IdState::kIdle:
    case IdState::kBound:
    case IdState::kListening:
    case IdState::kAddressResolved:
    case IdState::kRouteResolved:
    case IdState::kRequested:
    case IdState::kDisconnected:
    case IdState::kClosed:
    case IdState::kDestroying:
      return;
  }
}

void on_event(Id& id, const ibcm::Event& event) {
  const auto mad = wire::parse_cm(event.mad);
  switch (event.kind) {
    case EventKind::kRequest:
    case EventKind::kLookup:
      return take_ib_request(id, event);
    case EventKind::kRequestLost:
      return lose_request(id, event.id);
    case EventKind::kReply:
      if (mad && id.state == IdState::kConnecting) {
        const auto& rep = std::get<wire::CmRep>(mad->message);
        on_reply(id, rep, rep.private_data);
      }
      return;
    case EventKind::kEstablished:
      if (id.state != IdState::kAccepted) return;
      id.state = IdState::kConnected;
      return report(id, RDMA_CM_EVENT_ESTABLISHED);
    case EventKind::kRejected: {
      if (!mad) return;
      const auto& rej = std::get<wire::CmRej>(mad->message);
      return on_failed(id, RDMA_CM_EVENT_REJECTED,
                       {.status = static_cast<int>(rej.reason), .private_data = rej.private_data});
    }
    case EventKind::kUnreachable:
    case EventKind::kLookupUnreachable:
      return on_failed(id, RDMA_CM_EVENT_UNREACHABLE, {.status = -ETIMEDOUT});
    case EventKind::kDisconnected:
      return on_disconnected(id);
    case EventKind::kTimewaitOver:
      id.ib.id = {};
      if (id.state == IdState::kDisconnected) report(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
      return;
    case EventKind::kLookupAnswered:
      if (mad && id.state == IdState::kConnecting) {
        on_looked_up(id, std::get<wire::CmSidrRep>(mad->message));
      }
      return;
  }
}

}  // namespace

const ConnectionKind& ib_connections() {
  static constinit const IbConnections kind;
  return kind;
}

void Link::on_ib_event(const ibcm::Event& event) {
  std::lock_guard lock(control().mutex);
  if (id_ != nullptr) return on_event(*id_, event);
  if (event.kind == EventKind::kRequest || event.kind == EventKind::kLookup) {
    manager().release(event.id);
  }
}

}  // namespace airdma::cm
