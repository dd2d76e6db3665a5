// SPDX-License-Identifier: MIT
// Everything that goes wrong on a RoCEv2 queue pair, and for each the one row that says what goes
// on the wire (NAK code: IBTA vol. 1, 9.7.5.2), what the queue pairs on both sides report (9.9.2,
// 9.9.3, 11.6), and why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/indexed.h"
#include "model/completion.h"
#include "model/memory.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

enum class Violation : std::uint8_t {
  // The responder finds it in a request.
  kUnknownOpcode,
  kUnsupported,
  kOpcodeSequence,
  kPayloadLength,
  kWriteLength,
  kMessageTooLong,
  kReceiveTooSmall,
  kTooManyReads,
  kAtomicUnaligned,
  kNoSuchSharedQueue,
  kNotEnabled,
  kInvalidKey,
  kOtherDomain,
  kDenied,
  kBounds,
  kWithdrawn,
  kCannotInvalidate,
  kReceiveBuffer,
  // The requester hears it, or nothing.
  kNakInvalidRequest,
  kNakRemoteAccess,
  kNakRemoteOperational,
  kNakUnknown,
  kResponseLength,
  kRetryExceeded,
  kRnrRetryExceeded,
  // This side's own.
  kSendBuffer,
  kReadSink,
  kOperation,
  kSendLength,
  kMemoryOperation,
  kProgram,
};

struct ViolationInfo {
  Violation violation;
  std::optional<wire::NakCode> nak;     // that the responder answers
  model::WcStatus local;                // of the work request it happened in; the rest is flushed
  model::WcStatus remote;               // of the peer's request
  std::optional<model::QpEvent> event;  // at the side that found it
  const char* text;
  const char* section;
};

namespace detail {
using enum model::WcStatus;
inline constexpr auto kInvalid = wire::NakCode::kInvalidRequest;
inline constexpr auto kAccess = wire::NakCode::kRemoteAccess;
inline constexpr auto kOperational = wire::NakCode::kRemoteOperational;
inline constexpr auto kRequestEvent = model::QpEvent::kRequestError;
inline constexpr auto kAccessEvent = model::QpEvent::kAccessError;
inline constexpr std::nullopt_t kNone = std::nullopt;
}  // namespace detail

