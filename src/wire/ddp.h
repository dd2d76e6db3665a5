// SPDX-License-Identifier: MIT
// DDP segment headers (RFC 5041 4.2, 4.3). The ULP-reserved bytes are RDMAP's: its control byte,
// and in untagged segments the STag to invalidate (RFC 5040 4.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/be.h"
#include "base/bytes.h"
#include "base/ids.h"

namespace airdma::wire {

inline constexpr std::uint8_t kDdpVersion = 1;
inline constexpr std::uint8_t kRdmapVersion = 1;

/// Message sequence number of an untagged queue; the first message has 1 (RFC 5041 4.3).
using Msn = Id<struct MsnTag>;
inline constexpr Msn kFirstMsn{1};
/// MSNs wrap from 2^32 - 1 to 0.
[[nodiscard]] constexpr Msn next(Msn msn) { return Msn{msn.value() + 1}; }

/// Untagged queues that RDMAP uses (RFC 5040 4.2, RFC 7306). Off the wire it may hold any value.
enum class QueueNumber : std::uint32_t {
  kSend = 0,
  kReadRequest = 1,  // and atomic requests
  kTerminate = 2,
  kAtomicResponse = 3,
};

struct DdpTaggedHeader {
  be8 control;
  be8 rdmap_control;
  be32 stag;
  be64 tagged_offset;

  using Tagged = Field<&DdpTaggedHeader::control, 0, 1>;
  using Last = Field<&DdpTaggedHeader::control, 1, 1>;
  using Version = Field<&DdpTaggedHeader::control, 6, 2>;
  using RdmapVersion = Field<&DdpTaggedHeader::rdmap_control, 0, 2>;
  using Opcode = Field<&DdpTaggedHeader::rdmap_control, 4, 4>;
};
static_assert(sizeof(DdpTaggedHeader) == 14 && alignof(DdpTaggedHeader) == 1);

struct DdpUntaggedHeader {
  be8 control;
  be8 rdmap_control;
  be32 invalidate_stag;
  be32 queue;
  be32 msn;
  be32 message_offset;

  using Tagged = Field<&DdpUntaggedHeader::control, 0, 1>;
  using Last = Field<&DdpUntaggedHeader::control, 1, 1>;
  using Version = Field<&DdpUntaggedHeader::control, 6, 2>;
  using RdmapVersion = Field<&DdpUntaggedHeader::rdmap_control, 0, 2>;
  using Opcode = Field<&DdpUntaggedHeader::rdmap_control, 4, 4>;
};
static_assert(sizeof(DdpUntaggedHeader) == 18 && alignof(DdpUntaggedHeader) == 1);

inline constexpr std::size_t kTaggedHeaderBytes = sizeof(DdpTaggedHeader);
inline constexpr std::size_t kUntaggedHeaderBytes = sizeof(DdpUntaggedHeader);
inline constexpr std::size_t kMaxSegmentHeaderBytes = kUntaggedHeaderBytes;

/// Either header, in host order. Nothing but its length was checked: versions, opcode and queue
/// are what the peer sent (rdmap.h knows which go together).
struct SegmentHeader {
  bool tagged = false;
  bool last = false;
  std::uint8_t ddp_version = kDdpVersion;
  std::uint8_t rdmap_version = kRdmapVersion;
  std::uint8_t opcode = 0;  // 4 bits, see find_opcode()
  // Tagged segments:
  Stag stag;
  std::uint64_t tagged_offset = 0;
  // Untagged segments:
  Stag invalidate_stag;
  QueueNumber queue = QueueNumber::kSend;
  Msn msn;
  std::uint32_t message_offset = 0;  // bytes

  [[nodiscard]] constexpr std::size_t bytes() const {
    return tagged ? kTaggedHeaderBytes : kUntaggedHeaderBytes;
  }
  friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};

/// Header bytes of the segment that starts with this control byte.
[[nodiscard]] constexpr std::size_t segment_header_bytes(std::byte control) {
  return (control & std::byte{0x80}) != std::byte{0} ? kTaggedHeaderBytes : kUntaggedHeaderBytes;
}

/// The header at the start of a ULPDU, or nothing when the ULPDU is too short for it. The payload
/// is what follows header->bytes().
[[nodiscard]] std::optional<SegmentHeader> parse_segment_header(Bytes ulpdu);

/// Writes the header: its length, or 0 when it does not fit.
[[nodiscard]] std::size_t emit_segment_header(MutableBytes out, const SegmentHeader& header);

}  // namespace airdma::wire
