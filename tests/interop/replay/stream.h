// SPDX-License-Identifier: MIT
// One direction of a captured (or produced) MPA stream as FPDUs and as RDMAP messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tests/interop/capture.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace airdma::interop {

/// One FPDU. Offsets count bytes of its direction's stream, the MPA frame and markers included.
struct Fpdu {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;          // past its CRC, beyond the stream when it was cut off
  ByteVector ulpdu;               // zero where it was cut off
  std::size_t known_payload = 0;  // bytes that are really there
  wire::SegmentHeader header;
  bool valid = false;     // long enough for its header
  bool complete = false;  // here to its last byte
  bool crc_good = true;   // not looked at in a stream with markers, whose CRC covers them
  std::uint32_t crc_field = 0;
  bool pad_zero = true;

  [[nodiscard]] Bytes header_bytes() const {
    return valid ? Bytes(ulpdu).first(header.bytes()) : Bytes{};
  }

  [[nodiscard]] Bytes payload() const {
    return valid ? Bytes(ulpdu).subspan(header.bytes()) : Bytes{};
  }
  [[nodiscard]] std::string text() const;
};

/// Messages of one lane keep their order; between lanes RDMAP promises none (RFC 5040 5.5).
enum class Lane : std::uint8_t { kRequest, kResponse, kTerminate };
inline constexpr Lane kLanes[] = {Lane::kRequest, Lane::kResponse, Lane::kTerminate};
[[nodiscard]] Lane lane_of(const wire::SegmentHeader& header);

/// A DDP message put together from its segments.
struct Message {
  Lane lane = Lane::kRequest;
  wire::SegmentHeader header;  // of the first segment
  ByteVector payload;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::size_t first_fpdu = 0;
  std::size_t last_fpdu = 0;
  bool complete = false;    // its last segment is here, whole
  bool cut = false;         // its last segment is the last of the stream, and not whole
  bool open = false;        // its last segment says that more follow
  std::size_t missing = 0;  // bytes of payload that its last segment lacks
  bool contiguous = true;   // each segment's offset follows the one before
  [[nodiscard]] wire::Opcode opcode() const { return static_cast<wire::Opcode>(header.opcode); }
  [[nodiscard]] std::string text() const;
};

struct FpduStream {
  std::vector<Fpdu> fpdus;
  std::vector<Message> messages;  // in the order of their first segments
  std::uint64_t end = 0;          // where the last whole FPDU ends
  bool broken_off = false;        // bytes follow that are no whole FPDU
  [[nodiscard]] std::vector<const Message*> lane(Lane lane) const;
};

/// What follows the MPA frame of `start` bytes in the stream.
[[nodiscard]] FpduStream read_fpdus(Bytes stream, std::size_t start, bool markers);

/// Largest ULPDU when every segment but the last of each message has this size, so that whoever is
/// given it must cut messages in the same way; 0 when the sizes vary.
[[nodiscard]] std::size_t uniform_ulpdu(const FpduStream& stream);
[[nodiscard]] std::size_t largest_ulpdu(const FpduStream& stream);

}  // namespace airdma::interop
