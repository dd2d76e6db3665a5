// SPDX-License-Identifier: MIT
// RoCEv2 packets as text.
#include <bit>

#include "base/be.h"
#include "wire/print.h"
#include "wire/text.h"

namespace airdma::wire {
namespace {

std::string_view name_of(Service service) {
  switch (service) {
    case Service::kRc:
      return "RC ";
    case Service::kUc:
      return "UC ";
    case Service::kUd:
      return "UD ";
    case Service::kXrc:
      return "XRC ";
    case Service::kCnp:
      return "";  // the operation says it
  }
  return "";
}

std::string_view describe(RoceFault fault) {
  switch (fault) {
    case RoceFault::kTruncated:
      return "too short";
    case RoceFault::kVersion:
      return "unknown transport version";
    case RoceFault::kOpcode:
      return "undefined opcode";
    case RoceFault::kLength:
      return "lengths do not add up";
  }
  return "";
}

void put(Text& text, const Acknowledgement& acknowledgement) {
  switch (acknowledgement.kind) {
    case AckKind::kAck:
      text << "ACK";
      if (acknowledgement.value != kNoCredits) (text << " credits=").dec(acknowledgement.value);
      break;
    case AckKind::kRnrNak:
      (text << "RNR_NAK timer=").dec(acknowledgement.value);
      break;
    case AckKind::kReserved:
      (text << "reserved syndrome ").dec(acknowledgement.value);
      break;
    case AckKind::kNak:
      text << "NAK " << describe(static_cast<NakCode>(acknowledgement.value));
      break;
  }
  (text << " msn=").dec(acknowledgement.msn.value());
}

void put_target(Text& text, std::uint64_t address, Stag rkey) {
  (text << " to=").hex(address);
  (text << ":").hex(rkey.value());
}

void put_atomic(Text& text, const RocePacket& packet) {
  put_target(text, packet.atomic.address, packet.atomic.rkey);
  const bool compare = packet.info->operation == Operation::kCompareSwap;
  (text << (compare ? " swap=" : " add=")).hex(packet.atomic.swap_or_add);
  if (compare) (text << " compare=").hex(packet.atomic.compare);
}

void put_flags(Text& text, const RocePacket& packet) {
  text.flag(" A=", packet.ack_request);
  if (packet.solicited) text << " S=1";
  if (packet.migrated) text << " M=1";
  if (packet.fecn) text << " FECN";
  if (packet.becn) text << " BECN";
}

void put_extended(Text& text, const RocePacket& packet) {
  const RoceOpcodeInfo& info = *packet.info;
  if (info.has(kHasXrcEth)) (text << " srq=").hex(packet.srqn.value());
  if (info.has(kHasDeth)) {
    (text << " from=").hex(packet.source.value());
    (text << " qkey=").hex(packet.qkey.value());
  }
  if (info.has(kHasReth)) {
    put_target(text, packet.remote.address, packet.remote.rkey);
    (text << " bytes=").dec(packet.remote.bytes);
  }
  if (info.has(kHasAtomicEth)) put_atomic(text, packet);
  if (info.has(kHasAeth)) put(text << " ", packet.acknowledgement);
  if (info.has(kHasAtomicAckEth)) (text << " original=").hex(packet.original);
  if (info.has(kHasImmDt)) (text << " imm=").hex(std::bit_cast<be32>(packet.immediate).get());
  if (info.has(kHasIeth)) (text << " invalidate=").hex(packet.invalidate.value());
}

void put(Text& text, const RocePacket& packet) {
  text << name_of(packet.info->service) << packet.info->name;
  (text << " qp=").hex(packet.destination.value());
  if (packet.info->service != Service::kCnp) {
    (text << " psn=").hex(packet.psn.value());
    put_flags(text, packet);
  }
  put_extended(text, packet);
  if (packet.info->may_carry_payload) (text << " len=").dec(packet.payload.size());
}

void put(Text& text, const RoceParseError& error, std::size_t bytes) {
  if (error.fault != RoceFault::kTruncated) {
    (text << "opcode ").hex(error.opcode, 2);
    (text << " qp=").hex(error.destination.value());
    (text << " psn=").hex(error.psn.value()) << " ";
  }
  (text << "(" << describe(error.fault) << ") len=").dec(bytes);
}

}  // namespace

std::string_view describe(NakCode code) {
  switch (code) {
    case NakCode::kPsnSequence:
      return "PSN sequence error";
    case NakCode::kInvalidRequest:
      return "invalid request";
    case NakCode::kRemoteAccess:
      return "remote access error";
    case NakCode::kRemoteOperational:
      return "remote operational error";
    case NakCode::kInvalidRdRequest:
      return "invalid RD request";
  }
  return "reserved";
}

std::string_view print(std::span<char> out, const RocePacket& packet) {
  Text text(out);
  put(text, packet);
  return text.view();
}

std::string_view print(std::span<char> out, const Acknowledgement& acknowledgement) {
  Text text(out);
  put(text, acknowledgement);
  return text.view();
}

std::string_view print_roce(std::span<char> out, Bytes bytes) {
  Text text(out);
  const auto packet = parse_roce_packet(bytes);
  if (packet) {
    put(text, *packet);
  } else {
    put(text, packet.error(), bytes.size());
  }
  return text.view();
}

}  // namespace airdma::wire
