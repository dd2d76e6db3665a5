// SPDX-License-Identifier: MIT
// What goes into and comes out of the InfiniBand connection manager (ib_manager.h).
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/psn.h"
#include "base/time.h"
#include "model/address_vector.h"
#include "wire/ib_cm.h"

namespace airdma::ibcm {

using wire::CommunicationId;
using wire::ServiceId;

/// A communication id: the block of queue pair numbers of the process that chose it, and a counter.
inline constexpr unsigned kIdCounterBits = 20;
[[nodiscard]] constexpr std::uint32_t block_of(CommunicationId id) {
  return id.value() >> kIdCounterBits;
}

/// One of a manager's listeners.
using ListenerId = Id<struct ListenerIdTag>;

/// A datagram to send to QP 1.
struct OutMad {
  wire::MadBuffer bytes{};
  model::AddressVector destination;
  /// Whose it is: what Manager::on_refused() wants back.
  CommunicationId id;
};

/// What an active side asks for. It becomes a REQ.
struct ConnectParams {
  ServiceId service{};
  model::AddressVector path{};  // from here to the peer; the datagrams go this way too
  std::uint64_t ca_guid = 0;
  Qpn qpn{};
  Psn starting_psn{};
  wire::CmTransport transport = wire::CmTransport::kRc;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry_count = 7;
  bool flow_control = false;
  bool srq = false;
  std::uint8_t path_mtu = 0;     // an ibv_mtu
  std::uint8_t ack_timeout = 0;  // 5 bits, 4.096 us * 2^n
  Bytes private_data{};          // at most wire::kReqPrivateBytes, the RDMA CM's header included
};

/// A passive side's answer. It becomes a REP.
struct AcceptParams {
  std::uint64_t ca_guid = 0;
  Qpn qpn{};
  Psn starting_psn{};
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t rnr_retry_count = 7;
  bool flow_control = false;
  bool srq = false;
  Bytes private_data{};  // at most wire::kRepPrivateBytes
};

/// Looks up a datagram service. It becomes a SIDR_REQ.
struct LookupParams {
  ServiceId service{};
  model::AddressVector path{};
  Bytes private_data{};  // at most wire::kSidrReqPrivateBytes, the RDMA CM's header included
};

/// The answer to a lookup. It becomes a SIDR_REP.
struct LookupAnswer {
  wire::CmSidrStatus status = wire::CmSidrStatus::kValid;
  Qpn qpn{};
  Qkey qkey{};
  Bytes private_data{};  // at most wire::kSidrRepPrivateBytes
};

enum class EventKind : std::uint8_t {
  // Passive sides.
  kRequest,      // `mad` is the REQ, `path` the way back: accept() or reject() it
  kRequestLost,  // the peer gave up before it was answered
  // Active sides.
  kReply,  // `mad` is the REP: prepare the queue pair, then ready(); or reject()
  // Both.
  kEstablished,   // passive sides only; an active one is so after ready()
  kRejected,      // `mad` is the REJ
  kUnreachable,   // no answer came
  kDisconnected,  // the peer disconnected, or our own disconnect() is done
  kTimewaitOver,  // nothing of the connection can be on its way any more: the last event
  // Datagram services.
  kLookup,             // passive: `mad` is the SIDR_REQ, `path` the way back: answer() it
  kLookupAnswered,     // active: `mad` is the SIDR_REP, whatever its status says
  kLookupUnreachable,  // active: no answer came
};

struct Event {
  EventKind kind = EventKind::kRequest;
  CommunicationId id{};
  wire::MadBuffer mad{};
  model::AddressVector path{};
  ListenerId listener{};  // of kRequest and kLookup
};

/// A time of the wire, 4.096 us * 2^exponent. Peer: the exponent is the peer's; beyond this limit
/// (4.6 minutes) it is taken for the limit.
[[nodiscard]] constexpr Duration wire_time(std::uint8_t exponent) {
  constexpr std::uint8_t kLongest = 26;
  return Duration{std::int64_t{4096} << (exponent < kLongest ? exponent : kLongest)};
}

}  // namespace airdma::ibcm
