// SPDX-License-Identifier: MIT
// One line for people per frame, segment, packet or message: the same text in traces and test
// failures.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/rdmap.h"
#include "wire/roce_packet.h"
#include "wire/terminate.h"

namespace airdma::wire {

/// Room that every line fits in.
inline constexpr std::size_t kPrintBytes = 512;

// Each writes into `out`, cut off where it ends, and answers the text (not NUL-terminated).

/// "MPA request rev=2 M=0 C=1 R=0 S=1 ird=1 ord=1 A=0 B=0 C=0 D=0 private=4"
std::string_view print(std::span<char> out, const MpaFrame& frame);
/// "WRITE L=1 stag=0x1a07 to=0x7f00 len=64"; "SEND L=1 qn=0 msn=1 mo=0 len=16".
std::string_view print(std::span<char> out, const SegmentHeader& header, std::size_t payload_bytes);
std::string_view print(std::span<char> out, const ReadRequest& request);
std::string_view print(std::span<char> out, const Immediate& immediate);
std::string_view print(std::span<char> out, const AtomicRequest& request);
std::string_view print(std::span<char> out, const AtomicResponse& response);
std::string_view print(std::span<char> out, const TerminateMessage& message);
/// "layer=DDP type=1 code=0x01 (base or bounds violation)"
std::string_view print(std::span<char> out, const TerminateCause& cause);

/// A ULPDU: its segment, and the message in it if it has a fixed layout, as
/// "READ_REQ L=1 qn=1 msn=1 mo=0 len=28 sink=0x1:0x7f00 source=0x2:0x5500 bytes=64".
std::string_view print_ulpdu(std::span<char> out, Bytes ulpdu);

/// "RC WRITE_FIRST qp=0x12 psn=0x4fee2f A=0 to=0x558f:0x1a07 bytes=5001 len=1024". S (solicited),
/// M (migrated), FECN and BECN stand there only when set.
std::string_view print(std::span<char> out, const RocePacket& packet);
/// "ACK msn=4", "NAK remote access error msn=4", "RNR_NAK timer=12 msn=4".
std::string_view print(std::span<char> out, const Acknowledgement& acknowledgement);
/// What the InfiniBand specification calls it; "reserved" for a code it does not define.
[[nodiscard]] std::string_view describe(NakCode code);
/// A UDP payload without its ICRC: the packet in it, or why there is none, as
/// "opcode 0x60 qp=0x12 psn=0x7 (undefined opcode) len=24".
std::string_view print_roce(std::span<char> out, Bytes bytes);

/// The same as a string.
template <class... Args>
[[nodiscard]] std::string to_text(const Args&... args) {
  char line[kPrintBytes];
  return std::string(print(line, args...));
}
[[nodiscard]] inline std::string ulpdu_to_text(Bytes ulpdu) {
  char line[kPrintBytes];
  return std::string(print_ulpdu(line, ulpdu));
}
[[nodiscard]] inline std::string roce_to_text(Bytes bytes) {
  char line[kPrintBytes];
  return std::string(print_roce(line, bytes));
}

}  // namespace airdma::wire
