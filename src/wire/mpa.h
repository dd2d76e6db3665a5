// SPDX-License-Identifier: MIT
// MPA on the wire: the frames that open a connection (RFC 5044 7.1, RFC 6581), and the framing
// of everything after them (RFC 5044 4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/be.h"
#include "base/bytes.h"

namespace airdma::wire {

// The opening frames.

enum class MpaFrameKind : std::uint8_t { kRequest, kReply };

/// The frame without its private data (RFC 5044 7.1).
struct MpaHeader {
  std::array<be8, 16> key;
  be8 flags;
  be8 revision;
  be16 pd_length;

  using Markers = Field<&MpaHeader::flags, 0, 1>;
  using Crc = Field<&MpaHeader::flags, 1, 1>;
  using Reject = Field<&MpaHeader::flags, 2, 1>;
  using Enhanced = Field<&MpaHeader::flags, 3, 1>;
  using Reserved = Field<&MpaHeader::flags, 4, 4>;
};
static_assert(sizeof(MpaHeader) == 20 && alignof(MpaHeader) == 1);

/// The first four bytes of private data when S is set (RFC 6581).
struct MpaEnhancedWord {
  be16 ird;
  be16 ord;

  using PeerToPeer = Field<&MpaEnhancedWord::ird, 0, 1>;  // A
  using RtrSend = Field<&MpaEnhancedWord::ird, 1, 1>;     // B
  using Ird = Field<&MpaEnhancedWord::ird, 2, 14>;
  using RtrWrite = Field<&MpaEnhancedWord::ord, 0, 1>;  // C
  using RtrRead = Field<&MpaEnhancedWord::ord, 1, 1>;   // D
  using Ord = Field<&MpaEnhancedWord::ord, 2, 14>;
};
static_assert(sizeof(MpaEnhancedWord) == 4 && alignof(MpaEnhancedWord) == 1);

/// Longest PD_Length, enhanced word included (RFC 5044 7.1).
inline constexpr std::size_t kMpaMaxPdLength = 512;
/// In a field of 14 bits all ones says that the sender negotiates this limit by other means
/// (RFC 6581).
inline constexpr std::uint16_t kMpaDepthNotNegotiated = 0x3fff;

/// IRD/ORD and ready-to-receive negotiation (RFC 6581).
struct MpaEnhanced {
  std::uint16_t ird = 0;      // 0..0x3fff
  std::uint16_t ord = 0;      // 0..0x3fff
  bool peer_to_peer = false;  // A: the initiator sends an RTR frame first
  bool rtr_send = false;      // B: it may be a zero-length FPDU (SEND)
  bool rtr_write = false;     // C: it may be a zero-length RDMA Write
  bool rtr_read = false;      // D: it may be a zero-length RDMA Read
  friend bool operator==(const MpaEnhanced&, const MpaEnhanced&) = default;
};

/// One MPA request or reply. `private_data` is the ULP's part, without the enhanced word, and
/// points into the bytes that were parsed.
struct MpaFrame {
  MpaFrameKind kind = MpaFrameKind::kRequest;
  bool markers = false;       // M: the sender of this frame wants markers in what it receives
  bool crc = false;           // C: it wants CRCs, both ways
  bool reject = false;        // R: replies only, the connection is refused
  std::uint8_t reserved = 0;  // 4 bits; ignored by a receiver, kernel siw uses 0x8 for its GSO
  std::uint8_t revision = 1;
  std::optional<MpaEnhanced> enhanced;  // S flag; only read from revision 2 on
  Bytes private_data;
};
/// Same fields and the same private data, byte for byte.
[[nodiscard]] bool operator==(const MpaFrame& a, const MpaFrame& b);

enum class MpaError : std::uint8_t {
  kWrongKey,            // not MPA, or a request where a reply was due
  kPrivateDataTooLong,  // PD_Length over kMpaMaxPdLength
  kEnhancedTooShort,    // S set but PD_Length leaves no room for the enhanced word
};

/// Outcome of looking for an MPA frame at the start of a stream. Exactly one of: `frame` set;
/// `error` set; neither, and the whole frame is known to need at least `needed_bytes`.
struct MpaParse {
  std::optional<MpaFrame> frame;
  std::optional<MpaError> error;
  std::size_t frame_bytes = 0;   // with `frame`: bytes of the stream it took
  std::size_t needed_bytes = 0;  // otherwise: call again with this many bytes from its start
};

/// Reads one frame of the given kind. A wrong key is reported at its first wrong byte, without
/// waiting for the rest.
[[nodiscard]] MpaParse parse_mpa(Bytes stream, MpaFrameKind expected);

/// Bytes that `emit_mpa` writes for this frame.
[[nodiscard]] std::size_t mpa_frame_bytes(const MpaFrame& frame);
/// Writes the frame: its length, or 0 if it does not fit or its private data is too long.
[[nodiscard]] std::size_t emit_mpa(MutableBytes out, const MpaFrame& frame);

// FPDUs: ULPDU_Length (2), ULPDU, pad to a multiple of 4, CRC (4) (RFC 5044 4.1).

inline constexpr std::size_t kFpduLengthBytes = 2;
inline constexpr std::size_t kFpduCrcBytes = 4;
inline constexpr std::size_t kMaxUlpduBytes = 0xffff;

/// Zero bytes between ULPDU and CRC, 0..3.
[[nodiscard]] constexpr std::size_t fpdu_pad_bytes(std::size_t ulpdu_bytes) {
  return (4 - (kFpduLengthBytes + ulpdu_bytes) % 4) % 4;
}
/// A whole FPDU, markers not counted.
[[nodiscard]] constexpr std::size_t fpdu_bytes(std::size_t ulpdu_bytes) {
  return kFpduLengthBytes + ulpdu_bytes + fpdu_pad_bytes(ulpdu_bytes) + kFpduCrcBytes;
}

/// An FPDU that is complete in memory, markers already removed.
struct FpduView {
  Bytes ulpdu;
  Bytes covered;          // what the CRC is over: length, ULPDU, pad
  std::uint32_t crc = 0;  // the field, in the form wire::crc32c() returns
  std::size_t bytes = 0;  // of the stream
};
/// `fpdu` set, or at least `needed_bytes` from the start of the FPDU are needed.
struct FpduParse {
  std::optional<FpduView> fpdu;
  std::size_t needed_bytes = 0;
};
[[nodiscard]] FpduParse parse_fpdu(Bytes stream);

/// The CRC field's four bytes. MPA sends them as iSCSI does, least significant byte first
/// (RFC 5044 4.4).
[[nodiscard]] std::uint32_t load_fpdu_crc(const std::byte* field);
void store_fpdu_crc(std::byte* field, std::uint32_t crc);

// Markers (RFC 5044 4.3).

/// Four bytes in the stream every 512 bytes. FPDUPTR counts stream bytes back from the marker to
/// the ULPDU_Length of the FPDU it stands in; 0 for a marker right before an FPDU.
struct MpaMarker {
  be16 reserved;
  be16 fpdu_pointer;
};
static_assert(sizeof(MpaMarker) == 4 && alignof(MpaMarker) == 1);

inline constexpr std::size_t kMarkerBytes = sizeof(MpaMarker);
inline constexpr std::size_t kMarkerInterval = 512;

/// Where markers fall in one direction of a connection. Position 0 is the first byte after that
/// direction's MPA frame, and a marker stands there.
class MarkerSchedule {
 public:
  MarkerSchedule() = default;
  explicit MarkerSchedule(std::uint64_t position) : position_(position) {}

