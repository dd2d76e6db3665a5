// SPDX-License-Identifier: MIT
// Connections of iWARP devices: TCP and MPA, which the runtime sets up (runtime/connection.h).
#include <errno.h>

#include <algorithm>
#include <utility>

#include "runtime/mpa_settings.h"
#include "verbs/cm_api.h"
#include "verbs/cm_state.h"
#include "verbs/internal.h"

namespace airdma::cm {
namespace {

/// From connect() to the peer's reply, which waits for the peer's program.
constexpr Duration kConnectTimeout = std::chrono::seconds(60);

constexpr model::AccessMask kPeerAccess =
    model::kAccessRemoteWrite | model::kAccessRemoteRead | model::kAccessRemoteAtomic;

/// How a failure of TCP or MPA is reported. Statuses are negative errno values, as iWARP has them.
rdma_cm_event_type failure_event(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
      return RDMA_CM_EVENT_REJECTED;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
      return RDMA_CM_EVENT_UNREACHABLE;
    default:
      return RDMA_CM_EVENT_CONNECT_ERROR;
  }
}

bool is_answer_of_network(int error) { return failure_event(error) != RDMA_CM_EVENT_CONNECT_ERROR; }

std::uint8_t api_depth(std::uint16_t depth, std::uint8_t limit = RDMA_MAX_RESP_RES) {
  return static_cast<std::uint8_t>(std::min<std::uint16_t>(depth, limit));
}

Depths depths_of(const mpa::Agreement& agreement) {
  return {api_depth(agreement.ird), api_depth(agreement.ord)};
}

/// What the peer asked for, turned round: its outbound READs are our inbound ones. A peer that
/// does not say gets the most this device has.
Depths requested_depths(const mpa::Request& request, const Device& device) {
  if (!request.enhanced) return {device.max_responder_resources, device.max_initiator_depth};
  return {api_depth(request.ord, device.max_responder_resources),
          api_depth(request.ird, device.max_initiator_depth)};
}

mpa::Offer offer_for(const Id& id, const Depths& depths) {
  mpa::Offer offer;
  runtime::mpa_settings().apply(offer);
  offer.ird = depths.responder_resources;
  offer.ord = depths.initiator_depth;
  offer.max_ird = id.device->max_responder_resources;
  return offer;
}

/// The queue pair is in RTS.
void running(Id& id, const Depths& depths) {
  id.active.reset();
  id.passive.reset();
  id.request = {};
  id.state = IdState::kConnected;
  verbs::note_read_limits(id.qp(), depths.initiator_depth, depths.responder_resources);
  if (id.ack_timeout) verbs::note_timeout(id.qp(), *id.ack_timeout);
  verbs::sync_state(id.qp());
}

/// The stream of `id` runs: its queue pair is in RTS.
void established(Id& id, const mpa::Agreement& agreement, const EventDetails& details) {
  running(id, depths_of(agreement));
  report(id, RDMA_CM_EVENT_ESTABLISHED, details);
  if (id.closed_early) report_disconnected(id);
}

/// The socket that resolve_addr bound, or a new one on the same address when a failed attempt
/// has used it up.
Result<io::TcpSocket> socket_of(Id& id) {
  if (id.socket) return std::move(id.socket);
  return io::TcpSocket::bound(source_of(id), id.options);
}

/// Null when the program has destroyed or reset the queue pair behind the id's back: then nothing
/// will be heard of its stream.
std::shared_ptr<runtime::StreamQueuePair> streaming_queue_pair(const Id& id) {
  auto queue_pair = id.queue_pair.lock();
  if (queue_pair != nullptr && queue_pair->state() == runtime::QpState::kReset) return nullptr;
  return queue_pair;
}

class TcpRequest final : public Request {
 public:
  explicit TcpRequest(std::shared_ptr<runtime::PassiveConnection> connection)
      : connection_(std::move(connection)) {}

  io::Address local() const override { return connection_->local_address().unmapped(); }
  io::Address peer() const override { return connection_->peer_address().unmapped(); }
  verbs::Transport transport() const override { return verbs::Transport::kIwarp; }
  EventDetails give_to(Id& fresh) override {
    fresh.passive = connection_;
    const Depths depths = requested_depths(connection_->request(), *fresh.device);
    return {.responder_resources = depths.responder_resources,
            .initiator_depth = depths.initiator_depth,
            .private_data = connection_->request().private_data};
  }
  void turn_away() override { connection_->cancel(); }
  RequestName name() const override { return connection_.get(); }

