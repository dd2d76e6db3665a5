// SPDX-License-Identifier: MIT
// A responder of RC alone, and a peer whose packets are made by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/sim/packet_pair.h"

namespace airdma::rocev2::testing {

inline constexpr std::uint64_t kBase = 0x7f0000000000;
inline constexpr std::uint32_t kMtu = 256;
inline constexpr std::uint8_t kPeer = 2;

/// A responder, and packets made by hand for it.
struct Responder {
  explicit Responder(QpAttributes attributes = sim::usual_attributes(), EndpointConfig config = {})
      : side(1, config), memory(side.table, sim::kKey, kBase, 65536) {
    attributes.rq_psn = Psn{10};
    side.connect(attributes, kPeer, now);
    sim::fill(memory.bytes(), 1);
  }
  wire::RocePacket packet(wire::PacketCode code, std::uint32_t psn, std::size_t payload_bytes = 0) {
    payload.assign(payload_bytes, std::byte{0x77});
    wire::RocePacket made;
    made.info = &wire::roce_info(wire::Service::kRc, code);
    made.destination = Qpn{1};
    made.pkey = Pkey{0xffff};
    made.psn = Psn{psn};
    made.remote = {
        .address = kBase, .rkey = sim::kKey, .bytes = static_cast<std::uint32_t>(payload_bytes)};
    made.payload = payload;
    made.pad_bytes = wire::roce_pad_bytes(payload_bytes);
    return made;
  }
  void give(const wire::RocePacket& packet, std::uint8_t traffic_class = 0) {
    sim::PacketBytes bytes(packet.info->header_bytes + packet.payload.size() + packet.pad_bytes);
    ASSERT_NE(wire::emit_roce_headers(bytes, packet), 0u);
    std::copy(packet.payload.begin(), packet.payload.end(),
              bytes.begin() + packet.info->header_bytes);
    side.receive(bytes, kPeer, now, traffic_class);
  }
  std::vector<wire::RocePacket> answers() {
    sent = side.transmit(now);
    std::vector<wire::RocePacket> packets;
    for (const sim::PacketBytes& bytes : sent) packets.push_back(sim::readable(bytes));
    return packets;
  }
  /// The only answer.
  wire::RocePacket answer() {
    const auto packets = answers();
    EXPECT_EQ(packets.size(), 1u);
    return packets.empty() ? wire::RocePacket{} : packets[0];
  }
  model::Sge piece(std::uint32_t bytes, std::uint64_t offset = 0) {
    return {.addr = kBase + offset, .length = bytes, .lkey = sim::kKey};
  }

  Time now{};
  sim::PacketSide side;
  sim::Buffer memory;
  std::vector<std::byte> payload;
  std::vector<sim::PacketBytes> sent;
};

}  // namespace airdma::rocev2::testing
