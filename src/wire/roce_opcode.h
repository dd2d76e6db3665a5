// SPDX-License-Identifier: MIT
// The one table of RoCEv2 opcodes (IBTA vol. 1, 9.2.1 and table 38; A14 for XRC, A17.9.3 for CNP).
// An opcode byte is a service (upper three bits) and an operation with its place in the message
// (lower five), so the table is written once for the five bits and spread over the services.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/bth.h"

namespace airdma::wire {

/// Upper three bits of an opcode. RD (2) is not implemented by anything there is.
enum class Service : std::uint8_t { kRc = 0, kUc = 1, kUd = 3, kCnp = 4, kXrc = 5 };

/// What a packet does, its place in a message left aside.
enum class Operation : std::uint8_t {
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kAtomicWrite,
  kCongestionNotification,
};

/// Place of a packet in its message.
enum class Position : std::uint8_t { kFirst, kMiddle, kLast, kOnly };

/// Lower five bits of an opcode.
enum class PacketCode : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImmediate = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImmediate = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImmediate = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImmediate = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kAtomicWrite = 0x1d,
};

/// Extended headers, as bits. Packets carry them in the order of these values.
enum ExtendedHeader : std::uint16_t {
  kHasXrcEth = 1 << 0,
  kHasDeth = 1 << 1,
  kHasReth = 1 << 2,
  kHasAtomicEth = 1 << 3,
  kHasAeth = 1 << 4,
  kHasAtomicAckEth = 1 << 5,
  kHasImmDt = 1 << 6,
  kHasIeth = 1 << 7,
  kHasCnpReserved = 1 << 8,
};

/// One opcode.
struct RoceOpcodeInfo {
  std::uint8_t opcode = 0;
  bool known = false;     // false: no row, and nothing else in it means anything
  std::string_view name;  // of the operation, without the service
  Service service = Service::kRc;
  PacketCode code = PacketCode::kSendFirst;
  Operation operation = Operation::kSend;
  Position position = Position::kOnly;
  std::uint16_t headers = 0;      // ExtendedHeader bits
  std::uint8_t header_bytes = 0;  // BTH and extended headers
  bool may_carry_payload = false;
  bool is_request = false;  // from requester to responder

  [[nodiscard]] constexpr bool has(ExtendedHeader header) const { return (headers & header) != 0; }
  [[nodiscard]] constexpr bool starts() const {
    return position == Position::kFirst || position == Position::kOnly;
  }
  [[nodiscard]] constexpr bool ends() const {
    return position == Position::kLast || position == Position::kOnly;
  }
};

/// BTH, XRCETH and AtomicETH.
inline constexpr std::size_t kMaxRoceHeaderBytes = 12 + 4 + 28;

