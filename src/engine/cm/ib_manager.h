// SPDX-License-Identifier: MIT
// The InfiniBand communication manager of one process (IBTA vol. 1, chapter 12): its listeners,
// connections (ib_connection.h) and lookups of datagram services, and which of them a management
// datagram is for. Inputs change state and fill two queues, of datagrams to send and of events,
// which the driver drains after each. No clock, no socket; not thread-safe.
//
// Peer: whatever arrives, a request costs memory only while its listener has room for it, and an
// answer that was given is kept only among a fixed number of others. A datagram for a connection
// counts only when it comes from the address that the connection is to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cm/ib_answers.h"
#include "engine/cm/ib_connection.h"
#include "engine/cm/ib_ended_services.h"
#include "engine/cm/ib_types.h"
#include "model/address_scope.h"

namespace airdma::ibcm {

struct ManagerConfig {
  /// Upper 12 bits of our communication ids, by which other processes of the host know where to
  /// pass on what is for us.
  std::uint32_t id_block = 0;
  /// Where ids and transaction ids begin. A process that follows another one with the same block
  /// must not use its ids at once.
  std::uint64_t seed = 0;
};

/// What was dropped, for people.
struct ManagerCounters {
  std::uint64_t malformed = 0;
  std::uint64_t unknown_connection = 0;
  std::uint64_t no_room = 0;  // requests beyond what their listener takes
};

class Manager final : private Outbox {
 public:
  explicit Manager(const ManagerConfig& config);

  // Listening. One service may have several listeners, for different addresses.
  /// Of several that cover an address the narrowest is asked. `most_pending`: requests and lookups
  /// that were reported and not answered yet.
  ListenerId listen(ServiceId service, const model::AddressScope& scope, std::size_t most_pending);
  /// Its unanswered requests stay with the program. Requests that come now wait a moment for
  /// another listener.
  void stop_listening(ListenerId listener, Time now);

  // Connections. Their communication id names them, from here on and until release(). Calls answer
  // false when the connection's state does not allow them or private data is too long.
  /// Nothing when private data is too long or ids have run out.
  std::optional<CommunicationId> connect(const ConnectParams& params, Time now);
  bool ready(CommunicationId id, Bytes private_data);
  bool accept(CommunicationId id, const AcceptParams& params, Time now);
  bool reject(CommunicationId id, wire::CmRejectReason reason, Bytes additional, Bytes private_data,
              Time now);
  bool disconnect(CommunicationId id, Bytes private_data, Time now);
  bool traffic_seen(CommunicationId id);
  /// The program is done with a connection or lookup, whatever its state; no event of it follows.
  void release(CommunicationId id, Time now);
  /// All of them, as at the end of a process.
  void release_all(Time now);

  // Datagram services.
  std::optional<CommunicationId> look_up(const LookupParams& params, Time now);
  bool answer(CommunicationId id, const LookupAnswer& answer, Time now);

  // What the network brings.
  /// `way_back`: from the address that the datagram came to, to the one it came from.
  void on_mad(Bytes mad, const model::AddressVector& way_back, Time now);
  /// Nobody of this host is there for a datagram that was to be sent.
  void on_refused(CommunicationId id, Time now);
  void on_deadline(Time now);
  /// Connections whose peers chose ids of this block, as ManagerConfig has it, with their
  /// addresses: on this host they are all one process's.
  [[nodiscard]] std::vector<std::pair<CommunicationId, model::Gid>> peers_of(
      std::uint32_t id_block) const;
  /// That process is gone.
  void on_peer_gone(CommunicationId id, Time now);

  // Outputs.
  [[nodiscard]] std::optional<OutMad> poll_transmit();
  [[nodiscard]] std::optional<Event> poll_event();
  [[nodiscard]] std::optional<Time> next_deadline() const;

  [[nodiscard]] const ManagerCounters& counters() const { return counters_; }
  /// Connections in any state, and lookups, that take memory.
  [[nodiscard]] std::size_t size() const { return connections_.size() + lookups_.size(); }
  /// Null for an id that is none (any more).
  [[nodiscard]] const Connection* find(CommunicationId id) const;

