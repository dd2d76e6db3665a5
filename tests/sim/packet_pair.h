// SPDX-License-Identifier: MIT
// Two RoCEv2 endpoints and the packets between them, in virtual time: what tests drive engines
// with. Packets cross as bytes, so that whatever an endpoint says must be readable.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/rocev2/endpoint.h"
#include "model/memory.h"
#include "model/work.h"
#include "tests/sim/posting.h"
#include "wire/roce_packet.h"

namespace airdma::sim {

/// A packet between UDP header and ICRC.
using PacketBytes = std::vector<std::byte>;

/// As the sender's gather call puts it together.
inline PacketBytes flatten(const rocev2::PacketBatch& batch, const rocev2::OutPacket& packet) {
  PacketBytes bytes(packet.header().begin(), packet.header().end());
  for (const Bytes piece : batch.pieces(packet))
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  bytes.resize(packet.bytes());
  return bytes;
}

inline wire::RocePacket readable(const PacketBytes& bytes) {
  const auto packet = wire::parse_roce_packet(bytes);
  if (!packet) std::abort();
  return *packet;
}

inline model::Gid host(std::uint8_t number, bool v6 = false) {
  if (!v6) return model::Gid::from_v4({10, 0, 0, number});
  return model::Gid{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number}};
}

/// What both sides agree on unless a test says otherwise.
inline rocev2::QpAttributes usual_attributes() {
  rocev2::QpAttributes attributes;
  attributes.remote_access = kAllRights;
  attributes.path_mtu = 256;
  attributes.qkey = Qkey{0x11};
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.timeout = 14;        // 67 ms
  attributes.retry_count = 7;
  attributes.rnr_retry = 7;
  return attributes;
}

/// One side: queues, memory, endpoint, and what came out of it.
class PacketSide {
 public:
  explicit PacketSide(std::uint8_t its_number, rocev2::EndpointConfig config = {},
                      std::uint32_t depth = 64, std::uint32_t max_sge = 4)
      : number(its_number),
        sq(depth, max_sge, 256, config.type == model::QpType::kUd),
        rq(depth, max_sge, 0),
        endpoint(with_ids(config, its_number), table, sq, rq) {}

  void post(const Post& work) { post_to(sq, work); }
  void post_receive(std::uint64_t wr_id, const std::vector<model::Sge>& sges) {
    post_receive_to(rq, wr_id, sges);
  }
  void move_to(model::QpState state, rocev2::QpAttributes attributes, model::QpAttrMask mask,
               Time now) {
    attributes.state = state;
    endpoint.modify(attributes, mask | model::kQpAttrState, now);
  }
  /// All states up to RTS, or to RTR.
  void connect(rocev2::QpAttributes attributes, std::uint8_t peer, Time now, bool send = true) {
    attributes.address.source = host(number, v6);
    attributes.address.destination = host(peer, v6);
    attributes.remote_qpn = Qpn{peer};
    constexpr model::QpAttrMask kAll = ~model::QpAttrMask{0};
    for (const auto state : {model::QpState::kInit, model::QpState::kRtr, model::QpState::kRts}) {
      if (state == model::QpState::kRts && !send) return;
      move_to(state, attributes, kAll, now);
    }
  }
  /// Takes what the endpoint has to say.
  void drain() {
    for (const model::Completion& wc : endpoint.completions()) completions.push_back(wc);
    endpoint.clear_completions();
    while (const auto event = endpoint.poll_event()) events.push_back(*event);
  }
  /// Everything it wants to send now.
  std::vector<PacketBytes> transmit(Time now) {
    std::vector<PacketBytes> sent;
    while (true) {
      const bool expected = endpoint.may_transmit();
      batch.clear();
      const bool any = endpoint.poll_transmit(batch, now);
      if (any && !expected) std::abort();  // who skips a poll because of it must miss nothing
      if (!any) break;
      for (const rocev2::OutPacket& packet : batch.packets())
        sent.push_back(flatten(batch, packet));
    }
    batch.clear();
    drain();
    return sent;
  }
  void receive(const PacketBytes& bytes, std::uint8_t from, Time now,
               std::uint8_t traffic_class = 0) {
    const rocev2::PacketOrigin origin{.source = host(from, v6),
                                      .destination = host(number, v6),
                                      .traffic_class = traffic_class,
                                      .hop_limit = 64};
    const auto packet = wire::parse_roce_packet(bytes);
    if (packet) {
      endpoint.on_packet(*packet, origin, now);
    } else {
      endpoint.on_unreadable(packet.error(), origin, now);
    }
    drain();
  }

  std::uint8_t number;  // QPN and last byte of the address
  bool v6 = false;      // before it is connected
  model::MemoryTable table;
  model::SendQueue sq;
  model::ReceiveQueue rq;
  rocev2::Endpoint endpoint;
  rocev2::PacketBatch batch;
  std::vector<model::Completion> completions;
  std::vector<model::QpEvent> events;

 private:
  static rocev2::EndpointConfig with_ids(rocev2::EndpointConfig config, std::uint8_t qpn) {
    config.qpn = Qpn{qpn};
    config.pd = kPd;
    if (config.receive_pd == PdId{}) config.receive_pd = kPd;
    return config;
  }
};

/// A connected pair. `tamper` sees every packet: false loses it.
class PacketPair {
 public:
  explicit PacketPair(rocev2::QpAttributes attributes = usual_attributes(),
                      rocev2::EndpointConfig config_a = {}, rocev2::EndpointConfig config_b = {})
      : a(1, config_a), b(2, config_b) {
    attributes.sq_psn = Psn{0xfffffe};  // PSNs wrap soon
    attributes.rq_psn = Psn{77};
    a.connect(attributes, 2, now);
    std::swap(attributes.sq_psn, attributes.rq_psn);
    b.connect(attributes, 1, now);
  }

  /// Until nothing moves; time stands still.
  void run() {
    for (bool moved = true; moved;) {
      const bool forth = move(a, b);
      const bool back = move(b, a);
      moved = forth || back;
    }
  }
  /// Until nothing moves and no timer runs, or for so long.
  void run_until_idle(Duration most = std::chrono::seconds(60)) {
    const Time end = now + most;
    while (true) {
      run();
      std::optional<Time> next = a.endpoint.next_deadline();
      const auto other = b.endpoint.next_deadline();
      if (other && (!next || *other < *next)) next = other;
      if (!next || *next > end) return;
      now = std::max(now, *next);
      for (PacketSide* side : {&a, &b}) {
        side->endpoint.on_deadline(now);
        side->drain();
      }
    }
  }

  Time now{};
  PacketSide a;
  PacketSide b;
  std::function<bool(const wire::RocePacket&, bool from_a)> tamper;
  std::size_t packets = 0;  // that were sent

 private:
  bool move(PacketSide& from, PacketSide& to) {
    const auto sent = from.transmit(now);
    for (const PacketBytes& bytes : sent) {
      ++packets;
      const wire::RocePacket packet = readable(bytes);
      if (tamper && !tamper(packet, &from == &a)) continue;
      to.receive(bytes, from.number, now);
    }
    return !sent.empty();
  }
};

}  // namespace airdma::sim
