// SPDX-License-Identifier: MIT
// What the parts of one endpoint have in common: its configuration and attributes, where
// completions and counts go, and how a packet for the peer begins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/be.h"
#include "engine/rocev2/attributes.h"
#include "engine/rocev2/endpoint.h"
#include "engine/rocev2/packet_batch.h"
#include "engine/rocev2/violation.h"
#include "model/completion_log.h"
#include "model/local_operation.h"
#include "model/memory.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

/// Largest message (IBTA vol. 1, 9.7.4.1.6).
inline constexpr std::uint32_t kMaxMessageBytes = std::uint32_t{1} << 31;

/// Packets of a message, or of a response, with so many bytes of payload.
[[nodiscard]] constexpr std::uint32_t packets_of(std::uint32_t bytes, std::uint32_t mtu) {
  return bytes <= mtu ? 1 : static_cast<std::uint32_t>((std::uint64_t{bytes} + mtu - 1) / mtu);
}

/// PSNs are extended to numbers that never wrap in a program's lifetime. The first ones lie this
/// far above zero, so that one may look back.
inline constexpr std::uint64_t kFirstSequence = std::uint64_t{1} << 32;

[[nodiscard]] constexpr std::uint64_t first_sequence(Psn psn) {
  return kFirstSequence | psn.value();
}
[[nodiscard]] constexpr Psn psn_of(std::uint64_t sequence) {
  return Psn{static_cast<std::uint32_t>(sequence & Psn::kMask)};
}
/// The sequence with this PSN that lies nearest to `near`.
[[nodiscard]] constexpr std::uint64_t extend(Psn psn, std::uint64_t near) {
  return near + static_cast<std::uint64_t>(std::int64_t{psn_of(near).distance_to(psn)});
}

[[nodiscard]] constexpr wire::Service service_of(model::QpType type) {
  switch (type) {
    case model::QpType::kUc:
      return wire::Service::kUc;
    case model::QpType::kUd:
      return wire::Service::kUd;
    case model::QpType::kXrcSend:
    case model::QpType::kXrcReceive:
      return wire::Service::kXrc;
    case model::QpType::kRc:
    case model::QpType::kRawPacket:
      break;
  }
  return wire::Service::kRc;
}

struct Shared {
  Shared(const EndpointConfig& its_config, const model::MemoryTable& its_memory)
      : config(its_config),
        memory(its_memory),
        log(its_config.qpn),
        service(service_of(its_config.type)) {}

  const EndpointConfig config;
  const model::MemoryTable& memory;
  QpAttributes attributes;
  model::CompletionLog log;
  EndpointStats stats;
  wire::Service service;

  [[nodiscard]] std::uint32_t mtu() const { return attributes.path_mtu; }

  /// A packet to the peer without anything that is not in all of them. Its path state is
  /// "migrated", as of those that know no alternate path (IBTA vol. 1, 17.2.8).
  [[nodiscard]] wire::RocePacket to_peer(wire::PacketCode code, std::uint64_t sequence) const {
    wire::RocePacket packet;
    packet.info = &wire::roce_info(service, code);
    packet.migrated = true;
    packet.pkey = attributes.pkey;
    packet.destination = attributes.remote_qpn;
    packet.psn = psn_of(sequence);
    return packet;
  }

  /// A packet of a SEND or WRITE to the peer, without its payload.
  [[nodiscard]] wire::RocePacket transfer(const model::SendWqe& wqe, bool first, bool last,
                                          std::uint64_t sequence) const {
    const bool write = model::is_write(wqe.opcode);
    const bool immediate = model::has_immediate(wqe.opcode);
    const bool invalidate = wqe.opcode == model::SendOpcode::kSendWithInvalidate;
    const wire::Tail tail = invalidate  ? wire::Tail::kInvalidate
                            : immediate ? wire::Tail::kImmediate
                                        : wire::Tail::kNone;
    wire::RocePacket packet = to_peer(
        write ? wire::write_code(first, last, immediate) : wire::send_code(first, last, tail),
        sequence);
    packet.solicited = last && wqe.solicited && (!write || immediate);
    packet.immediate = wqe.immediate;
    packet.invalidate = wqe.rkey;
    packet.remote = {.address = wqe.remote_addr, .rkey = wqe.rkey, .bytes = wqe.length};
    return packet;
  }

  /// A request that is done on the memory table alone. False when it may not be.
  [[nodiscard]] bool perform_local(const model::SendWqe& wqe) const {
    return model::perform_local(memory, wqe, config.pd, config.qpn);
  }
};

/// Writes the headers in front of the payload that `out` has, and makes it part of the batch.
inline void finish_packet(Shared& shared, PacketBatch& batch, OutPacket& out,
                          wire::RocePacket& packet) {
  packet.pad_bytes = wire::roce_pad_bytes(out.payload_bytes);
  out.pad_bytes = packet.pad_bytes;
  out.header_bytes =
      static_cast<std::uint8_t>(wire::emit_roce_headers(MutableBytes{out.headers}, packet));
  batch.commit(out);
  ++shared.stats.packets_sent;
  shared.stats.payload_sent += out.payload_bytes;
}

/// Whether the last packet of the batch is the one before `out` of the same sender, so that
/// repeat_headers() may be used for two middle packets of one message or response.
[[nodiscard]] inline bool follows(PacketBatch& batch, PacketOwner owner, std::uint64_t position,
                                  std::uint64_t sequence) {
  if (batch.empty()) return false;
  const OutPacket& before = batch.last();
  return before.owner == owner && before.position == position && before.sequence + 1 == sequence;
}

/// finish_packet() for a middle packet behind another one: only the PSN differs.
inline void repeat_headers(Shared& shared, PacketBatch& batch, OutPacket& out) {
  const OutPacket& before = batch.last();
  out.headers = before.headers;
  out.header_bytes = before.header_bytes;
  const be32 number = psn_of(out.sequence).value();
  std::memcpy(out.headers.data() + offsetof(wire::Bth, psn_word), &number, sizeof number);
  batch.commit(out);
  ++shared.stats.packets_sent;
  shared.stats.payload_sent += out.payload_bytes;
}

}  // namespace airdma::rocev2
