// SPDX-License-Identifier: MIT
// The connection manager's objects: event channels, ids, events, and the one mutex over them.
//
// Locks: Control::mutex, then the verbs layer's and the runtime's. Calls into both are made with
// it held, except those that wait for a program (destroy_qp, destroy_cq). The runtime calls back on
// the progress thread without its locks, through a Link, which knows whether its id still lives.
//
// States of an id (a refused call never changes it):
//
//   kIdle --bind_addr--> kBound --listen--> kListening --(request)--> new id in kRequested
//     \                    |                                             | accept      | reject
//      \--resolve_addr-----+--> kAddressResolved                         |    \ (peer  kClosed
//                                 | resolve_route                        |     \  gone)
//                               kRouteResolved                           |     kClosed
//                                 | connect                              | (InfiniBand: kAccepted,
//                                 |                                      |  until the peer has
//                                 heard)
//                               kConnecting --(reply)--> kConnected <----+
//                                 |    \                   ^ establish
//                                 |     (reply) -----> kAnswered: the queue pair is the program's
//                                 | (failure)              | disconnect    \ (peer closes)
//                               kClosed                  kDisconnecting --> kDisconnected
#pragma once

#include <sys/types.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/object_pool.h"
#include "base/process_global.h"
#include "base/result.h"
#include "io/address_watch.h"
#include "runtime/connection.h"
#include "runtime/ib_cm.h"
#include "verbs/device.h"

namespace airdma::cm {

enum class IdState : std::uint8_t {
  kIdle,
  kBound,
  kListening,
  kAddressResolved,
  kRouteResolved,
  kConnecting,
  kAnswered,  // connected, and the program has yet to make its own queue pair ready
  kRequested,
  kAccepted,  // the peer has yet to say that it knows
  kConnected,
  kDisconnecting,
  kDisconnected,
  kClosed,      // never came up, or was refused
  kDestroying,  // destroy_id waits for acknowledgements
};

struct Channel;
struct Id;

/// What a request is known by to its transport.
using RequestName =
    std::variant<std::monostate, const runtime::PassiveConnection*, ibcm::CommunicationId>;

struct Event {
  rdma_cm_event pub{};
  std::array<std::byte, 255> private_data{};  // what the API's length field can name
  Id* owner = nullptr;                        // counts it until it is acknowledged

  rdma_cm_event* handle() { return &pub; }
};

struct Channel {
  rdma_event_channel pub{};
  // As many as `queue` has, but for those below and taken ones.
  std::shared_ptr<io::EventCounter> counter;
  std::deque<Event*> queue;
  unsigned void_tokens = 0;  // events that were dropped after a thread had taken their count
  pid_t reader_away = 0;     // thread that fetched an event and has not come back for the next one

  rdma_event_channel* handle() { return &pub; }
};

/// What the runtime tells about an id. It may outlive the id.
class Link final : public runtime::ConnectObserver,
                   public runtime::ListenObserver,
                   public runtime::StreamObserver,
                   public runtime::IbObserver {
 public:
  explicit Link(Id* id) : id_(id) {}
  /// Under Control::mutex: nothing is reported from now on.
  void cut() { id_ = nullptr; }

  void on_connected(const mpa::Agreement& agreement, Bytes private_data) override;
  void on_rejected(Bytes private_data) override;
  void on_connect_failed(int error) override;
  void on_request(std::shared_ptr<runtime::PassiveConnection> connection) override;
  void on_request_lost(runtime::PassiveConnection& connection) override;
  void on_stream_closed() override;
  void on_ib_event(const ibcm::Event& event) override;

 private:
  Id* id_;
};

/// A device the connection manager uses, with the context and protection domain it gives to ids.
struct Device {
  std::string interface;
  verbs::Transport transport = verbs::Transport::kIwarp;
  const verbs::Device* device = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_xrcd* xrc_domain = nullptr;  // once it was needed
  std::uint8_t max_responder_resources = 0;
  std::uint8_t max_initiator_depth = 0;
};

/// Attributes that create_ep left on a listener for the queue pairs of its connections.
struct EndpointAttributes {
  ibv_qp_init_attr qp{};
};

/// A multicast group that the id has joined.
struct Group {
  io::Address address;
  ibv_gid gid{};
  ibv_qp* attached = nullptr;
};

/// An InfiniBand connection, or what is known of its peer so far.
struct IbSide {
  ibcm::CommunicationId id;  // 0: nothing of this id is under way
  model::AddressVector path;
  Qpn remote_qpn;
  Psn rq_psn;  // ours to choose
  Psn sq_psn;  // the peer's
  std::uint8_t path_mtu = 0;
  std::uint8_t ack_timeout = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t offered_depth = 0;  // passive: READs that the peer has room for
};

/// READs in both directions.
struct Depths {
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
};

struct EventDetails {
  int status = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  Bytes private_data = {};
  // InfiniBand only.
  bool flow_control = false;
  bool srq = false;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
  ibv_ah_attr path{};
  void* context = nullptr;  // of a multicast group, in place of private data
};

/// A connection request that arrived and has no id yet.
class Request {
 public:
  virtual ~Request() = default;
  [[nodiscard]] virtual io::Address local() const = 0;
  [[nodiscard]] virtual io::Address peer() const = 0;
  [[nodiscard]] virtual verbs::Transport transport() const = 0;
  /// It is now the request of this id, which has its addresses and its device; what its event says.
  /// The details' private data is there as long as the request.
  virtual EventDetails give_to(Id& fresh) = 0;
  /// Nobody wants it.
  virtual void turn_away() = 0;
  [[nodiscard]] virtual RequestName name() const = 0;
};

/// How ids of one kind of device connect. The caller has looked at the id's state.
class ConnectionKind {
 public:
  /// From kRouteResolved to kConnecting, or to an event that says why not.
  virtual Status connect(Id& id, const rdma_conn_param* param) const = 0;
  /// From kAnswered to kConnected.
  virtual Status establish(Id& id) const = 0;
  /// From kRequested to kAccepted or kConnected.
  virtual Status accept(Id& id, const rdma_conn_param* param) const = 0;
  /// Answers a request, or in kAnswered the reply, with no. `by_ece`: because of vendor options.
  virtual Status reject(Id& id, Bytes private_data, bool by_ece) const = 0;
  /// In kDisconnecting: the event may come in here or later.
  virtual void disconnect(Id& id) const = 0;
  /// In kDisconnected, because of the peer: the program has done with the connection.
  virtual void hang_up(Id&) const {}
  /// rdma_disconnect() of what has no connection, not yet or not any more.
  virtual Status end_nothing(Id&) const { return fail(EINVAL); }
  /// rdma_notify() of an event that the program has seen.
  virtual Status notify(Id&, ibv_event_type) const { return {}; }
  /// The program destroys the queue pair that it made with the id.
  virtual void lose_queue_pair(Id&) const {}
  /// Ends whatever there is. No event follows.
  virtual void abandon(Id& id) const = 0;
  virtual Status init_qp_attr(const Id& id, ibv_qp_attr& attr, int& mask) const = 0;