 private:
  std::shared_ptr<runtime::PassiveConnection> connection_;
};

class IwarpConnections final : public ConnectionKind {
 public:
  Status connect(Id& id, const rdma_conn_param* param) const override;
  Status establish(Id& id) const override;
  Status accept(Id& id, const rdma_conn_param* param) const override;
  Status reject(Id& id, Bytes private_data, bool) const override;
  void disconnect(Id& id) const override;
  void lose_queue_pair(Id& id) const override;
  void abandon(Id& id) const override;
  Status init_qp_attr(const Id& id, ibv_qp_attr& attr, int& mask) const override;
};

Status IwarpConnections::connect(Id& id, const rdma_conn_param* param) const {
  find_program_qp(id, param);
  if (id.qp() == nullptr) return fail(EINVAL);
  // A queue pair that the program made gets the stream when the program has made it ready.
  const bool given_later = id.program_qp != nullptr;
  auto queue_pair = given_later ? nullptr : queue_pair_of(id);
  if (!given_later && queue_pair == nullptr) return fail(EINVAL);
  auto depths = connect_depths(id, param);
  if (!depths) return std::unexpected(depths.error());
  auto socket = socket_of(id);
  if (!socket) return std::unexpected(socket.error());
  id.queue_pair = queue_pair;
  auto active = runtime::ActiveConnection::start(std::move(*socket), destination_of(id),
                                                 offer_for(id, *depths), connect_data(id, param),
                                                 kConnectTimeout, queue_pair, id.link, id.link);
  if (active) {
    id.active = std::move(*active);
    id.state = IdState::kConnecting;
    return {};
  }
  // A refusal is an event whether it came at once (as on loopback) or later.
  const int error = active.error().code;
  if (!is_answer_of_network(error)) return std::unexpected(active.error());
  give_up(id, failure_event(error), {.status = -error});
  return {};
}

Status IwarpConnections::establish(Id& id) const {
  auto queue_pair = queue_pair_of(id);
  if (queue_pair == nullptr) return fail(EINVAL);  // not moved to INIT or beyond yet
  if (auto given = id.active->hand_over(queue_pair); !given) {
    id.active.reset();
    id.state = IdState::kClosed;
    return given;
  }
  id.queue_pair = queue_pair;
  running(id, id.agreed);
  return {};
}

Status IwarpConnections::accept(Id& id, const rdma_conn_param* param) const {
  find_program_qp(id, param);
  auto queue_pair = queue_pair_of(id);
  if (queue_pair == nullptr) return fail(EINVAL);
  auto depths = param != nullptr
                    ? cm::depths_of(id, *param)
                    : Result<Depths>(requested_depths(id.passive->request(), *id.device));
  if (!depths) return std::unexpected(depths.error());
  const Bytes data =
      param != nullptr ? private_data_of(param->private_data, param->private_data_len) : Bytes{};
  id.queue_pair = queue_pair;
  // With a queue pair the program has begun with this request before.
  if (id.pub.qp == nullptr) note_handover();
  const auto agreed = id.passive->accept(offer_for(id, *depths), data, queue_pair, id.link);
  if (agreed) {
    established(id, *agreed, {});
    return {};
  }
  id.passive.reset();
  id.request = {};
  id.state = IdState::kClosed;
  queue_pair->fail();
  return std::unexpected(agreed.error());
}

Status IwarpConnections::reject(Id& id, Bytes private_data, bool) const {
  // MPA has no word for the refusal of a reply; the peer sees its connection end.
  if (id.active) id.active->cancel();
  if (id.passive) id.passive->reject(private_data);
  id.active.reset();
  id.passive.reset();
  id.request = {};
  return {};
}

void IwarpConnections::disconnect(Id& id) const {
  if (auto queue_pair = streaming_queue_pair(id)) {
    queue_pair->disconnect();  // on_stream_closed() follows
  } else {
    report_disconnected(id);
  }
}

/// The connection is the queue pair's stream, and ends with it.
void IwarpConnections::lose_queue_pair(Id& id) const {
  if (id.state == IdState::kConnecting) {
    abandon(id);
    id.state = IdState::kClosed;
    report(id, RDMA_CM_EVENT_CONNECT_ERROR, {.status = -ECONNABORTED});
  } else if (id.state == IdState::kConnected || id.state == IdState::kDisconnecting) {
    abandon(id);
    report_disconnected(id);
  }
}

void IwarpConnections::abandon(Id& id) const {
  if (id.active) id.active->cancel();
  // Unanswered requests are closed without an answer, which the peer sees as REJECTED.
  if (id.passive && id.state != IdState::kClosed) id.passive->cancel();
  id.active.reset();
  id.passive.reset();
  id.request = {};
  if (id.state != IdState::kConnected && id.state != IdState::kDisconnecting) return;
  // What is on its way still goes out; nobody is left to be told of the stream's end.
  if (auto queue_pair = id.queue_pair.lock()) queue_pair->disconnect();
}

// The steps of a program that moves its queue pair itself. Nothing but rights comes from here: the
// connection gives the queue pair its stream, from INIT on.
Status IwarpConnections::init_qp_attr(const Id& id, ibv_qp_attr& attr, int& mask) const {
  switch (attr.qp_state) {
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
      attr.qp_access_flags = kPeerAccess | IBV_ACCESS_LOCAL_WRITE;
      attr.pkey_index = 0;
      attr.port_num = id.pub.port_num;
      mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
      if (attr.qp_state == IBV_QPS_INIT) mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
      return {};
    case IBV_QPS_RTS:
      mask = IBV_QP_STATE;
      return {};
    default:
      return fail(EINVAL);
  }
}

}  // namespace

