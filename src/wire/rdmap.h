// SPDX-License-Identifier: MIT
// RDMAP messages (RFC 5040 4, RFC 7306): the one table of opcodes, and the messages that have a
// fixed payload. Terminate is in terminate.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/be.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/indexed.h"
#include "wire/ddp.h"

namespace airdma::wire {

enum class Opcode : std::uint8_t {
  kWrite = 0x0,
  kReadRequest = 0x1,
  kReadResponse = 0x2,
  kSend = 0x3,
  kSendInvalidate = 0x4,
  kSendSolicited = 0x5,
  kSendSolicitedInvalidate = 0x6,
  kTerminate = 0x7,
  kImmediate = 0x8,
  kImmediateSolicited = 0x9,
  kAtomicRequest = 0xa,
  kAtomicResponse = 0xb,
};

struct OpcodeInfo {
  Opcode opcode;
  std::string_view name;
  bool tagged;        // the DDP model it must use
  QueueNumber queue;  // untagged only
  bool solicited;     // raises a solicited event at the receiver
  bool invalidates;   // the header's STag field names a region to invalidate
  bool extension;     // RFC 7306: a peer of RFC 5040 alone does not know it
  // Payload bytes of the whole message. Where both are equal the message is one DDP segment.
  std::uint32_t min_payload_bytes;
  std::uint32_t max_payload_bytes;
};

/// Fixed payloads below; static_asserts hold them to the layouts.
inline constexpr std::uint32_t kReadRequestBytes = 28;
inline constexpr std::uint32_t kImmediateBytes = 8;
inline constexpr std::uint32_t kAtomicRequestBytes = 52;
inline constexpr std::uint32_t kAtomicResponseBytes = 12;
/// Control word, segment length, untagged header and Read Request header.
inline constexpr std::uint32_t kTerminateMinBytes = 4;
inline constexpr std::uint32_t kTerminateMaxBytes = 4 + 2 + 18 + 28;
inline constexpr std::uint32_t kAnyBytes = 0xffffffff;

// clang-format off
/// Indexed by the opcode's value.
inline constexpr std::array<OpcodeInfo, 12> kOpcodes{{
    // opcode                            name           tagged queue                         solic. inval. ext.   min max
    {Opcode::kWrite,                   "WRITE",         true,  QueueNumber::kSend,           false, false, false, 0, kAnyBytes},
    {Opcode::kReadRequest,             "READ_REQ",      false, QueueNumber::kReadRequest,    false, false, false, kReadRequestBytes, kReadRequestBytes},
    {Opcode::kReadResponse,            "READ_RESP",     true,  QueueNumber::kSend,           false, false, false, 0, kAnyBytes},
    {Opcode::kSend,                    "SEND",          false, QueueNumber::kSend,           false, false, false, 0, kAnyBytes},
    {Opcode::kSendInvalidate,          "SEND_INV",      false, QueueNumber::kSend,           false, true,  false, 0, kAnyBytes},
    {Opcode::kSendSolicited,           "SEND_SE",       false, QueueNumber::kSend,           true,  false, false, 0, kAnyBytes},
    {Opcode::kSendSolicitedInvalidate, "SEND_SE_INV",   false, QueueNumber::kSend,           true,  true,  false, 0, kAnyBytes},
    {Opcode::kTerminate,               "TERMINATE",     false, QueueNumber::kTerminate,      false, false, false, kTerminateMinBytes, kTerminateMaxBytes},
    {Opcode::kImmediate,               "IMMEDIATE",     false, QueueNumber::kSend,           false, false, true,  kImmediateBytes, kImmediateBytes},
    {Opcode::kImmediateSolicited,      "IMMEDIATE_SE",  false, QueueNumber::kSend,           true,  false, true,  kImmediateBytes, kImmediateBytes},
    {Opcode::kAtomicRequest,           "ATOMIC_REQ",    false, QueueNumber::kReadRequest,    false, false, true,  kAtomicRequestBytes, kAtomicRequestBytes},
    {Opcode::kAtomicResponse,          "ATOMIC_RESP",   false, QueueNumber::kAtomicResponse, false, false, true,  kAtomicResponseBytes, kAtomicResponseBytes},
}};
// clang-format on

static_assert(is_indexed(kOpcodes, &OpcodeInfo::opcode, Opcode::kAtomicResponse));

/// The row of an opcode off the wire, or nullptr for one that no RFC defines.
[[nodiscard]] constexpr const OpcodeInfo* find_opcode(std::uint8_t opcode) {
  return opcode < kOpcodes.size() ? &kOpcodes[opcode] : nullptr;
}
[[nodiscard]] constexpr const OpcodeInfo& info(Opcode opcode) {
  return kOpcodes[static_cast<std::size_t>(opcode)];
}

/// A tagged header as this side sends it.
[[nodiscard]] constexpr SegmentHeader tagged_header(Opcode opcode, bool last, Stag stag,
                                                    std::uint64_t tagged_offset) {
  SegmentHeader header;
  header.tagged = true;
  header.last = last;
  header.opcode = static_cast<std::uint8_t>(opcode);
  header.stag = stag;
  header.tagged_offset = tagged_offset;
  return header;
}
/// An untagged header as this side sends it; the queue is the opcode's.
[[nodiscard]] constexpr SegmentHeader untagged_header(Opcode opcode, bool last, Msn msn,
                                                      std::uint32_t message_offset,
                                                      Stag invalidate_stag = {}) {
  SegmentHeader header;
  header.last = last;
  header.opcode = static_cast<std::uint8_t>(opcode);
  header.queue = info(opcode).queue;
  header.msn = msn;
  header.message_offset = message_offset;
  header.invalidate_stag = invalidate_stag;
  return header;
}

// Read Request (RFC 5040 4.4).

struct ReadRequestLayout {
  be32 sink_stag;
  be64 sink_offset;
  be32 read_bytes;
  be32 source_stag;
  be64 source_offset;
};
static_assert(sizeof(ReadRequestLayout) == kReadRequestBytes);

struct ReadRequest {
  Stag sink_stag;
  std::uint64_t sink_offset = 0;
  std::uint32_t read_bytes = 0;
  Stag source_stag;
  std::uint64_t source_offset = 0;
  friend bool operator==(const ReadRequest&, const ReadRequest&) = default;
};

// Immediate Data (RFC 7306): eight bytes, opaque to RDMAP.

struct ImmediateLayout {
  be64 data;
};
static_assert(sizeof(ImmediateLayout) == kImmediateBytes);

struct Immediate {
  std::uint64_t data = 0;
  friend bool operator==(const Immediate&, const Immediate&) = default;
};

// Atomic operations (RFC 7306).

struct AtomicRequestLayout {
  be32 operation_word;
  be32 request_id;
  be32 stag;
  be64 tagged_offset;
  be64 add_or_swap_data;
  be64 add_or_swap_mask;
  be64 compare_data;
  be64 compare_mask;