 protected:
  ~ConnectionKind() = default;
};

struct Id {
  rdma_cm_id pub{};
  IdState state = IdState::kIdle;
  Channel* channel = nullptr;  // null when its program destroyed the channel
  bool synchronous = false;    // `channel` is its own
  unsigned unacked = 0;  // events fetched and not acknowledged, requests of a listener included
  std::shared_ptr<Link> link;
  const Device* device = nullptr;

  io::TcpSocket socket;  // bound, until it listens or connects
  io::SocketOptions options;
  std::optional<std::uint8_t> ack_timeout;  // shown as the queue pair's, and no more

  // Listeners.
  std::shared_ptr<runtime::Listener> listener;
  std::optional<ibcm::ListenerId> ib_listener;
  runtime::ServiceLease service;  // the RoCE devices' port, from bind() on
  unsigned backlog = 0;
  unsigned unfetched_requests = 0;
  std::deque<std::unique_ptr<Request>> waiting;  // for room in the backlog
  std::size_t most_waiting = 0;
  bool collects_requests = false;            // fetches several before it begins with the first
  const rdma_cm_id* last_request = nullptr;  // id of the last fetched one; may be gone
  std::optional<EndpointAttributes> endpoint;

  // Connections.
  std::shared_ptr<runtime::ActiveConnection> active;
  std::shared_ptr<runtime::PassiveConnection> passive;
  RequestName request;  // while it is not answered
  std::weak_ptr<runtime::StreamQueuePair> queue_pair;
  IbSide ib;
  ibv_qp* program_qp = nullptr;  // that the program made and named in conn_param; may be gone
  Depths agreed;                 // while in kAnswered
  std::vector<std::byte> default_private_data;  // of connect(id, NULL): from create_ep
  bool closed_early = false;  // the stream ended before its establishment was told
  std::vector<Group> groups;
  ibv_sa_path_rec path_record{};  // what pub.route shows, of RoCE devices

