// SPDX-License-Identifier: MIT
// The Terminate message (RFC 5040 4.8): why a peer gave up, and the headers of the segment that
// made it do so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/be.h"
#include "base/bytes.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace airdma::wire {

enum class TerminateLayer : std::uint8_t { kRdmap = 0, kDdp = 1, kLlp = 2 };

/// What went wrong: layer (4 bits), error type (4 bits), error code. Off the wire each may hold
/// any value.
struct TerminateCause {
  TerminateLayer layer = TerminateLayer::kRdmap;
  std::uint8_t type = 0;
  std::uint8_t code = 0;
  friend constexpr bool operator==(const TerminateCause&, const TerminateCause&) = default;
};

// Causes by name. Types of RDMAP: 0 local catastrophic, 1 remote protection, 2 remote operation;
// of DDP: 0 local catastrophic, 1 tagged buffer, 2 untagged buffer; of the LLP, MPA: 0.
namespace cause {
inline constexpr TerminateCause kRdmapCatastrophic{TerminateLayer::kRdmap, 0, 0x00};
inline constexpr TerminateCause kInvalidStag{TerminateLayer::kRdmap, 1, 0x00};
inline constexpr TerminateCause kBounds{TerminateLayer::kRdmap, 1, 0x01};
inline constexpr TerminateCause kAccess{TerminateLayer::kRdmap, 1, 0x02};
inline constexpr TerminateCause kStagOfOtherStream{TerminateLayer::kRdmap, 1, 0x03};
inline constexpr TerminateCause kOffsetWrap{TerminateLayer::kRdmap, 1, 0x04};
inline constexpr TerminateCause kCannotInvalidateProtected{TerminateLayer::kRdmap, 1, 0x09};
inline constexpr TerminateCause kProtectionUnspecified{TerminateLayer::kRdmap, 1, 0xff};
inline constexpr TerminateCause kRdmapVersion{TerminateLayer::kRdmap, 2, 0x05};
inline constexpr TerminateCause kUnexpectedOpcode{TerminateLayer::kRdmap, 2, 0x06};
inline constexpr TerminateCause kStreamCatastrophe{TerminateLayer::kRdmap, 2, 0x07};
inline constexpr TerminateCause kGlobalCatastrophe{TerminateLayer::kRdmap, 2, 0x08};
inline constexpr TerminateCause kCannotInvalidate{TerminateLayer::kRdmap, 2, 0x09};
inline constexpr TerminateCause kOperationUnspecified{TerminateLayer::kRdmap, 2, 0xff};
inline constexpr TerminateCause kDdpCatastrophic{TerminateLayer::kDdp, 0, 0x00};
inline constexpr TerminateCause kTaggedInvalidStag{TerminateLayer::kDdp, 1, 0x00};
inline constexpr TerminateCause kTaggedBounds{TerminateLayer::kDdp, 1, 0x01};
inline constexpr TerminateCause kTaggedStagOfOtherStream{TerminateLayer::kDdp, 1, 0x02};
inline constexpr TerminateCause kTaggedOffsetWrap{TerminateLayer::kDdp, 1, 0x03};
inline constexpr TerminateCause kTaggedDdpVersion{TerminateLayer::kDdp, 1, 0x04};
inline constexpr TerminateCause kUntaggedQueue{TerminateLayer::kDdp, 2, 0x01};
inline constexpr TerminateCause kUntaggedNoBuffer{TerminateLayer::kDdp, 2, 0x02};
inline constexpr TerminateCause kUntaggedMsnRange{TerminateLayer::kDdp, 2, 0x03};
inline constexpr TerminateCause kUntaggedOffset{TerminateLayer::kDdp, 2, 0x04};
inline constexpr TerminateCause kUntaggedTooLong{TerminateLayer::kDdp, 2, 0x05};
inline constexpr TerminateCause kUntaggedDdpVersion{TerminateLayer::kDdp, 2, 0x06};
inline constexpr TerminateCause kMpaConnectionLost{TerminateLayer::kLlp, 0, 0x01};
inline constexpr TerminateCause kMpaCrc{TerminateLayer::kLlp, 0, 0x02};
inline constexpr TerminateCause kMpaMarker{TerminateLayer::kLlp, 0, 0x03};
inline constexpr TerminateCause kMpaFrame{TerminateLayer::kLlp, 0, 0x04};
inline constexpr TerminateCause kMpaCatastrophic{TerminateLayer::kLlp, 0, 0x05};
inline constexpr TerminateCause kMpaInsufficientIrd{TerminateLayer::kLlp, 0, 0x06};
inline constexpr TerminateCause kMpaNoRtr{TerminateLayer::kLlp, 0, 0x07};
}  // namespace cause

/// What the RFCs call it, for people; "unknown" for a cause they do not define.
[[nodiscard]] std::string_view describe(const TerminateCause& cause);
/// One of those named above.
[[nodiscard]] bool is_defined(const TerminateCause& cause);

/// The control word as RFC 5040 draws it. Kernel siw on little-endian machines fills the same four
/// bytes in the opposite bit order: layer and type change places, M, D and R stand in the low bits
/// of the third byte, lowest first.
struct TerminateControl {
  be8 layer_type;
  be8 code;
  be8 header_bits;
  be8 reserved;

  using Layer = Field<&TerminateControl::layer_type, 0, 4>;
  using Type = Field<&TerminateControl::layer_type, 4, 4>;
  using LengthValid = Field<&TerminateControl::header_bits, 0, 1>;  // M
  using DdpHeader = Field<&TerminateControl::header_bits, 1, 1>;    // D
  using RdmapHeader = Field<&TerminateControl::header_bits, 2, 1>;  // R
  using MirroredLengthValid = Field<&TerminateControl::header_bits, 7, 1>;
  using MirroredDdpHeader = Field<&TerminateControl::header_bits, 6, 1>;
  using MirroredRdmapHeader = Field<&TerminateControl::header_bits, 5, 1>;
};
static_assert(sizeof(TerminateControl) == 4 && alignof(TerminateControl) == 1);

enum class TerminateOrder : std::uint8_t { kRfc, kSiw };

struct TerminateMessage {
  TerminateOrder order = TerminateOrder::kRfc;  // how the control word is, or was, written
  TerminateCause cause;
  std::optional<std::uint16_t> segment_bytes;   // M: length of the offending DDP segment
  std::optional<SegmentHeader> segment_header;  // D: its header
  std::optional<ReadRequest> read_request;      // R: its RDMAP header
  friend bool operator==(const TerminateMessage&, const TerminateMessage&) = default;
};

/// Payload of a Terminate. Nothing when it is shorter than the control word; headers that the
/// control word announces but the payload lacks are left out. The bit order is told from the
/// header bits, and where none is set from which reading names a defined cause (RFC order first).
[[nodiscard]] std::optional<TerminateMessage> parse_terminate(Bytes payload);

/// Writes the payload: its length, or 0 when it does not fit. The length field is there with M or
/// with D; an RDMAP header without a DDP header is left out, as RFC 5040 knows no such message.
[[nodiscard]] std::size_t emit_terminate(MutableBytes out, const TerminateMessage& message);

}  // namespace airdma::wire
