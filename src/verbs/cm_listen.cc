// SPDX-License-Identifier: MIT
// The passive side: listening, connection requests, and the answers to them.
#include <errno.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "verbs/cm_api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

constexpr unsigned kMaxBacklog = 1024;

/// The backlog bounds the requests that a program has not fetched. Those beyond it wait here:
/// InfiniBand's connection manager asks again when a request found no room, but over TCP a client
/// would be turned away because a thread of the server was not scheduled for a moment (rping -P
/// has a backlog of 3).
/// Limit: so many of them, and a quarter of the descriptors that the process may have.
constexpr std::size_t kMostWaiting = 4096;

std::size_t waiting_limit() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return kMostWaiting;
  return static_cast<std::size_t>(
      std::clamp<rlim_t>(descriptors.rlim_cur / 4, 1, rlim_t{kMostWaiting}));
}
/// Connections the kernel keeps for us while the progress thread is busy; the program's backlog is
/// about requests it has not fetched.
constexpr int kTcpBacklog = 1024;
constexpr Duration kSetupTimeout = std::chrono::seconds(10);

std::uint8_t api_depth(std::uint16_t depth, std::uint8_t limit) {
  return static_cast<std::uint8_t>(std::min<std::uint16_t>(depth, limit));
}

/// What the peer asked for, turned round: its outbound READs are our inbound ones. A peer that
/// does not say gets the most this device has.
Depths requested_depths(const mpa::Request& request, const Device& device) {
  if (!request.enhanced) return {device.max_responder_resources, device.max_initiator_depth};
  return {api_depth(request.ord, device.max_responder_resources),
          api_depth(request.ird, device.max_initiator_depth)};
}

Id* make_request_id(Id& listener, runtime::PassiveConnection& connection) {
  const io::Address local = connection.local_address().unmapped();
  check_host();
  auto device = device_at(local);
  if (!device) return nullptr;
  Id* fresh = make_id(listener.channel, listener.pub.ps, listener.pub.context);
  if (fresh == nullptr) return nullptr;
  use_device(*fresh, **device);
  set_source(*fresh, local);
  set_destination(*fresh, connection.peer_address().unmapped());
  fresh->options = listener.options;
  fresh->state = IdState::kRequested;
  return fresh;
}

Status start_listening(Id& id, int backlog) {
  if (id.state == IdState::kIdle) {
    if (auto bound = bind(id, io::Address::any(AF_INET, 0)); !bound) return bound;
  }
  id.backlog = backlog > 0 ? std::min(static_cast<unsigned>(backlog), kMaxBacklog) : kMaxBacklog;
  id.most_waiting = waiting_limit();
  if (!id.datagram()) {
    auto listener =
        runtime::Listener::start(std::move(id.socket), kTcpBacklog, kSetupTimeout, id.link);
    if (!listener) return std::unexpected(listener.error());
    id.listener = std::move(*listener);
  }
  id.state = IdState::kListening;
  return {};
}

Result<Depths> accept_depths(const Id& id, const rdma_conn_param* param) {
  if (param != nullptr) return depths_of(id, *param);
  return requested_depths(id.passive->request(), *id.device);
}

Status start_accepting(Id& id, const rdma_conn_param* param) {
  find_program_qp(id, param);
  auto queue_pair = queue_pair_of(id);
  if (queue_pair == nullptr) return fail(EINVAL);
  auto depths = accept_depths(id, param);
  if (!depths) return std::unexpected(depths.error());
  const Bytes data =
      param != nullptr ? private_data_of(param->private_data, param->private_data_len) : Bytes{};
  id.queue_pair = queue_pair;
  note_handover();
  const auto agreed = id.passive->accept(offer_for(id, *depths), data, queue_pair, id.link);
  if (agreed) {
    established(id, *agreed, {});
    return {};
  }
  id.passive.reset();
  id.state = IdState::kClosed;
  queue_pair->fail();
  return std::unexpected(agreed.error());
}

void admit(Id& listener, std::shared_ptr<runtime::PassiveConnection> connection) {
  Id* fresh = make_request_id(listener, *connection);
  if (fresh == nullptr) return connection->cancel();
  const Depths depths = requested_depths(connection->request(), *fresh->device);
  const EventDetails details{.responder_resources = depths.responder_resources,
                             .initiator_depth = depths.initiator_depth,
                             .private_data = connection->request().private_data};
  if (!report_request(listener, *fresh, details)) {
    free_id(*fresh);
    return connection->cancel();
  }
  fresh->passive = std::move(connection);
}

}  // namespace

Status listen(rdma_cm_id* handle, int backlog) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  if (id->state != IdState::kIdle && id->state != IdState::kBound) return fail(EINVAL);
  return start_listening(*id, backlog);
}

Status accept(rdma_cm_id* handle, rdma_conn_param* param) {
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr || id->state != IdState::kRequested) return fail(EINVAL);
    if (auto started = start_accepting(*id, param); !started) return started;
  }
  return complete(handle);
}

Status reject(rdma_cm_id* handle, const void* private_data, uint8_t private_data_bytes) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  if (id->state == IdState::kRequested) {
    id->passive->reject(private_data_of(private_data, private_data_bytes));
    note_handover();
  } else if (id->state == IdState::kAnswered) {
    // MPA has no word for this; the peer sees its connection end.
    id->active->cancel();
  } else {
    return fail(EINVAL);
  }
  id->active.reset();
  id->passive.reset();
  id->state = IdState::kClosed;
  return {};
}

Status reject_ece(rdma_cm_id* handle, const void* private_data, uint8_t private_data_bytes) {
  return reject(handle, private_data, private_data_bytes);
}

void admit_waiting(Id& listener) {
  while (listener.state == IdState::kListening && !listener.waiting.empty() &&
         listener.unfetched_requests < listener.backlog) {
    auto next = std::move(listener.waiting.front());
    listener.waiting.pop_front();
    admit(listener, std::move(next));
  }
}

void Link::on_request(std::shared_ptr<runtime::PassiveConnection> connection) {
  std::lock_guard lock(control().mutex);
  const bool wanted = id_ != nullptr && id_->state == IdState::kListening &&
                      id_->waiting.size() < id_->most_waiting;
  if (!wanted) return connection->cancel();
  id_->waiting.push_back(std::move(connection));
  admit_waiting(*id_);
}

// A request that nobody has fetched disappears with its client. A fetched one stays, and its
// accept() fails.
void Link::on_request_lost(runtime::PassiveConnection& connection) {
  std::lock_guard lock(control().mutex);
  if (id_ == nullptr) return;
  if (std::erase_if(id_->waiting, [&](const auto& one) { return one.get() == &connection; }) > 0) {
    return;
  }
  const Id* lost = nullptr;
  control().ids.for_each([&](Id& id) {
    if (id.passive.get() == &connection) lost = &id;
  });
  if (lost != nullptr) drop_request(*id_, *lost);
}

}  // namespace airdma::cm