namespace detail {

// Services that a row holds for.
inline constexpr unsigned kOnRc = 1u << 0;
inline constexpr unsigned kOnUc = 1u << 1;
inline constexpr unsigned kOnUd = 1u << 3;
inline constexpr unsigned kOnXrc = 1u << 5;
inline constexpr unsigned kReliable = kOnRc | kOnXrc;
inline constexpr unsigned kConnected = kReliable | kOnUc;
inline constexpr unsigned kEverywhere = kConnected | kOnUd;

struct OperationRow {
  PacketCode code;
  std::string_view name;
  Operation operation;
  Position position;
  std::uint16_t headers;  // those that every service has
  bool may_carry_payload;
  bool is_request;
  unsigned services;
};

// clang-format off
inline constexpr std::array<OperationRow, 24> kOperationRows{{
    // code                            name              operation                      position           headers                      payld. requ. services
    {PacketCode::kSendFirst,          "SEND_FIRST",      Operation::kSend,              Position::kFirst,  0,                           true,  true,  kConnected},
    {PacketCode::kSendMiddle,         "SEND_MIDDLE",     Operation::kSend,              Position::kMiddle, 0,                           true,  true,  kConnected},
    {PacketCode::kSendLast,           "SEND_LAST",       Operation::kSend,              Position::kLast,   0,                           true,  true,  kConnected},
    {PacketCode::kSendLastImmediate,  "SEND_LAST_IMM",   Operation::kSend,              Position::kLast,   kHasImmDt,                   true,  true,  kConnected},
    {PacketCode::kSendOnly,           "SEND_ONLY",       Operation::kSend,              Position::kOnly,   0,                           true,  true,  kEverywhere},
    {PacketCode::kSendOnlyImmediate,  "SEND_ONLY_IMM",   Operation::kSend,              Position::kOnly,   kHasImmDt,                   true,  true,  kEverywhere},
    {PacketCode::kWriteFirst,         "WRITE_FIRST",     Operation::kWrite,             Position::kFirst,  kHasReth,                    true,  true,  kConnected},
    {PacketCode::kWriteMiddle,        "WRITE_MIDDLE",    Operation::kWrite,             Position::kMiddle, 0,                           true,  true,  kConnected},
    {PacketCode::kWriteLast,          "WRITE_LAST",      Operation::kWrite,             Position::kLast,   0,                           true,  true,  kConnected},
    {PacketCode::kWriteLastImmediate, "WRITE_LAST_IMM",  Operation::kWrite,             Position::kLast,   kHasImmDt,                   true,  true,  kConnected},
    {PacketCode::kWriteOnly,          "WRITE_ONLY",      Operation::kWrite,             Position::kOnly,   kHasReth,                    true,  true,  kConnected},
    {PacketCode::kWriteOnlyImmediate, "WRITE_ONLY_IMM",  Operation::kWrite,             Position::kOnly,   kHasReth | kHasImmDt,        true,  true,  kConnected},
    {PacketCode::kReadRequest,        "READ_REQUEST",    Operation::kReadRequest,       Position::kOnly,   kHasReth,                    false, true,  kReliable},
    {PacketCode::kReadResponseFirst,  "READ_RESP_FIRST", Operation::kReadResponse,      Position::kFirst,  kHasAeth,                    true,  false, kReliable},
    {PacketCode::kReadResponseMiddle, "READ_RESP_MIDDLE", Operation::kReadResponse,     Position::kMiddle, 0,                           true,  false, kReliable},
    {PacketCode::kReadResponseLast,   "READ_RESP_LAST",  Operation::kReadResponse,      Position::kLast,   kHasAeth,                    true,  false, kReliable},
    {PacketCode::kReadResponseOnly,   "READ_RESP_ONLY",  Operation::kReadResponse,      Position::kOnly,   kHasAeth,                    true,  false, kReliable},
    {PacketCode::kAcknowledge,        "ACK",             Operation::kAcknowledge,       Position::kOnly,   kHasAeth,                    false, false, kReliable},
    {PacketCode::kAtomicAcknowledge,  "ATOMIC_ACK",      Operation::kAtomicAcknowledge, Position::kOnly,   kHasAeth | kHasAtomicAckEth, false, false, kReliable},
    {PacketCode::kCompareSwap,        "CMP_SWAP",        Operation::kCompareSwap,       Position::kOnly,   kHasAtomicEth,               false, true,  kReliable},
    {PacketCode::kFetchAdd,           "FETCH_ADD",       Operation::kFetchAdd,          Position::kOnly,   kHasAtomicEth,               false, true,  kReliable},
    {PacketCode::kSendLastInvalidate, "SEND_LAST_INV",   Operation::kSend,              Position::kLast,   kHasIeth,                    true,  true,  kReliable},
    {PacketCode::kSendOnlyInvalidate, "SEND_ONLY_INV",   Operation::kSend,              Position::kOnly,   kHasIeth,                    true,  true,  kReliable},
    {PacketCode::kAtomicWrite,        "ATOMIC_WRITE",    Operation::kAtomicWrite,       Position::kOnly,   kHasReth,                    true,  true,  kReliable},
}};
// clang-format on

/// Bytes of the BTH and of these extended headers.
constexpr std::uint8_t header_bytes(unsigned headers) {
  constexpr std::array<std::uint8_t, 9> kSizes{
      sizeof(XrcEth),       sizeof(Deth),  sizeof(Reth), sizeof(AtomicEth),  sizeof(Aeth),
      sizeof(AtomicAckEth), sizeof(ImmDt), sizeof(Ieth), sizeof(CnpReserved)};
  std::size_t bytes = sizeof(Bth);
  for (std::size_t i = 0; i < kSizes.size(); ++i) bytes += (headers >> i & 1) * kSizes[i];
  return static_cast<std::uint8_t>(bytes);
}

/// Opcode 0x81, IBTA A17.9.3. It belongs to no queue pair's sequence of packets.
constexpr RoceOpcodeInfo notification_row() {
  RoceOpcodeInfo row;
  row.opcode = 0x81;
  row.known = true;
  row.name = "CNP";
  row.service = Service::kCnp;
  row.operation = Operation::kCongestionNotification;
  row.headers = kHasCnpReserved;
  row.header_bytes = header_bytes(row.headers);
  return row;
}

constexpr RoceOpcodeInfo row_of(Service service, const OperationRow& from) {
  RoceOpcodeInfo row;
  row.opcode = static_cast<std::uint8_t>(static_cast<unsigned>(service) << 5 |
                                         static_cast<unsigned>(from.code));
  row.known = true;
  row.name = from.name;
  row.service = service;
  row.code = from.code;
  row.operation = from.operation;
  row.position = from.position;
  row.headers = from.headers;
  if (service == Service::kUd) row.headers |= kHasDeth;
  // Requests name the queue that takes what they bring; answers go to the one queue pair that
  // asked.
  if (service == Service::kXrc && from.is_request) row.headers |= kHasXrcEth;
  row.header_bytes = header_bytes(row.headers);
  row.may_carry_payload = from.may_carry_payload;
  row.is_request = from.is_request;
  return row;
}

constexpr std::array<RoceOpcodeInfo, 256> make_opcode_table() {
  std::array<RoceOpcodeInfo, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i].opcode = static_cast<std::uint8_t>(i);
  for (const OperationRow& row : kOperationRows) {
    for (const Service service : {Service::kRc, Service::kUc, Service::kUd, Service::kXrc}) {
      if ((row.services >> static_cast<unsigned>(service) & 1) == 0) continue;
      const RoceOpcodeInfo info = row_of(service, row);
      table[info.opcode] = info;
    }
  }
  table[notification_row().opcode] = notification_row();
  return table;
}

}  // namespace detail

