// SPDX-License-Identifier: MIT
// The passive side: listening, connection requests, and the answers to them.
#include <errno.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "verbs/cm_api.h"
#include "verbs/cm_ib.h"
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

Id* make_request_id(Id& listener, const Request& request) {
  const io::Address local = request.local();
  check_host();
  auto device = device_at(local, request.transport());
  if (!device) return nullptr;
  Id* fresh = make_id(listener.channel, listener.pub.ps, listener.pub.context);
  if (fresh == nullptr) return nullptr;
  use_device(*fresh, **device);
  set_source(*fresh, local);
  set_destination(*fresh, request.peer());
  fresh->pub.qp_type = listener.pub.qp_type;
  fresh->options = listener.options;
  fresh->ack_timeout = listener.ack_timeout;
  fresh->state = IdState::kRequested;
  return fresh;
}

/// Requests of the transports that a wildcard has, or of the one of its device.
Status start_listeners(Id& id) {
  if (may_listen_ib(id)) {
    auto started = listen_ib(id);
    // Without RoCE there is iWARP, but another's port is another's.
    if (!started && (!id.socket || started.error().code == EADDRINUSE)) return started;
  }
  if (!id.socket) return {};
  auto listener =
      runtime::Listener::start(std::move(id.socket), kTcpBacklog, kSetupTimeout, id.link);
  if (!listener) return std::unexpected(listener.error());
  id.listener = std::move(*listener);
  return {};
}

Status start_listening(Id& id, int backlog) {
  if (id.state == IdState::kIdle) {
    if (auto bound = bind(id, io::Address::any(AF_INET, 0)); !bound) return bound;
  }
  if (auto claimed = claim_port(id); !claimed) return claimed;
  id.backlog = backlog > 0 ? std::min(static_cast<unsigned>(backlog), kMaxBacklog) : kMaxBacklog;
  id.most_waiting = waiting_limit();
  if (auto started = start_listeners(id); !started) return started;
  id.state = IdState::kListening;
  return {};
}

void admit(Id& listener, Request& request) {
  Id* fresh = make_request_id(listener, request);
  if (fresh == nullptr) return request.turn_away();
  const EventDetails details = request.give_to(*fresh);
  fresh->request = request.name();
  if (report_request(listener, *fresh, details)) return;
  silence(*fresh);
  free_id(*fresh);
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
    if (auto started = kind_of(*id).accept(*id, param); !started) return started;
    // A datagram service has answered; there is nothing to wait for.
    if (id->datagram()) return {};
  }
  return complete(handle);
}

namespace {

Status refuse(rdma_cm_id* handle, const void* data, std::uint8_t length, bool by_ece) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr) return fail(EINVAL);
  if (id->state != IdState::kRequested && id->state != IdState::kAnswered) return fail(EINVAL);
  auto done = kind_of(*id).reject(*id, private_data_of(data, length), by_ece);
  if (!done) return done;
  if (id->state == IdState::kRequested) note_handover();
  id->state = IdState::kClosed;
  return {};
}

}  // namespace

Status reject(rdma_cm_id* handle, const void* private_data, uint8_t private_data_bytes) {
  return refuse(handle, private_data, private_data_bytes, false);
}

Status reject_ece(rdma_cm_id* handle, const void* private_data, uint8_t private_data_bytes) {
  return refuse(handle, private_data, private_data_bytes, true);
}

void admit_waiting(Id& listener) {
  while (listener.state == IdState::kListening && !listener.waiting.empty() &&
         listener.unfetched_requests < listener.backlog) {
    auto next = std::move(listener.waiting.front());
    listener.waiting.pop_front();
    admit(listener, *next);
  }
}

void take_request(Id& listener, std::unique_ptr<Request> request) {
  const bool wanted =
      listener.state == IdState::kListening && listener.waiting.size() < listener.most_waiting;
  if (!wanted) return request->turn_away();
  listener.waiting.push_back(std::move(request));
  admit_waiting(listener);
}

// A request that nobody has fetched disappears with its client. A fetched one stays, and its
// accept() fails. `id` is the listener, or the request's own id.
void lose_request(Id& id, const RequestName& name) {
  if (std::erase_if(id.waiting, [&](const auto& one) { return one->name() == name; }) > 0) return;
  const Id* lost = nullptr;
  control().ids.for_each([&](Id& one) {
    if (one.request == name) lost = &one;
  });
  if (lost != nullptr) drop_request(*lost);
}

}  // namespace airdma::cm