  [[nodiscard]] std::uint64_t position() const { return position_; }
  /// A marker's first byte belongs here.
  [[nodiscard]] bool due() const { return position_ % kMarkerInterval == 0; }
  /// Bytes other than the marker until one is due: 0 when it is due now.
  [[nodiscard]] std::size_t bytes_until_due() const {
    return static_cast<std::size_t>((kMarkerInterval - position_ % kMarkerInterval) %
                                    kMarkerInterval);
  }
  /// `bytes` of the stream went by, markers included.
  void advance(std::size_t bytes) { position_ += bytes; }
  /// Markers that must be put among the next `bytes` of FPDU, the one due now included; one that
  /// would follow the last byte belongs to the next FPDU.
  [[nodiscard]] std::size_t markers_among(std::size_t bytes) const;
  /// FPDUPTR of a marker standing here when the FPDU's ULPDU_Length is at `fpdu_start`; a marker
  /// before its FPDU has 0.
  [[nodiscard]] std::uint16_t fpdu_pointer(std::uint64_t fpdu_start) const {
    return fpdu_start < position_ ? static_cast<std::uint16_t>(position_ - fpdu_start) : 0;
  }

 private:
  std::uint64_t position_ = 0;
};

/// Largest ULPDU whose FPDU fills one TCP segment of `emss_bytes` (RFC 5044 4.5); 0 if none fits.
[[nodiscard]] std::size_t max_ulpdu_bytes(std::size_t emss_bytes, bool markers);

}  // namespace airdma::wire
