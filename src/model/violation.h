// SPDX-License-Identifier: MIT
// Everything that ends an iWARP stream in an error, and for each the one row that says what goes
// on the wire (Terminate: RFC 5040 4.8), what the queue pairs on both sides report, and why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/indexed.h"
#include "model/completion.h"

namespace airdma::model {

enum class Violation : std::uint8_t {
  // MPA (RFC 5044 8).
  kMpaCrc,
  kMpaMarker,
  // DDP, any segment.
  kSegmentTooShort,
  kTaggedVersion,
  kUntaggedVersion,
  // DDP tagged buffers: RDMA Write and Read Response (RFC 5041 8.2).
  kTaggedInvalidStag,
  kTaggedOtherStream,
  kTaggedBounds,
  kTaggedOffsetWrap,
  // DDP untagged buffers (RFC 5041 8.3).
  kUntaggedQueue,
  kUntaggedNoBuffer,
  kUntaggedMsn,
  kUntaggedOffset,
  kUntaggedTooLong,
  // RDMAP (RFC 5040 7).
  kWriteDenied,
  kReadInvalidStag,
  kReadOtherStream,
  kReadBounds,
  kReadOffsetWrap,
  kReadDenied,
  kReadWithdrawn,
  kCannotInvalidate,
  kRdmapVersion,
  kUnexpectedOpcode,
  kMessageLength,
  kReadResponseLength,
  // Atomics (RFC 7306 5).
  kAtomicOperation,
  kAtomicUnaligned,
  kAtomicResponse,
  // This side's own.
  kSendBuffer,
  kReadSinkBuffer,
  kReceiveBuffer,
  kOperation,
  kMemoryOperation,
  kProgram,
};

/// Headers of the offending segment that the Terminate carries (RFC 5040 4.8).
enum class TerminateHeaders : std::uint8_t { kNone, kSegment };

struct ViolationInfo {
  Violation violation;
  // The Terminate's layer, error type and error code.
  std::uint8_t layer;
  std::uint8_t type;
  std::uint8_t code;
  TerminateHeaders headers;
  WcStatus local;                // of the work request it happened in; the rest is flushed
  WcStatus remote;               // of the peer's request to blame, unless it is complete
  std::optional<QpEvent> event;  // at the side that found it
  const char* text;
  const char* section;
};

// clang-format off
/// Indexed by the violation's value. Events follow what iWARP devices raise: ACCESS_ERR when a peer
/// (or a wrong buffer of our own) touches memory it may not, REQ_ERR for other mistakes of the
/// peer, FATAL when this side can go on no more.
inline constexpr std::array<ViolationInfo, 35> kViolations{{
    {Violation::kMpaCrc, 2, 0, 0x02, TerminateHeaders::kNone, WcStatus::kFlushError, WcStatus::kFlushError, QpEvent::kFatal, "an FPDU's CRC is wrong", "RFC 5044 8"},
    {Violation::kMpaMarker, 2, 0, 0x03, TerminateHeaders::kNone, WcStatus::kFlushError, WcStatus::kFlushError, QpEvent::kFatal, "a marker does not point to its FPDU", "RFC 5044 8"},
    {Violation::kSegmentTooShort, 1, 0, 0x00, TerminateHeaders::kNone, WcStatus::kFlushError, WcStatus::kFlushError, QpEvent::kRequestError, "an FPDU is too short for a DDP header", "RFC 5041 4"},
    {Violation::kTaggedVersion, 1, 1, 0x04, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "a tagged segment has an unknown DDP version", "RFC 5041 8.2"},
    {Violation::kUntaggedVersion, 1, 2, 0x06, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "an untagged segment has an unknown DDP version", "RFC 5041 8.3"},
    {Violation::kTaggedInvalidStag, 1, 1, 0x00, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a tagged segment names no memory of ours", "RFC 5041 8.2"},
    {Violation::kTaggedOtherStream, 1, 1, 0x02, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a tagged segment names memory of another protection domain", "RFC 5041 8.2"},
    {Violation::kTaggedBounds, 1, 1, 0x01, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a tagged segment leaves its region", "RFC 5041 8.2"},
    {Violation::kTaggedOffsetWrap, 1, 1, 0x03, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a tagged offset wraps", "RFC 5041 8.2"},
    {Violation::kUntaggedQueue, 1, 2, 0x01, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "an untagged segment names an unknown queue", "RFC 5041 8.3"},
    {Violation::kUntaggedNoBuffer, 1, 2, 0x02, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "more READs and atomics are outstanding than was agreed", "RFC 5041 8.3"},
    {Violation::kUntaggedMsn, 1, 2, 0x03, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "a message sequence number is not the next", "RFC 5041 8.3"},
    {Violation::kUntaggedOffset, 1, 2, 0x04, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "a message offset does not follow the one before", "RFC 5041 8.3"},
    {Violation::kUntaggedTooLong, 1, 2, 0x05, TerminateHeaders::kSegment, WcStatus::kLocalLengthError, WcStatus::kRemoteInvalidRequest, QpEvent::kFatal, "a message is longer than the receive it meets", "RFC 5041 8.3"},
    {Violation::kWriteDenied, 0, 1, 0x02, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a WRITE meets memory that denies it", "RFC 5040 7.2"},
    {Violation::kReadInvalidStag, 0, 1, 0x00, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a READ or atomic names no memory of ours", "RFC 5040 7.2"},
    {Violation::kReadOtherStream, 0, 1, 0x03, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a READ or atomic names memory of another protection domain", "RFC 5040 7.2"},
    {Violation::kReadBounds, 0, 1, 0x01, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a READ or atomic leaves its region", "RFC 5040 7.2"},
    {Violation::kReadOffsetWrap, 0, 1, 0x04, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a READ's tagged offset wraps", "RFC 5040 7.2"},
    {Violation::kReadDenied, 0, 1, 0x02, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a READ or atomic meets memory that denies it", "RFC 5040 7.2"},
    {Violation::kReadWithdrawn, 0, 1, 0x00, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "memory was deregistered while a READ or atomic waited for it", "RFC 5040 7.2"},
    {Violation::kCannotInvalidate, 0, 1, 0x09, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteAccessError, QpEvent::kAccessError, "a SEND wants to invalidate memory that cannot be", "RFC 5040 7.2"},
    {Violation::kRdmapVersion, 0, 2, 0x05, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "a segment has an unknown RDMAP version", "RFC 5040 7.2"},
    {Violation::kUnexpectedOpcode, 0, 2, 0x06, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "an opcode does not belong here", "RFC 5040 7.2"},
    {Violation::kMessageLength, 0, 2, 0xff, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "a message of fixed length has another", "RFC 5040 4"},
    {Violation::kReadResponseLength, 0, 2, 0xff, TerminateHeaders::kSegment, WcStatus::kBadResponse, WcStatus::kFlushError, QpEvent::kRequestError, "a Read Response ends before its READ", "RFC 5040 5.2"},
    {Violation::kAtomicOperation, 0, 2, 0x06, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "an atomic operation is none that is known", "RFC 7306 5.2"},
    {Violation::kAtomicUnaligned, 0, 2, 0xff, TerminateHeaders::kSegment, WcStatus::kFlushError, WcStatus::kRemoteInvalidRequest, QpEvent::kRequestError, "an atomic's address is not a multiple of eight", "RFC 7306 5.2"},
    {Violation::kAtomicResponse, 0, 2, 0xff, TerminateHeaders::kSegment, WcStatus::kBadResponse, WcStatus::kFlushError, QpEvent::kRequestError, "an Atomic Response answers another request", "RFC 7306 5.2"},
    {Violation::kSendBuffer, 0, 0, 0x00, TerminateHeaders::kNone, WcStatus::kLocalProtectionError, WcStatus::kFlushError, QpEvent::kFatal, "a send names memory it may not read", "RFC 5040 7.2"},
    {Violation::kReadSinkBuffer, 0, 0, 0x00, TerminateHeaders::kNone, WcStatus::kLocalProtectionError, WcStatus::kFlushError, QpEvent::kAccessError, "a READ names a sink it may not write", "RFC 5040 7.2"},
    {Violation::kReceiveBuffer, 0, 0, 0x00, TerminateHeaders::kNone, WcStatus::kLocalProtectionError, WcStatus::kFlushError, QpEvent::kAccessError, "a receive names memory it may not write", "RFC 5040 7.2"},
    {Violation::kOperation, 0, 0, 0x00, TerminateHeaders::kNone, WcStatus::kLocalQpOperationError, WcStatus::kFlushError, QpEvent::kFatal, "a work request cannot be done by this queue pair", "RFC 5040 7.2"},
    {Violation::kMemoryOperation, 0, 0, 0x00, TerminateHeaders::kNone, WcStatus::kMwBindError, WcStatus::kFlushError, QpEvent::kFatal, "a window cannot be bound so, or a key not be invalidated", "RFC 5040 7.2"},
    {Violation::kProgram, 0, 0, 0x00, TerminateHeaders::kNone, WcStatus::kFlushError, WcStatus::kFlushError, std::nullopt, "the program moved the queue pair to ERR", "RFC 5040 7.2"},
}};
// clang-format on

static_assert(is_indexed(kViolations, &ViolationInfo::violation, Violation::kProgram));

[[nodiscard]] constexpr const ViolationInfo& info(Violation violation) {
  return kViolations[static_cast<std::size_t>(violation)];
}

}  // namespace airdma::model
