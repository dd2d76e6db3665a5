// SPDX-License-Identifier: MIT
#include "wire/roce_packet.h"

#include <bit>
#include <cstring>
#include <optional>

#include "wire/layout.h"

namespace airdma::wire {
namespace {

// Extended headers are read and written where a cursor stands. The length of all of them was
// checked, or made sure of, before the first.

template <Layout T>
T take(Bytes& rest) {
  T layout;
  std::memcpy(static_cast<void*>(&layout), rest.data(), sizeof(T));
  rest = rest.subspan(sizeof(T));
  return layout;
}

template <Layout T>
void put(MutableBytes& rest, const T& layout) {
  std::memcpy(rest.data(), &layout, sizeof(T));
  rest = rest.subspan(sizeof(T));
}

void read_bth(RocePacket& packet, const Bth& bth) {
  packet.solicited = Bth::Solicited::get(bth) != 0;
  packet.migrated = Bth::Migrated::get(bth) != 0;
  packet.pad_bytes = Bth::Pad::get(bth);
  packet.pkey = Pkey{bth.pkey.get()};
  packet.fecn = Bth::Fecn::get(bth) != 0;
  packet.becn = Bth::Becn::get(bth) != 0;
  packet.destination = Qpn{Bth::DestinationQpn::get(bth)};
  packet.ack_request = Bth::AckRequest::get(bth) != 0;
  packet.psn = Psn{Bth::PacketNumber::get(bth)};
}

Bth bth_of(const RocePacket& packet) {
  Bth bth;
  bth.opcode = packet.info->opcode;
  Bth::Solicited::set(bth, packet.solicited);
  Bth::Migrated::set(bth, packet.migrated);
  Bth::Pad::set(bth, packet.pad_bytes);
  bth.pkey = packet.pkey.value();
  Bth::Fecn::set(bth, packet.fecn);
  Bth::Becn::set(bth, packet.becn);
  Bth::DestinationQpn::set(bth, packet.destination.value());
  Bth::AckRequest::set(bth, packet.ack_request);
  Bth::PacketNumber::set(bth, packet.psn.value());
  return bth;
}

void read_reth(RocePacket& packet, const Reth& reth) {
  packet.remote = {reth.address.get(), Stag{reth.rkey.get()}, reth.bytes.get()};
}

void read_atomic(RocePacket& packet, const AtomicEth& atomic) {
  packet.atomic = {atomic.address.get(), Stag{atomic.rkey.get()}, atomic.swap_or_add.get(),
                   atomic.compare.get()};
}

void read_aeth(RocePacket& packet, const Aeth& aeth) {
  packet.acknowledgement = {static_cast<AckKind>(Aeth::Kind::get(aeth)),
                            static_cast<std::uint8_t>(Aeth::Value::get(aeth)),
                            AckMsn{Aeth::MessageNumber::get(aeth)}};
}

Aeth aeth_of(const Acknowledgement& acknowledgement) {
  Aeth aeth;
  Aeth::Kind::set(aeth, static_cast<std::uint32_t>(acknowledgement.kind));
  Aeth::Value::set(aeth, acknowledgement.value);
  Aeth::MessageNumber::set(aeth, acknowledgement.msn.value());
  return aeth;
}

void read_deth(RocePacket& packet, const Deth& deth) {
  packet.qkey = Qkey{deth.qkey.get()};
  packet.source = Qpn{Deth::SourceQpn::get(deth)};
}

Deth deth_of(const RocePacket& packet) {
  Deth deth;
  deth.qkey = packet.qkey.value();
  Deth::SourceQpn::set(deth, packet.source.value());
  return deth;
}

/// `rest` is what follows the BTH; the payload and its pad are what is left of it.
void read_extended(RocePacket& packet, Bytes& rest) {
  const RoceOpcodeInfo& info = *packet.info;
  if (info.has(kHasXrcEth)) {
    packet.srqn = Srqn{XrcEth::SharedQueue::get(take<XrcEth>(rest))};
  }
  if (info.has(kHasDeth)) read_deth(packet, take<Deth>(rest));
  if (info.has(kHasReth)) read_reth(packet, take<Reth>(rest));
  if (info.has(kHasAtomicEth)) read_atomic(packet, take<AtomicEth>(rest));
  if (info.has(kHasAeth)) read_aeth(packet, take<Aeth>(rest));
  if (info.has(kHasAtomicAckEth)) packet.original = take<AtomicAckEth>(rest).original.get();
  if (info.has(kHasImmDt)) packet.immediate = std::bit_cast<std::uint32_t>(take<ImmDt>(rest));
  if (info.has(kHasIeth)) packet.invalidate = Stag{take<Ieth>(rest).rkey.get()};
  if (info.has(kHasCnpReserved)) (void)take<CnpReserved>(rest);
}

void write_extended(MutableBytes rest, const RocePacket& packet) {
  const RoceOpcodeInfo& info = *packet.info;
  if (info.has(kHasXrcEth)) {
    XrcEth xrc;
    XrcEth::SharedQueue::set(xrc, packet.srqn.value());
    put(rest, xrc);
  }
  if (info.has(kHasDeth)) put(rest, deth_of(packet));
  if (info.has(kHasReth)) {
    put(rest, Reth{packet.remote.address, packet.remote.rkey.value(), packet.remote.bytes});
  }
  if (info.has(kHasAtomicEth)) {
    const AtomicOperands& atomic = packet.atomic;
    put(rest, AtomicEth{atomic.address, atomic.rkey.value(), atomic.swap_or_add, atomic.compare});
  }
  if (info.has(kHasAeth)) put(rest, aeth_of(packet.acknowledgement));
  if (info.has(kHasAtomicAckEth)) put(rest, AtomicAckEth{packet.original});
  if (info.has(kHasImmDt)) put(rest, std::bit_cast<ImmDt>(packet.immediate));
  if (info.has(kHasIeth)) put(rest, Ieth{packet.invalidate.value()});
  if (info.has(kHasCnpReserved)) put(rest, CnpReserved{});
}

/// Whether what follows the headers is a payload this opcode may have and the pad it claims.
bool lengths_hold(const RocePacket& packet, std::size_t rest_bytes) {
  if (packet.pad_bytes > rest_bytes || rest_bytes % 4 != 0) return false;
  const std::size_t payload_bytes = rest_bytes - packet.pad_bytes;
  if (packet.info->operation == Operation::kAtomicWrite) return payload_bytes == 8;
  return packet.info->may_carry_payload || rest_bytes == 0;
}

/// Fills `packet`, or says what is wrong.
std::optional<RoceFault> read_packet(RocePacket& packet, Bytes bytes) {
  if (bytes.size() < sizeof(Bth)) return RoceFault::kTruncated;
  Bytes rest = bytes;
  const Bth bth = take<Bth>(rest);
  const RoceOpcodeInfo& info = kRoceOpcodes[bth.opcode.get()];
  if (Bth::Version::get(bth) != kTransportVersion) return RoceFault::kVersion;
  if (!info.known) return RoceFault::kOpcode;
  if (bytes.size() < info.header_bytes) return RoceFault::kLength;
  packet.info = &info;
  read_bth(packet, bth);
  read_extended(packet, rest);
  if (!lengths_hold(packet, rest.size())) return RoceFault::kLength;
  packet.payload = rest.first(rest.size() - packet.pad_bytes);
  return std::nullopt;
}

RoceParseError error_of(RoceFault fault, Bytes bytes) {
  const auto bth = load<Bth>(bytes);
  if (!bth) return {};
  return {.fault = fault,
          .opcode = bth->opcode.get(),
          .pkey = Pkey{bth->pkey.get()},
          .destination = Qpn{Bth::DestinationQpn::get(*bth)},
          .psn = Psn{Bth::PacketNumber::get(*bth)}};
}

}  // namespace

std::expected<RocePacket, RoceParseError> parse_roce_packet(Bytes bytes) {
  // One object from end to end: a packet is large enough for a copy to show.
  std::expected<RocePacket, RoceParseError> result;
  if (const auto fault = read_packet(*result, bytes)) {
    result = std::unexpected(error_of(*fault, bytes));
  }
  return result;
}

std::size_t emit_roce_headers(MutableBytes out, const RocePacket& packet) {
  const std::size_t length = packet.info->header_bytes;
  if (out.size() < length) return 0;
  MutableBytes rest = out.first(length);
  put(rest, bth_of(packet));
  write_extended(rest, packet);
  return length;
}

}  // namespace airdma::wire
