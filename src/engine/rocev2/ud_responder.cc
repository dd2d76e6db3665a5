// SPDX-License-Identifier: MIT
#include "engine/rocev2/ud_responder.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/be.h"

namespace airdma::rocev2 {

using model::ReceiveWqe;
using model::WcStatus;

namespace {

constexpr std::uint8_t kUdp = 17;
constexpr std::size_t kUdpHeaderBytes = 8;
constexpr std::size_t kIcrcBytes = 4;

struct Ipv4Header {
  be8 version_length{0x45};
  be8 service;
  be16 total_bytes;
  be16 identification;
  be16 fragment{0x4000};  // DF, as RoCEv2 is sent
  be8 time_to_live;
  be8 protocol{kUdp};
  be16 checksum;
  std::array<std::uint8_t, 4> source{};
  std::array<std::uint8_t, 4> destination{};
};
static_assert(sizeof(Ipv4Header) == 20);

struct Ipv6Header {
  be32 version_class_flow;
  be16 payload_bytes;
  be8 next_header{kUdp};
  be8 hop_limit;
  std::array<std::uint8_t, 16> source{};
  std::array<std::uint8_t, 16> destination{};
};
static_assert(sizeof(Ipv6Header) == kGrhBytes);

std::uint16_t internet_checksum(const Ipv4Header& header) {
  std::array<be16, sizeof(Ipv4Header) / 2> words;
  std::memcpy(static_cast<void*>(words.data()), &header, sizeof header);
  std::uint32_t sum = 0;
  for (const be16 word : words) sum += word.get();
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace

std::array<std::byte, kGrhBytes> make_grh(const PacketOrigin& origin, std::size_t udp_bytes) {
  std::array<std::byte, kGrhBytes> grh{};
  if (origin.source.is_v4()) {
    Ipv4Header header;
    header.service = origin.traffic_class;
    header.total_bytes = static_cast<std::uint16_t>(sizeof header + udp_bytes);
    header.time_to_live = origin.hop_limit;
    header.source = origin.source.v4();
    header.destination = origin.destination.v4();
    header.checksum = internet_checksum(header);
    std::memcpy(grh.data() + kGrhBytes - sizeof header, &header, sizeof header);
    return grh;
  }
  Ipv6Header header;
  header.version_class_flow = 6u << 28 | static_cast<std::uint32_t>(origin.traffic_class) << 20 |
                              (origin.flow_label & 0xfffff);
  header.payload_bytes = static_cast<std::uint16_t>(udp_bytes);
  header.hop_limit = origin.hop_limit;
  header.source = origin.source.bytes;
  header.destination = origin.destination.bytes;
  std::memcpy(grh.data(), &header, sizeof header);
  return grh;
}

UdResponder::UdResponder(Shared& shared, model::ReceiveQueue& queue)
    : shared_(shared),
      queue_(queue),
      receive_pd_(shared.config.shared_receives != nullptr ? shared.config.receive_pd
                                                           : shared.config.pd),
      scatter_(shared.memory) {}

void UdResponder::on_datagram(const wire::RocePacket& packet, const PacketOrigin& origin) {
  if (packet.qkey != shared_.attributes.qkey || !have_receive()) {
    ++shared_.stats.dropped;
    return;
  }
  const ReceiveWqe& wqe = queue_.at(queue_.head());
  const std::size_t bytes = packet.payload.size();
  if (wqe.length < kGrhBytes || bytes > wqe.length - kGrhBytes) {
    failure_ = Violation::kReceiveTooSmall;
    return;
  }
  const std::size_t udp_bytes =
      kUdpHeaderBytes + packet.info->header_bytes + bytes + packet.pad_bytes + kIcrcBytes;
  const auto grh = make_grh(origin, udp_bytes);
  scatter_.begin(std::span(wqe.sges, wqe.sge_count), receive_pd_);
  if (!scatter_.place(grh) || !scatter_.place(packet.payload)) {
    failure_ = Violation::kReceiveBuffer;
    return;
  }
  const bool immediate = packet.info->has(wire::kHasImmDt);
  const std::uint32_t network =
      origin.source.is_v4() ? model::kWcUdpOverIpv4 : model::kWcUdpOverIpv6;
  shared_.log.add({.wr_id = wqe.wr_id,
                   .opcode = model::WcOpcode::kReceive,
                   .receive = true,
                   .solicited = packet.solicited,
                   .byte_len = static_cast<std::uint32_t>(kGrhBytes + bytes),
                   .immediate = packet.immediate,
                   .flags = network | model::kWcWithGrh | (immediate ? model::kWcWithImmediate : 0),
                   .source_qpn = packet.source});
  queue_.retire();
  scatter_.release();
  shared_.stats.payload_received += bytes;
}

void UdResponder::flush(WcStatus first) {
  for (WcStatus status = first; !queue_.empty(); status = WcStatus::kFlushError) {
    shared_.log.add({.wr_id = queue_.at(queue_.head()).wr_id,
                     .status = status,
                     .opcode = model::WcOpcode::kReceive,
                     .receive = true});
    queue_.retire();
  }
  release();
}

void UdResponder::reset() {
  queue_.reset();
  failure_.reset();
  release();
}

}  // namespace airdma::rocev2
