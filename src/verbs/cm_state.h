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
//                                 | connect                              |
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
#include <vector>

#include "base/object_pool.h"
#include "base/process_global.h"
#include "base/result.h"
#include "io/address_watch.h"
#include "runtime/connection.h"

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
  kConnected,
  kDisconnecting,
  kDisconnected,
  kClosed,      // never came up, or was refused
  kDestroying,  // destroy_id waits for acknowledgements
};

struct Channel;
struct Id;

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
                   public runtime::StreamObserver {
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

 private:
  Id* id_;
};

/// A device the connection manager uses, with the context and protection domain it gives to ids.
struct Device {
  std::string interface;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  std::uint8_t max_responder_resources = 0;
  std::uint8_t max_initiator_depth = 0;
};

/// Attributes that create_ep left on a listener for the queue pairs of its connections.
struct EndpointAttributes {
  ibv_qp_init_attr qp{};
};

/// READs in both directions.
struct Depths {
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
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
  unsigned backlog = 0;
  unsigned unfetched_requests = 0;
  std::deque<std::shared_ptr<runtime::PassiveConnection>> waiting;  // for room in the backlog
  std::size_t most_waiting = 0;
  bool collects_requests = false;            // fetches several before it begins with the first
  const rdma_cm_id* last_request = nullptr;  // id of the last fetched one; may be gone
  std::optional<EndpointAttributes> endpoint;

  // Connections.
  std::shared_ptr<runtime::ActiveConnection> active;
  std::shared_ptr<runtime::PassiveConnection> passive;
  std::weak_ptr<runtime::StreamQueuePair> queue_pair;
  ibv_qp* program_qp = nullptr;  // that the program made and named in conn_param; may be gone
  Depths agreed;                 // while in kAnswered
  std::vector<std::byte> default_private_data;  // of connect(id, NULL): from create_ep
  bool closed_early = false;  // the stream ended before its establishment was told

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
  std::vector<std::pair<io::Address, io::Address>> sources;  // of destinations
};

inline Control& control() { return ProcessGlobal<Control>::get(); }

// All below: with Control::mutex held.

/// The live id behind a handle that is not being destroyed; null otherwise.
Id* find_id(const rdma_cm_id* handle);

// Channels and events (cm_events.cc).
Result<Channel*> make_channel();
void free_channel(Channel& channel);
struct EventDetails {
  int status = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  Bytes private_data = {};
};
/// Queues an event of `id`.
void report(Id& id, rdma_cm_event_type type, const EventDetails& details = {});
/// Queues a CONNECT_REQUEST of `listener` for `fresh`; false without memory.
bool report_request(Id& listener, Id& fresh, const EventDetails& details);
/// The stream of `id` runs: its queue pair is in RTS. Queues ESTABLISHED (cm_connect.cc).
void established(Id& id, const mpa::Agreement& agreement, const EventDetails& details);
/// Forgets what is queued for the id; requests are closed, with their new ids.
void drop_events(Id& id);
/// Moves what is queued for the id, and the new ids of queued requests.
void move_events(Id& id, Channel* to);
/// Queues requests that waited for room in the backlog (cm_listen.cc).
void admit_waiting(Id& listener);
/// Forgets the queued request that made `fresh`. False when it was fetched already.
bool drop_request(Id& listener, const Id& fresh);
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
/// Forgets what is known of the host's addresses and routes if these have changed.
void check_host();
/// The address that a destination is reached from, when the program has none in mind.
Result<io::Address> source_towards(const io::Address& destination);
/// The device of the interface that owns a local address: ENODEV when there is none.
/// After check_host() in the same call.
Result<const Device*> device_at(const io::Address& local);
void use_device(Id& id, const Device& device);

// Connections.
/// The runtime's object of the id's queue pair, ready for a connection; null when there is none or
/// it is not.
std::shared_ptr<runtime::StreamQueuePair> queue_pair_of(const Id& id);
/// For an id without a queue pair: remembers the one that the program names.
void find_program_qp(Id& id, const rdma_conn_param* param);
/// Of a conn_param: 255 stands for the device's maximum, more than it is EINVAL.
Result<Depths> depths_of(const Id& id, const rdma_conn_param& param);
mpa::Offer offer_for(const Id& id, const Depths& depths);
Bytes private_data_of(const void* data, std::size_t length);

// Synchronous ids. Without Control::mutex.
/// Waits for the event of the operation just started when the id is synchronous.
Status complete(rdma_cm_id* handle);

}  // namespace airdma::cm
