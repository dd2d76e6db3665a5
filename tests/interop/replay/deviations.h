// SPDX-License-Identifier: MIT
// Every way in which airdma's bytes may differ from a captured peer's and the replay still passes,
// with the reason. Nothing else is let through.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string_view>

namespace airdma::interop {

enum class Deviation : std::uint8_t {
  kMpaReserved,
  kMarkersAsked,
  kRejectFields,
  kReplyCrc,
  kReplyOrd,
  kRtrChoice,
  kRtrStag,
  kSendsFirst,
  kPadBytes,
  kCrcFieldOff,
  kResponseOrder,
  kUnanswered,
  kTerminateOrder,
  kTerminateHeaders,
  kTerminateLength,
  kTooLongCode,
  kResetOnly,
};

struct DeviationInfo {
  Deviation deviation;
  std::string_view name;
  std::string_view reason;
};

// clang-format off
inline constexpr std::array<DeviationInfo, 17> kDeviations{{
    {Deviation::kMpaReserved, "mpa-reserved", "the peer sets reserved MPA flags (siw: 0x8 for large FPDUs); a sender sets them to zero (RFC 5044 7.1)"},
    {Deviation::kMarkersAsked, "markers-asked", "the peer asks for markers; airdma sends them when asked and never asks (RFC 5044 4.3 leaves it to the receiver)"},
    {Deviation::kRejectFields, "reject-fields", "C, M, IRD, ORD and the RTR bits of a rejection agree nothing; siw echoes the request's (RFC 5044 7.1, RFC 6581 9)"},
    {Deviation::kReplyCrc, "reply-crc", "a reply with C=0 to a request with C=1: CRCs are on either way, and airdma says so (RFC 5044 7.1)"},
    {Deviation::kReplyOrd, "reply-ord", "the reply's ORD is above the request's IRD; airdma lowers it (RFC 6581 9.1)"},
    {Deviation::kRtrChoice, "rtr-choice", "which of the offered RTR frames the responder takes is its own choice (RFC 6581 9.2)"},
    {Deviation::kRtrStag, "rtr-stag", "STag and offset of a zero-length RTR frame name nothing (RFC 6581 9.2)"},
    {Deviation::kSendsFirst, "sends-first", "the responder sends before the initiator's first FPDU; airdma waits for it a moment first (RFC 5044 7.1.2)"},
    {Deviation::kPadBytes, "pad-bytes", "pad bytes that are not zero, as siw sends after some short messages; a receiver ignores them (RFC 5044 4.1)"},
    {Deviation::kCrcFieldOff, "crc-field-off", "the CRC field is not zero though CRCs are off; it is not looked at (RFC 5044 4.4)"},
    {Deviation::kResponseOrder, "response-order", "READ responses and a side's own messages stand in another order, which RDMAP does not fix (RFC 5040 5.5)"},
    {Deviation::kUnanswered, "unanswered", "the stream ended before a READ that had arrived was answered; airdma answered at once"},
    {Deviation::kTerminateOrder, "terminate-order", "siw writes the Terminate control word in the opposite bit order (RFC 5040 4.8); compared decoded"},
    {Deviation::kTerminateHeaders, "terminate-headers", "one Terminate shows more of the offending segment than the other (RFC 5040 4.8)"},
    {Deviation::kTerminateLength, "terminate-length", "siw's Terminate gives the offending segment's length without its DDP header; a DDP segment includes it (RFC 5040 4.8, RFC 5041 2.2)"},
    {Deviation::kTooLongCode, "too-long-code", "siw's Terminate says 0x02, no buffer, for a SEND longer than its receive; RFC 5041 8.3 has 0x05 for it"},
    {Deviation::kResetOnly, "reset-only", "the peer reset the connection where airdma sends a Terminate first (RFC 5040 7.1)"},
}};
// clang-format on

namespace detail {
constexpr bool deviations_are_indexed() {
  for (std::size_t i = 0; i < kDeviations.size(); ++i) {
    if (static_cast<std::size_t>(kDeviations[i].deviation) != i) return false;
  }
  return static_cast<std::size_t>(Deviation::kResetOnly) + 1 == kDeviations.size();
}
}  // namespace detail
static_assert(detail::deviations_are_indexed());

[[nodiscard]] constexpr const DeviationInfo& info(Deviation deviation) {
  return kDeviations[static_cast<std::size_t>(deviation)];
}
using Deviations = std::set<Deviation>;

}  // namespace airdma::interop
