// SPDX-License-Identifier: MIT
// RoCEv2 packets as values: what lies between the UDP header and the ICRC (IBTA vol. 1, ch. 9;
// A17). The ICRC itself is wire/icrc.h's, since it covers IP and UDP headers too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/psn.h"
#include "wire/bth.h"
#include "wire/roce_opcode.h"

namespace airdma::wire {

/// Bytes that round a payload up to a multiple of four, 0..3; they are sent as zeros.
[[nodiscard]] constexpr std::uint8_t roce_pad_bytes(std::size_t payload_bytes) {
  return static_cast<std::uint8_t>((4 - payload_bytes % 4) % 4);
}

/// RETH: the range of the whole message.
struct RemoteRange {
  std::uint64_t address = 0;
  Stag rkey;
  std::uint32_t bytes = 0;
  friend bool operator==(const RemoteRange&, const RemoteRange&) = default;
};

/// AtomicETH.
struct AtomicOperands {
  std::uint64_t address = 0;
  Stag rkey;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  friend bool operator==(const AtomicOperands&, const AtomicOperands&) = default;
};

/// Bits 6..5 of an AETH's syndrome (IBTA vol. 1, 9.7.5.2.1).
enum class AckKind : std::uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };

/// Value of a NAK. Off the wire it may be any of five bits.
enum class NakCode : std::uint8_t {
  kPsnSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperational = 3,
  kInvalidRdRequest = 4,
};

/// Credit count of an ACK whose sender does not use end-to-end flow control.
inline constexpr std::uint8_t kNoCredits = 31;

/// AETH. `value` is by kind: credits of an ACK, timer code of an RNR NAK, NakCode of a NAK.
struct Acknowledgement {
  AckKind kind = AckKind::kAck;
  std::uint8_t value = kNoCredits;  // five bits
  AckMsn msn;

  [[nodiscard]] static constexpr Acknowledgement ack(AckMsn msn,
                                                     std::uint8_t credits = kNoCredits) {
    return {AckKind::kAck, credits, msn};
  }
  [[nodiscard]] static constexpr Acknowledgement nak(NakCode code, AckMsn msn) {
    return {AckKind::kNak, static_cast<std::uint8_t>(code), msn};
  }
  [[nodiscard]] static constexpr Acknowledgement rnr_nak(std::uint8_t timer, AckMsn msn) {
    return {AckKind::kRnrNak, timer, msn};
  }
  [[nodiscard]] constexpr bool is_nak(NakCode code) const {
    return kind == AckKind::kNak && value == static_cast<std::uint8_t>(code);
  }
  friend bool operator==(const Acknowledgement&, const Acknowledgement&) = default;
};

/// One packet. Of the extended headers only those that info->headers names have a meaning.
struct RocePacket {
  const RoceOpcodeInfo* info = &kRoceOpcodes[0];  // never null, and `known`
  bool solicited = false;                         // raises a solicited event at the receiver
  bool migrated = false;
  bool ack_request = false;
  bool fecn = false;
  bool becn = false;
  std::uint8_t pad_bytes = 0;
  Pkey pkey;
  Qpn destination;
  Psn psn;

  Srqn srqn;           // XRCETH
  Qkey qkey;           // DETH
  Qpn source;          // DETH
  RemoteRange remote;  // RETH
  AtomicOperands atomic;
  Acknowledgement acknowledgement;
  std::uint64_t original = 0;   // AtomicAckETH: the value before the operation
  std::uint32_t immediate = 0;  // as the program has it: in network byte order
  Stag invalidate;              // IETH

  Bytes payload;  // without its pad
};

/// Why a packet is none.
enum class RoceFault : std::uint8_t {
  kTruncated,  // no whole BTH
  kVersion,
  kOpcode,  // not defined
  kLength,  // headers, payload and pad do not add up
};

/// A packet that cannot be read, with what its BTH says where there is one: a responder answers
/// some of these (IBTA vol. 1, 9.7.4.1), and has to know for which queue pair and packet.
struct RoceParseError {
  RoceFault fault = RoceFault::kTruncated;
  std::uint8_t opcode = 0;
  Pkey pkey{};
  Qpn destination;
  Psn psn;
};

/// The packet in a UDP payload whose last four bytes, the ICRC, are left off. The payload of the
/// result points into `bytes`.
[[nodiscard]] std::expected<RocePacket, RoceParseError> parse_roce_packet(Bytes bytes);

/// Writes BTH and extended headers; payload and pad are the caller's. Answers their length,
/// info->header_bytes, or 0 when they do not fit.
[[nodiscard]] std::size_t emit_roce_headers(MutableBytes out, const RocePacket& packet);

}  // namespace airdma::wire
