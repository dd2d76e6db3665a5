// SPDX-License-Identifier: MIT
// What a RoCEv2 queue pair is made with, what ibv_modify_qp sets, and where packets came from.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/psn.h"
#include "model/address_vector.h"
#include "model/memory.h"
#include "model/qp_state.h"
#include "model/work.h"

namespace airdma::rocev2 {

/// The shared receive queues of an XRC domain. Thread-safe.
class XrcReceives {
 public:
  enum class Outcome : std::uint8_t { kTaken, kEmpty, kNoSuchQueue };
  /// Moves the oldest receive of the queue with this number into the one free slot of `queue`,
  /// whose slots have room for as many SGEs, and publishes it there; `pd` becomes the domain of
  /// its buffers.
  virtual Outcome take(Srqn number, model::ReceiveQueue& queue, PdId& pd) = 0;
  /// The domain whose memory a request that names this queue may touch; nothing: no such queue.
  virtual std::optional<PdId> domain(Srqn number) = 0;

 protected:
  ~XrcReceives() = default;
};

/// Fixed properties of the queue pair.
struct EndpointConfig {
  model::QpType type = model::QpType::kRc;
  Qpn qpn;
  PdId pd;
  /// Where receives come from instead of the receive queue, and the domain of their buffers. The
  /// queue then has one slot, for the receive that is being filled; nobody posts to it.
  model::SharedReceives* shared_receives = nullptr;
  PdId receive_pd{};
  /// The same for the target of an XRC connection (QpType::kXrcReceive).
  XrcReceives* xrc_receives = nullptr;
  /// UD: bytes of the largest datagram, which is the port's active MTU.
  std::uint32_t datagram_bytes = 4096;
  /// RC, XRC: payload on its way at most, with what it costs a socket buffer besides.
  std::uint32_t window_bytes = 1u << 20;
};

/// What ibv_modify_qp sets and ibv_query_qp tells. The values of address handles and indices are
/// looked up; the fields count when the mask of the call names them, as model::kQpAttr* say.
struct QpAttributes {
  model::QpState state = model::QpState::kReset;
  bool sqd_notify = false;  // kSqd: kSqDrained is reported when what was begun is complete
  model::AccessMask remote_access = 0;
  Pkey pkey{0xffff};
  Qkey qkey;
  model::AddressVector address;  // kQpAttrAv
  Qpn remote_qpn;
  std::uint32_t path_mtu = 1024;  // bytes of payload: 256, 512, 1024, 2048, 4096
  Psn rq_psn;                     // the next packet expected
  Psn sq_psn;                     // the next new packet to send
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // code, 0..31
  std::uint8_t timeout = 0;        // code, 0..31: 4.096 us * 2^timeout; 0 is for ever
  std::uint8_t retry_count = 0;    // 0..7
  std::uint8_t rnr_retry = 0;      // 0..7; 7 is for ever
};

/// What is known of a received packet beside its bytes behind UDP.
struct PacketOrigin {
  model::Gid source;
  model::Gid destination;
  std::uint8_t traffic_class = 0;  // the whole IP byte; its two low bits are the ECN mark
  std::uint8_t hop_limit = 0;
  std::uint32_t flow_label = 0;  // IPv6
};

/// The ECN bits of a packet that met congestion (RFC 3168).
inline constexpr std::uint8_t kCongestionExperienced = 3;

}  // namespace airdma::rocev2