/// Indexed by the opcode byte; opcodes that do not exist have `known` false.
inline constexpr std::array<RoceOpcodeInfo, 256> kRoceOpcodes = detail::make_opcode_table();

/// The row of an opcode off the wire, or nullptr for one that does not exist.
[[nodiscard]] constexpr const RoceOpcodeInfo* find_roce_opcode(std::uint8_t opcode) {
  return kRoceOpcodes[opcode].known ? &kRoceOpcodes[opcode] : nullptr;
}
/// The row of an opcode that exists: the caller pairs only services and codes that go together.
[[nodiscard]] constexpr const RoceOpcodeInfo& roce_info(Service service, PacketCode code) {
  return kRoceOpcodes[static_cast<unsigned>(service) << 5 | static_cast<unsigned>(code)];
}
[[nodiscard]] constexpr const RoceOpcodeInfo& cnp_info() { return kRoceOpcodes[0x81]; }

/// What a message brings besides its payload; it stands in the last packet.
enum class Tail : std::uint8_t { kNone, kImmediate, kInvalidate };

// The code of a packet by its place in the message. `first` and `last` both: the only packet.

[[nodiscard]] constexpr PacketCode send_code(bool first, bool last, Tail tail = Tail::kNone) {
  if (!last) return first ? PacketCode::kSendFirst : PacketCode::kSendMiddle;
  switch (tail) {
    case Tail::kNone:
      break;
    case Tail::kImmediate:
      return first ? PacketCode::kSendOnlyImmediate : PacketCode::kSendLastImmediate;
    case Tail::kInvalidate:
      return first ? PacketCode::kSendOnlyInvalidate : PacketCode::kSendLastInvalidate;
  }
  return first ? PacketCode::kSendOnly : PacketCode::kSendLast;
}
[[nodiscard]] constexpr PacketCode write_code(bool first, bool last, bool immediate = false) {
  if (!last) return first ? PacketCode::kWriteFirst : PacketCode::kWriteMiddle;
  if (immediate) return first ? PacketCode::kWriteOnlyImmediate : PacketCode::kWriteLastImmediate;
  return first ? PacketCode::kWriteOnly : PacketCode::kWriteLast;
}
[[nodiscard]] constexpr PacketCode read_response_code(bool first, bool last) {
  if (!last) return first ? PacketCode::kReadResponseFirst : PacketCode::kReadResponseMiddle;
  return first ? PacketCode::kReadResponseOnly : PacketCode::kReadResponseLast;
}

}  // namespace airdma::wire