  using Operation = Field<&AtomicRequestLayout::operation_word, 28, 4>;
};
static_assert(sizeof(AtomicRequestLayout) == kAtomicRequestBytes);

struct AtomicResponseLayout {
  be32 request_id;
  be64 original_value;
};
static_assert(sizeof(AtomicResponseLayout) == kAtomicResponseBytes);

/// Off the wire it may hold any 4-bit value.
enum class AtomicOperation : std::uint8_t { kFetchAdd = 0, kCompareSwap = 2 };

struct AtomicRequest {
  AtomicOperation operation = AtomicOperation::kFetchAdd;
  std::uint32_t request_id = 0;
  Stag stag{};
  std::uint64_t tagged_offset = 0;
  std::uint64_t add_or_swap_data = 0;
  std::uint64_t add_or_swap_mask = 0;
  std::uint64_t compare_data = 0;
  std::uint64_t compare_mask = 0;
  friend bool operator==(const AtomicRequest&, const AtomicRequest&) = default;
};

struct AtomicResponse {
  std::uint32_t request_id = 0;
  std::uint64_t original_value = 0;
  friend bool operator==(const AtomicResponse&, const AtomicResponse&) = default;
};

// Each parse takes the payload of a segment (what follows the DDP header) and answers nothing when
// it is too short; bytes beyond the layout are ignored here, the caller knows the length. Each
// emit answers the bytes written, 0 when they do not fit.
[[nodiscard]] std::optional<ReadRequest> parse_read_request(Bytes payload);
[[nodiscard]] std::size_t emit_read_request(MutableBytes out, const ReadRequest& request);
[[nodiscard]] std::optional<Immediate> parse_immediate(Bytes payload);
[[nodiscard]] std::size_t emit_immediate(MutableBytes out, const Immediate& immediate);
[[nodiscard]] std::optional<AtomicRequest> parse_atomic_request(Bytes payload);
[[nodiscard]] std::size_t emit_atomic_request(MutableBytes out, const AtomicRequest& request);
[[nodiscard]] std::optional<AtomicResponse> parse_atomic_response(Bytes payload);
[[nodiscard]] std::size_t emit_atomic_response(MutableBytes out, const AtomicResponse& response);

}  // namespace airdma::wire