 private:
  struct Listener {
    ServiceId service;
    model::AddressScope scope;
    std::size_t most_pending = 0;
    std::size_t pending = 0;
  };
  struct RemoteQp {
    model::Gid gid;
    std::uint64_t ca_guid = 0;
    Qpn qpn;
    friend auto operator<=>(const RemoteQp&, const RemoteQp&) = default;
  };
  struct Entry {
    std::unique_ptr<Connection> connection;
    std::optional<Time> deadline;  // as it stands in deadlines_
    bool pending = false;          // counts at its listener
    bool named = false;            // stands in names_
    std::optional<RemoteQp> qp;    // as it stands in remote_qps_
  };
  /// A lookup: active, or passive and not answered yet.
  struct Lookup {
    OutMad sent;
    bool active = false;
    Resend resend;
    unsigned refusals = 0;
    std::optional<Time> deadline;
    RemoteName name{};  // passive
    std::uint64_t transaction_id = 0;
    ServiceId service;
    ListenerId listener;
    bool pending = false;
  };
  using Entries = std::unordered_map<std::uint32_t, Entry>;
  using Lookups = std::unordered_map<std::uint32_t, Lookup>;

  void send(const OutMad& mad) override { transmit_.push_back(mad); }
  void report(const Event& event) override { events_.push_back(event); }

  std::optional<CommunicationId> new_id();
  std::uint64_t new_transaction_id(CommunicationId id);
  Connection* live(CommunicationId id);
  /// Brings the tables in line with the connection after anything has been done to it.
  void settle(CommunicationId id);
  void forget(Entries::iterator entry);
  void set_deadline(std::optional<Time>& known, std::optional<Time> wanted, CommunicationId id);
  void release_room(ListenerId listener, bool& pending);
  [[nodiscard]] std::optional<ListenerId> listener_for(ServiceId service,
                                                       const model::Gid& address) const;
  static RemoteName name_of(const Connection& connection);

  // Messages (ib_manager.cc) and lookups (ib_lookups.cc).
  void on_request(const wire::CmMad& mad, Bytes bytes, const model::AddressVector& way_back,
                  Time now);
  bool known_request(const wire::CmMad& mad, const RemoteName& name,
                     const model::AddressVector& way_back, Time now);
  void take_request(const wire::CmMad& mad, const model::AddressVector& way_back,
                    ListenerId listener);
  void refuse(const wire::CmMad& mad, const model::AddressVector& way_back,
              wire::CmRejectReason reason);
  [[nodiscard]] bool keep_early(Bytes bytes, const wire::CmReq& req,
                                const model::AddressVector& way_back, Time now);
  void refuse_early(Time now);
  void restart_peer(CommunicationId id);
  void on_message(const wire::CmMad& mad, CommunicationId ours, CommunicationId theirs,
                  const model::AddressVector& way_back, Time now);
  [[nodiscard]] CommunicationId addressee(const wire::CmMad& mad, CommunicationId ours,
                                          const model::AddressVector& way_back) const;
  void answer_stranger(const wire::CmMad& mad, const model::AddressVector& way_back);
  void answer_path_load(const wire::CmLap& lap, std::uint64_t transaction_id,
                        const model::AddressVector& way_back);
  void answer_with(const wire::CmMad& mad, const model::AddressVector& way_back);
  void keep_answer(const Connection& connection, Time now);

  void on_lookup(const wire::CmMad& mad, const model::AddressVector& way_back, Time now);
  void on_lookup_answer(const wire::CmMad& mad, const model::AddressVector& way_back, Time now);
  void finish_lookup(Lookups::iterator lookup, EventKind kind, const wire::CmMad* mad);
  bool look_up_later(Lookups::iterator lookup, Time now);
  void on_lookup_deadline(Lookups::iterator lookup, Time now);
  void forget(Lookups::iterator lookup);

  ManagerConfig config_;
  std::uint32_t next_counter_;
  std::uint64_t next_transaction_;
  std::uint32_t last_listener_ = 0;
  std::map<std::uint32_t, Listener> listeners_;
  Entries connections_;
  Lookups lookups_;
  std::map<RemoteName, CommunicationId> names_;         // of passive connections
  std::map<RemoteName, CommunicationId> lookup_names_;  // of passive lookups
  std::map<RemoteQp, CommunicationId> remote_qps_;
  Answers answers_;
  EndedServices ended_;
  std::set<std::pair<Time, std::uint32_t>> deadlines_;
  std::deque<OutMad> transmit_;
  std::deque<Event> events_;
  ManagerCounters counters_;
};

}  // namespace airdma::ibcm