// clang-format off
/// Indexed by the violation's value. Events are the "local work queue errors" of 11.6.3.2: of an
/// invalid request, and of an access violation. What a completion tells at its requester needs none.
inline constexpr std::array<ViolationInfo, 31> kViolations{{
    {Violation::kUnknownOpcode,     detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "a request has an opcode that does not exist",                "IBTA 9.7.4.1.5"},
    {Violation::kUnsupported,       detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "a request asks for an operation that is not implemented",    "IBTA 9.7.4.1.5"},
    {Violation::kOpcodeSequence,    detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "a packet does not continue the message before it",           "IBTA 9.7.4.1.2"},
    {Violation::kPayloadLength,     detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "a packet's payload does not fit its place and the path MTU", "IBTA 9.7.4.1.6"},
    {Violation::kWriteLength,       detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "a WRITE brings more or less than it has announced",          "IBTA 9.7.4.1.6"},
    {Violation::kMessageTooLong,    detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "a message is longer than 2^31 bytes",                        "IBTA 9.7.4.1.6"},
    {Violation::kReceiveTooSmall,   detail::kInvalid,     detail::kLocalLengthError,     detail::kRemoteInvalidRequest, detail::kRequestEvent, "a message is longer than the receive it meets",              "IBTA 9.9.3.1.2"},
    {Violation::kTooManyReads,      detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "more READs and atomics are outstanding than was agreed",     "IBTA 9.7.4.1.4"},
    {Violation::kAtomicUnaligned,   detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "an atomic's address is not a multiple of eight",             "IBTA 9.4.5"},
    {Violation::kNoSuchSharedQueue, detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "a request names an XRC shared receive queue there is not",   "IBTA A14"},
    {Violation::kNotEnabled,        detail::kInvalid,     detail::kFlushError,           detail::kRemoteInvalidRequest, detail::kRequestEvent, "the queue pair does not let its peer do this",               "IBTA 9.7.4.1.5"},
    {Violation::kInvalidKey,        detail::kAccess,      detail::kFlushError,           detail::kRemoteAccessError,    detail::kAccessEvent,  "a request names no memory of ours",                          "IBTA 9.7.4.1.3"},
    {Violation::kOtherDomain,       detail::kAccess,      detail::kFlushError,           detail::kRemoteAccessError,    detail::kAccessEvent,  "a request names memory of another protection domain",        "IBTA 9.7.4.1.3"},
    {Violation::kDenied,            detail::kAccess,      detail::kFlushError,           detail::kRemoteAccessError,    detail::kAccessEvent,  "a request meets memory that denies it",                      "IBTA 9.7.4.1.3"},
    {Violation::kBounds,            detail::kAccess,      detail::kFlushError,           detail::kRemoteAccessError,    detail::kAccessEvent,  "a request leaves its region",                                "IBTA 9.7.4.1.3"},
    {Violation::kWithdrawn,         detail::kAccess,      detail::kFlushError,           detail::kRemoteAccessError,    detail::kAccessEvent,  "memory was taken away while a READ waited for it",           "IBTA 9.7.4.1.3"},
    {Violation::kCannotInvalidate,  detail::kAccess,      detail::kFlushError,           detail::kRemoteAccessError,    detail::kAccessEvent,  "a SEND wants to invalidate memory that cannot be",           "IBTA 9.4.1.1.3"},
    {Violation::kReceiveBuffer,     detail::kOperational, detail::kLocalProtectionError, detail::kRemoteOperationError, detail::kAccessEvent,  "a receive names memory it may not write",                    "IBTA 9.9.3.1.2"},
    {Violation::kNakInvalidRequest,    detail::kNone,     detail::kRemoteInvalidRequest, detail::kFlushError,           detail::kNone,         "the peer calls a request invalid",                           "IBTA 9.9.2.3"},
    {Violation::kNakRemoteAccess,      detail::kNone,     detail::kRemoteAccessError,    detail::kFlushError,           detail::kNone,         "the peer refuses access to its memory",                      "IBTA 9.9.2.3"},
    {Violation::kNakRemoteOperational, detail::kNone,     detail::kRemoteOperationError, detail::kFlushError,           detail::kNone,         "the peer could not carry out a request",                     "IBTA 9.9.2.3"},
    {Violation::kNakUnknown,           detail::kNone,     detail::kBadResponse,          detail::kFlushError,           detail::kNone,         "the peer sent a NAK with a code that does not exist",        "IBTA 9.9.2.4.1"},
    {Violation::kResponseLength,       detail::kNone,     detail::kBadResponse,          detail::kFlushError,           detail::kNone,         "a response does not have the length that was asked for",     "IBTA 9.9.2.4.1"},
    {Violation::kRetryExceeded,        detail::kNone,     detail::kRetryExceeded,        detail::kFlushError,           detail::kNone,         "the peer did not answer",                                    "IBTA 9.9.2.1"},
    {Violation::kRnrRetryExceeded,     detail::kNone,     detail::kRnrRetryExceeded,     detail::kFlushError,           detail::kNone,         "the peer posted no receive",                                 "IBTA 9.9.2.1"},
    {Violation::kSendBuffer,           detail::kNone,     detail::kLocalProtectionError, detail::kFlushError,           detail::kNone,         "a send names memory it may not read",                        "IBTA 9.9.2.2"},
    {Violation::kReadSink,             detail::kNone,     detail::kLocalProtectionError, detail::kFlushError,           detail::kNone,         "a READ or atomic names a sink it may not write",             "IBTA 9.9.2.2"},
    {Violation::kOperation,            detail::kNone,     detail::kLocalQpOperationError, detail::kFlushError,          detail::kNone,         "a work request cannot be done by this queue pair",           "IBTA 9.9.2.2"},
    {Violation::kSendLength,           detail::kNone,     detail::kLocalLengthError,     detail::kFlushError,           detail::kNone,         "a work request is longer than a message can be",             "IBTA 9.9.2.2"},
    {Violation::kMemoryOperation,      detail::kNone,     detail::kMwBindError,          detail::kFlushError,           detail::kNone,         "a window cannot be bound so, or a key not be invalidated",   "IBTA 9.9.2.2"},
    {Violation::kProgram,              detail::kNone,     detail::kFlushError,           detail::kFlushError,           detail::kNone,         "the program moved the queue pair to ERR",                    "IBTA 10.3.1"},
}};
// clang-format on

static_assert(is_indexed(kViolations, &ViolationInfo::violation, Violation::kProgram));

[[nodiscard]] constexpr const ViolationInfo& info(Violation violation) {
  return kViolations[static_cast<std::size_t>(violation)];
}

/// Why the memory that a request names cannot be touched.
[[nodiscard]] constexpr Violation access_violation(model::AccessFault fault) {
  switch (fault) {
    case model::AccessFault::kInvalidKey:
      return Violation::kInvalidKey;
    case model::AccessFault::kOtherPd:
      return Violation::kOtherDomain;
    case model::AccessFault::kDenied:
      return Violation::kDenied;
    case model::AccessFault::kBounds:
      return Violation::kBounds;
  }
  return Violation::kInvalidKey;
}

}  // namespace airdma::rocev2
