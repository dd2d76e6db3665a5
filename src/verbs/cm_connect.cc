// SPDX-License-Identifier: MIT
// The active side of connections, and what both sides share: parameters, disconnecting, and the
// end of the stream.
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

Bytes connect_data(const Id& id, const rdma_conn_param* param) {
  if (param == nullptr) return id.default_private_data;
  return private_data_of(param->private_data, param->private_data_len);
}

Result<Depths> connect_depths(const Id& id, const rdma_conn_param* param) {
  if (param != nullptr) return depths_of(id, *param);
  return Depths{id.device->max_responder_resources, id.device->max_initiator_depth};
}

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

/// The connection did not come up: the queue pair can only be destroyed, and what waits on it is
/// flushed.
void give_up(Id& id, rdma_cm_event_type event, const EventDetails& details) {
  id.active.reset();
  id.passive.reset();
  id.state = IdState::kClosed;
  if (auto queue_pair = id.queue_pair.lock()) queue_pair->fail();
  verbs::sync_state(id.qp());
  report(id, event, details);
}

void report_disconnected(Id& id) {
  id.state = IdState::kDisconnected;
  verbs::sync_state(id.qp());
  report(id, RDMA_CM_EVENT_DISCONNECTED);
}

std::uint8_t api_depth(std::uint16_t depth) {
  return static_cast<std::uint8_t>(std::min<std::uint16_t>(depth, RDMA_MAX_RESP_RES));
}

/// The queue pair is in RTS.
void running(Id& id, const Depths& depths) {
  id.active.reset();
  id.passive.reset();
  id.state = IdState::kConnected;
  verbs::note_read_limits(id.qp(), depths.initiator_depth, depths.responder_resources);
  if (id.ack_timeout) verbs::note_timeout(id.qp(), *id.ack_timeout);
  verbs::sync_state(id.qp());
}

Depths depths_of(const mpa::Agreement& agreement) {
  return {api_depth(agreement.ird), api_depth(agreement.ord)};
}

/// The socket that resolve_addr bound, or a new one on the same address when a failed attempt
/// has used it up.
Result<io::TcpSocket> socket_of(Id& id) {
  if (id.socket) return std::move(id.socket);
  return io::TcpSocket::bound(source_of(id), id.options);
}

Status start_connecting(Id& id, const rdma_conn_param* param) {
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

/// Null when the program has destroyed or reset the queue pair behind the id's back: then nothing
/// will be heard of its stream.
std::shared_ptr<runtime::StreamQueuePair> streaming_queue_pair(const Id& id) {
  auto queue_pair = id.queue_pair.lock();
  if (queue_pair != nullptr && queue_pair->state() == runtime::QpState::kReset) return nullptr;
  return queue_pair;
}

Status start_disconnecting(Id& id) {
  switch (id.state) {
    case IdState::kConnected:
      id.state = IdState::kDisconnecting;
      if (auto queue_pair = streaming_queue_pair(id)) {
        queue_pair->disconnect();  // on_stream_closed() follows
      } else {
        report_disconnected(id);
      }
      return {};
    case IdState::kAnswered:
      id.active->cancel();
      id.active.reset();
      report_disconnected(id);
      return {};
    case IdState::kDisconnecting:
    case IdState::kDisconnected:
      return {};
    case IdState::kIdle:
    case IdState::kBound:
    case IdState::kListening:
    case IdState::kAddressResolved:
    case IdState::kRouteResolved:
    case IdState::kConnecting:
    case IdState::kRequested:
    case IdState::kClosed:
    case IdState::kDestroying:
      return fail(EINVAL);
  }
  return fail(EINVAL);
}

}  // namespace

void established(Id& id, const mpa::Agreement& agreement, const EventDetails& details) {
  running(id, depths_of(agreement));
  report(id, RDMA_CM_EVENT_ESTABLISHED, details);
  if (id.closed_early) report_disconnected(id);
}

void find_program_qp(Id& id, const rdma_conn_param* param) {
  id.program_qp = id.pub.qp == nullptr && param != nullptr
                      ? verbs::queue_pair_with(param->qp_num, id.pub.verbs->device)
                      : nullptr;
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

Bytes private_data_of(const void* data, std::size_t length) {
  if (data == nullptr) return {};
  return {static_cast<const std::byte*>(data), length};
}

Result<Depths> depths_of(const Id& id, const rdma_conn_param& param) {
  const Device& device = *id.device;
  Depths depths{param.responder_resources, param.initiator_depth};
  if (depths.responder_resources == RDMA_MAX_RESP_RES) {
    depths.responder_resources = device.max_responder_resources;
  }
  if (depths.initiator_depth == RDMA_MAX_INIT_DEPTH) {
    depths.initiator_depth = device.max_initiator_depth;
  }
  if (depths.responder_resources > device.max_responder_resources ||
      depths.initiator_depth > device.max_initiator_depth) {
    return fail(EINVAL);
  }
  return depths;
}

mpa::Offer offer_for(const Id& id, const Depths& depths) {
  mpa::Offer offer;
  runtime::mpa_settings().apply(offer);
  offer.ird = depths.responder_resources;
  offer.ord = depths.initiator_depth;
  offer.max_ird = id.device->max_responder_resources;
  return offer;
}

Status connect(rdma_cm_id* handle, rdma_conn_param* param) {
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr || id->state != IdState::kRouteResolved) return fail(EINVAL);
    if (auto started = start_connecting(*id, param); !started) return started;
  }
  return complete(handle);
}

Status establish(rdma_cm_id* handle) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || id->state != IdState::kAnswered) return fail(EINVAL);
  auto queue_pair = queue_pair_of(*id);
  if (queue_pair == nullptr) return fail(EINVAL);  // not moved to INIT or beyond yet
  if (auto given = id->active->hand_over(queue_pair); !given) {
    id->active.reset();
    id->state = IdState::kClosed;
    return given;
  }
  id->queue_pair = queue_pair;
  running(*id, id->agreed);
  return {};
}

Status disconnect(rdma_cm_id* handle) {
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr) return fail(EINVAL);
    if (auto started = start_disconnecting(*id); !started) return started;
    // A synchronous program that has already seen the event would wait for ever.
    const bool told = id->state == IdState::kDisconnected &&
                      (id->channel == nullptr || id->channel->queue.empty());
    if (told) return {};
  }
  return complete(handle);
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