const ConnectionKind& iwarp_connections() {
  static constinit const IwarpConnections kind;
  return kind;
}

std::shared_ptr<runtime::StreamQueuePair> queue_pair_of(const Id& id) {
  auto queue_pair = verbs::stream_queue_pair_of(id.qp());
  if (queue_pair == nullptr) return nullptr;
  switch (queue_pair->state()) {
    case runtime::QpState::kInit:
    case runtime::QpState::kRtr:
    case runtime::QpState::kRts:
      return queue_pair;
    case runtime::QpState::kReset:
    case runtime::QpState::kSqd:
    case runtime::QpState::kSqe:
    case runtime::QpState::kError:
      return nullptr;
  }
  return nullptr;
}

void Link::on_connected(const mpa::Agreement& agreement, Bytes private_data) {
  std::lock_guard lock(control().mutex);
  if (id_ == nullptr || id_->state != IdState::kConnecting) return;
  const Depths depths = depths_of(agreement);
  const EventDetails details{.responder_resources = depths.responder_resources,
                             .initiator_depth = depths.initiator_depth,
                             .private_data = private_data};
  if (id_->program_qp == nullptr) return established(*id_, agreement, details);
  id_->state = IdState::kAnswered;
  id_->agreed = depths;
  report(*id_, RDMA_CM_EVENT_CONNECT_RESPONSE, details);
}

void Link::on_rejected(Bytes private_data) {
  std::lock_guard lock(control().mutex);
  if (id_ == nullptr || id_->state != IdState::kConnecting) return;
  give_up(*id_, RDMA_CM_EVENT_REJECTED, {.status = -ECONNREFUSED, .private_data = private_data});
}

void Link::on_connect_failed(int error) {
  std::lock_guard lock(control().mutex);
  if (id_ == nullptr || id_->state != IdState::kConnecting) return;
  give_up(*id_, failure_event(error), {.status = -error});
}

void Link::on_request(std::shared_ptr<runtime::PassiveConnection> connection) {
  std::lock_guard lock(control().mutex);
  if (id_ == nullptr) return connection->cancel();
  take_request(*id_, std::make_unique<TcpRequest>(std::move(connection)));
}

void Link::on_request_lost(runtime::PassiveConnection& connection) {
  std::lock_guard lock(control().mutex);
  if (id_ != nullptr) lose_request(*id_, &connection);
}

void Link::on_stream_closed() {
  std::lock_guard lock(control().mutex);
  if (id_ == nullptr) return;
  if (id_->state == IdState::kConnecting) {
    id_->closed_early = true;
  } else if (id_->state == IdState::kConnected || id_->state == IdState::kDisconnecting) {
    report_disconnected(*id_);
  }
}

}  // namespace airdma::cm