  rdma_cm_id* handle() { return &pub; }
  [[nodiscard]] ibv_qp* qp() const { return pub.qp != nullptr ? pub.qp : program_qp; }
  [[nodiscard]] bool datagram() const { return pub.ps == RDMA_PS_UDP || pub.ps == RDMA_PS_IPOIB; }
};

/// The connection manager's mutex. Threads that it lets know of something would wake up and wait
/// for it at once: they hear of it when it has been released.
class ControlMutex {
 public:
  void lock() { mutex_.lock(); }
  void unlock();
  // Below: for the holder.
  /// Wakes the readers of a counter that has got an event.
  void settle_later(const std::shared_ptr<io::EventCounter>& counter);
  /// Wakes the threads that sleep on `handovers`.
  void tell_handover_later() { handover_ = true; }
  /// Changes when the program has done something with a request that it fetched.
  std::atomic<std::uint32_t> handovers{0};
  unsigned handover_sleepers = 0;

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<io::EventCounter>> unsettled_;
  bool handover_ = false;
};

struct Control {
  ControlMutex mutex;
  std::condition_variable_any acknowledged;
  ObjectPool<Channel> channels;
  ObjectPool<Id> ids;
  ObjectPool<Event> events;
  std::deque<Device> devices;  // stay at their addresses
  // Which device owns an address, and from which address a destination is reached, as long as the
  // host's addresses and routes stay as they are.
  io::AddressWatch::Generation host_generation = io::AddressWatch::kUnwatched;
  std::vector<std::pair<io::Address, const Device*>> owners;
  std::optional<bool> has_roce;
  std::vector<std::pair<io::Address, io::Address>> sources;  // of destinations
};

inline Control& control() { return ProcessGlobal<Control>::get(); }

// All below: with Control::mutex held.

/// The live id behind a handle that is not being destroyed; null otherwise.
Id* find_id(const rdma_cm_id* handle);

// Channels and events (cm_events.cc).
Result<Channel*> make_channel();
void free_channel(Channel& channel);
/// Queues an event of `id`.
void report(Id& id, rdma_cm_event_type type, const EventDetails& details = {});
/// Queues a CONNECT_REQUEST of `listener` for `fresh`; false without memory.
bool report_request(Id& listener, Id& fresh, const EventDetails& details);
/// Forgets what is queued for the id; requests are closed, with their new ids.
void drop_events(Id& id);
/// Moves what is queued for the id, and the new ids of queued requests.
void move_events(Id& id, Channel* to);
/// Queues requests that waited for room in the backlog (cm_listen.cc).
void admit_waiting(Id& listener);
/// Forgets the queued request that made `fresh`, and the id. No effect once it was fetched.
void drop_request(const Id& fresh);
void acknowledge(Event& event);
/// The program has begun with a request: a thread that was held up may fetch the next one.
void note_handover();

// Ids (cm_id.cc).
/// A new id on `channel`; null without memory.
Id* make_id(Channel* channel, rdma_port_space port_space, void* context);
/// Ends connections and listening, and gives the object back. Nothing may be unacknowledged.
void free_id(Id& id);
/// The first half of free_id(): no callback and no new event of this id from here on.
void silence(Id& id);

// Addresses (cm_address.cc) and devices (cm_device.cc).
io::Address source_of(const Id& id);
io::Address destination_of(const Id& id);
void set_source(Id& id, const io::Address& address);
void set_destination(Id& id, const io::Address& address);
/// Binds an id in kIdle.
Status bind(Id& id, const io::Address& address);
/// Before the id listens: a port that several ids have bound (RDMA_OPTION_ID_REUSEADDR) is nobody's
/// to listen on, as with the kernel's RDMA CM. EADDRINUSE, EADDRNOTAVAIL.
Status claim_port(const Id& id);
/// Forgets what is known of the host's addresses and routes if these have changed.
void check_host();
/// The address that a destination is reached from, when the program has none in mind.
Result<io::Address> source_towards(const io::Address& destination);
/// The device of the interface that owns a local address, of this kind: ENODEV when there is none.
/// After check_host() in the same call.
Result<const Device*> device_at(const io::Address& local, verbs::Transport transport);
/// The same of the kind that the user prefers (verbs/preference.h), or else of the other kind.
Result<const Device*> device_at(const io::Address& local);
/// Whether there are RoCE devices. After check_host() in the same call.
bool has_roce();
void use_device(Id& id, const Device& device);
/// For XRC queue pairs and shared receive queues that name no domain.
Result<ibv_xrcd*> xrc_domain_of(const Device& device);

// Connections (cm_connect.cc).
const ConnectionKind& kind_of(const Id& id);
const ConnectionKind& iwarp_connections();  // cm_iwarp.cc
const ConnectionKind& ib_connections();     // cm_ib.cc
/// The runtime's object of the id's queue pair over TCP, ready for a connection; null when there is
/// none or it is not.
std::shared_ptr<runtime::StreamQueuePair> queue_pair_of(const Id& id);
/// For an id without a queue pair: remembers the one that the program names.
void find_program_qp(Id& id, const rdma_conn_param* param);
/// Of a conn_param: 255 stands for the device's maximum, more than it is EINVAL. Without one, the
/// device's maxima.
Result<Depths> depths_of(const Id& id, const rdma_conn_param& param);
Result<Depths> connect_depths(const Id& id, const rdma_conn_param* param);
Bytes connect_data(const Id& id, const rdma_conn_param* param);
/// The connection did not come up: the queue pair can only be destroyed, and what waits on it is
/// flushed.
void give_up(Id& id, rdma_cm_event_type event, const EventDetails& details);
void report_disconnected(Id& id);
/// A request came to a listener (cm_listen.cc).
void take_request(Id& listener, std::unique_ptr<Request> request);
/// One that was not answered yet is gone with its peer. `id`: its listener, or its own if it has
/// one.
void lose_request(Id& id, const RequestName& name);
Bytes private_data_of(const void* data, std::size_t length);

// Synchronous ids. Without Control::mutex.
/// Waits for the event of the operation just started when the id is synchronous.
Status complete(rdma_cm_id* handle);

}  // namespace airdma::cm
