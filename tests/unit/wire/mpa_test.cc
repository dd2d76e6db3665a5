// SPDX-License-Identifier: MIT
#include "wire/mpa.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/bytes.h"
#include "wire/crc32c.h"
#include "wire/print.h"

namespace airdma::wire {
namespace {

using test::ByteVector;
using test::from_hex;
using test::to_hex;

// First frames of tests/interop/captures/siw-crc-rping-v4.pcap, siw-p2p-rtr.pcap (both ways),
// siw-mpa1-client.pcap, siw-crc-strict-reject.pcap and siw-privdata.pcap.
constexpr const char* kCrcRequest = "4d504120494420526571204672616d65 5002 0004 0001 0001";
constexpr const char* kP2pRequest = "4d504120494420526571204672616d65 1002 0004 8001 c001";
constexpr const char* kP2pReply = "4d504120494420526570204672616d65 1002 0004 8001 8001";
constexpr const char* kRevision1Request = "4d504120494420526571204672616d65 0001 0000";
constexpr const char* kRejectReply = "4d504120494420526570204672616d65 3002 0004 0000 0000";
constexpr const char* kPrivateReply =
    "4d504120494420526570204672616d65 1002 002c 0001 0000 01020180000000000000"
    "7f5400003000697939000000000200007f5405c770006952c00000080000";

ByteVector emitted(const MpaFrame& frame) {
  ByteVector out(mpa_frame_bytes(frame));
  out.resize(emit_mpa(out, frame));
  return out;
}

MpaFrame parsed(const ByteVector& bytes, MpaFrameKind kind) {
  const MpaParse parse = parse_mpa(bytes, kind);
  EXPECT_TRUE(parse.frame.has_value()) << to_hex(bytes);
  EXPECT_EQ(parse.frame_bytes, bytes.size());
  return parse.frame.value_or(MpaFrame{});
}

TEST(Mpa, ReadsTheKernelsCrcRequest) {
  const ByteVector bytes = from_hex(kCrcRequest);
  const MpaFrame frame = parsed(bytes, MpaFrameKind::kRequest);
  EXPECT_TRUE(frame.crc);
  EXPECT_FALSE(frame.markers);
  EXPECT_FALSE(frame.reject);
  EXPECT_EQ(frame.revision, 2);
  ASSERT_TRUE(frame.enhanced.has_value());
  EXPECT_EQ(*frame.enhanced, (MpaEnhanced{.ird = 1, .ord = 1}));
  EXPECT_TRUE(frame.private_data.empty());
  EXPECT_EQ(to_text(frame),
            "MPA request rev=2 M=0 C=1 R=0 S=1 ird=1 ord=1 A=0 B=0 C=0 D=0 private=0");
}

TEST(Mpa, ReadsPeerToPeerFlags) {
  const ByteVector request = from_hex(kP2pRequest);
  EXPECT_EQ(
      parsed(request, MpaFrameKind::kRequest).enhanced,
      (MpaEnhanced{.ird = 1, .ord = 1, .peer_to_peer = true, .rtr_write = true, .rtr_read = true}));
  const ByteVector reply = from_hex(kP2pReply);
  EXPECT_EQ(parsed(reply, MpaFrameKind::kReply).enhanced,
            (MpaEnhanced{.ird = 1, .ord = 1, .peer_to_peer = true, .rtr_write = true}));
}

TEST(Mpa, ReadsRevision1WithoutEnhancedWord) {
  const ByteVector bytes = from_hex(kRevision1Request);
  const MpaFrame frame = parsed(bytes, MpaFrameKind::kRequest);
  EXPECT_EQ(frame.revision, 1);
  EXPECT_FALSE(frame.enhanced.has_value());
}

TEST(Mpa, ReadsReject) {
  const ByteVector bytes = from_hex(kRejectReply);
  EXPECT_TRUE(parsed(bytes, MpaFrameKind::kReply).reject);
}

TEST(Mpa, SeparatesPrivateDataFromEnhancedWord) {
  const ByteVector bytes = from_hex(kPrivateReply);
  const MpaFrame frame = parsed(bytes, MpaFrameKind::kReply);
  EXPECT_EQ(frame.private_data.size(), 40u);
  EXPECT_EQ(to_hex(frame.private_data).substr(0, 8), "01020180");
}

TEST(Mpa, EmitsWhatTheKernelSent) {
  for (const char* hex : {kCrcRequest, kP2pRequest, kRevision1Request}) {
    const ByteVector bytes = from_hex(hex);
    EXPECT_EQ(to_hex(emitted(parsed(bytes, MpaFrameKind::kRequest))), to_hex(bytes));
  }
  for (const char* hex : {kP2pReply, kRejectReply, kPrivateReply}) {
    const ByteVector bytes = from_hex(hex);
    EXPECT_EQ(to_hex(emitted(parsed(bytes, MpaFrameKind::kReply))), to_hex(bytes));
  }
}

TEST(Mpa, ParsesWhatItEmits) {
  const ByteVector data = test::pattern(kMpaMaxPdLength);
  for (unsigned flags = 0; flags < 256; ++flags) {
    MpaFrame frame;
    frame.kind = flags & 1 ? MpaFrameKind::kReply : MpaFrameKind::kRequest;
    frame.markers = flags & 2;
    frame.crc = flags & 4;
    frame.reject = flags & 8;
    frame.reserved = static_cast<std::uint8_t>(flags >> 4);
    frame.revision = 2;
    frame.private_data = Bytes(data).first(flags);
    frame.enhanced = MpaEnhanced{.ird = static_cast<std::uint16_t>(flags * 64),
                                 .ord = 0x3fff,
                                 .peer_to_peer = (flags & 16) != 0,
                                 .rtr_send = (flags & 32) != 0,
                                 .rtr_write = (flags & 64) != 0,
                                 .rtr_read = (flags & 128) != 0};
    const ByteVector bytes = emitted(frame);
    EXPECT_EQ(parsed(bytes, frame.kind), frame) << to_text(frame);
    frame.enhanced.reset();
    const ByteVector plain = emitted(frame);
    EXPECT_EQ(parsed(plain, frame.kind), frame) << to_text(frame);
  }
}

TEST(Mpa, AsksForWhatIsMissing) {
  const ByteVector bytes = from_hex(kPrivateReply);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const MpaParse parse = parse_mpa(Bytes(bytes).first(n), MpaFrameKind::kReply);
    EXPECT_FALSE(parse.frame.has_value());
    EXPECT_FALSE(parse.error.has_value());
    EXPECT_EQ(parse.needed_bytes, n < 20 ? 20u : 64u) << n;
  }
}

TEST(Mpa, LeavesTheBytesAfterTheFrame) {
  ByteVector bytes = from_hex(kCrcRequest);
  bytes.resize(100);
  EXPECT_EQ(parse_mpa(bytes, MpaFrameKind::kRequest).frame_bytes, 24u);
}

TEST(Mpa, RejectsAWrongKeyAtItsFirstWrongByte) {
  EXPECT_EQ(parse_mpa(from_hex("47"), MpaFrameKind::kRequest).error, MpaError::kWrongKey);
  const ByteVector request = from_hex(kCrcRequest);
  EXPECT_FALSE(parse_mpa(Bytes(request).first(9), MpaFrameKind::kReply).error.has_value());
  EXPECT_EQ(parse_mpa(Bytes(request).first(10), MpaFrameKind::kReply).error, MpaError::kWrongKey);
}

TEST(Mpa, BoundsPrivateData) {
  ByteVector bytes = from_hex("4d504120494420526571204672616d65 0001 0200");
  EXPECT_EQ(parse_mpa(bytes, MpaFrameKind::kRequest).needed_bytes, 20u + 512u);
  bytes = from_hex("4d504120494420526571204672616d65 0001 0201");
  EXPECT_EQ(parse_mpa(bytes, MpaFrameKind::kRequest).error, MpaError::kPrivateDataTooLong);

  const ByteVector data = test::pattern(kMpaMaxPdLength + 1);
  ByteVector out(1024);
  MpaFrame frame;
  frame.private_data = data;
  EXPECT_EQ(emit_mpa(out, frame), 0u);
  frame.private_data = Bytes(data).first(kMpaMaxPdLength);
  EXPECT_EQ(emit_mpa(out, frame), 20u + 512u);
  EXPECT_EQ(emit_mpa(MutableBytes(out).first(531), frame), 0u);
}

TEST(Mpa, RejectsAnEnhancedFrameWithoutRoomForItsWord) {
  const ByteVector bytes = from_hex("4d504120494420526571204672616d65 1002 0003 000000");
  EXPECT_EQ(parse_mpa(bytes, MpaFrameKind::kRequest).error, MpaError::kEnhancedTooShort);
}

TEST(Mpa, IgnoresTheEnhancedFlagInRevision1) {
  const ByteVector bytes = from_hex("4d504120494420526571204672616d65 1001 0003 010203");
  const MpaFrame frame = parsed(bytes, MpaFrameKind::kRequest);
  EXPECT_FALSE(frame.enhanced.has_value());
  EXPECT_EQ(frame.private_data.size(), 3u);
}

// FPDUs of siw-crc-rping-v4.pcap: a SEND, and a WRITE of 64 bytes with two bytes of padding.
constexpr const char* kSendFpdu =
    "0022414300000000000000000000000100000000000055885e8fe440c430310000000040e535938c";
constexpr const char* kWriteFpdu =
    "004ec142daaef40000005612e60fcae072646d612d70696e672d303a20414243444546"
    "4748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172"
    "00479c4f11";

TEST(Fpdu, HasTheKernelsLengthsAndCrc) {
  for (const char* hex : {kSendFpdu, kWriteFpdu}) {
    const ByteVector bytes = from_hex(hex);
    const FpduParse parse = parse_fpdu(bytes);
    ASSERT_TRUE(parse.fpdu.has_value()) << parse.needed_bytes << " of " << bytes.size();
    EXPECT_EQ(parse.fpdu->bytes, bytes.size());
    EXPECT_EQ(parse.fpdu->bytes, fpdu_bytes(parse.fpdu->ulpdu.size()));
    EXPECT_EQ(parse.fpdu->covered.size(), bytes.size() - 4);
    EXPECT_EQ(crc32c(parse.fpdu->covered), parse.fpdu->crc);
    ByteVector field(4);
    store_fpdu_crc(field.data(), parse.fpdu->crc);
    EXPECT_EQ(to_hex(field), to_hex(Bytes(bytes).last(4)));
  }
}

TEST(Fpdu, AsksForWhatIsMissing) {
  const ByteVector bytes = from_hex(kSendFpdu);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const FpduParse parse = parse_fpdu(Bytes(bytes).first(n));
    EXPECT_FALSE(parse.fpdu.has_value());
    EXPECT_EQ(parse.needed_bytes, n < 2 ? 2u : bytes.size());
  }
}

TEST(Fpdu, PadsToFourBytes) {
  EXPECT_EQ(fpdu_pad_bytes(0), 2u);
  EXPECT_EQ(fpdu_pad_bytes(1), 1u);
  EXPECT_EQ(fpdu_pad_bytes(2), 0u);
  EXPECT_EQ(fpdu_pad_bytes(3), 3u);
  EXPECT_EQ(fpdu_bytes(0), 8u);
  for (std::size_t n = 0; n <= kMaxUlpduBytes; ++n) ASSERT_EQ(fpdu_bytes(n) % 4, 0u);
}

TEST(Fpdu, FitsItsTcpSegment) {
  EXPECT_EQ(max_ulpdu_bytes(1448, false), 1442u);  // ULPDUs of the captures are 1442 long
  EXPECT_EQ(fpdu_bytes(max_ulpdu_bytes(1448, false)), 1448u);
  EXPECT_EQ(max_ulpdu_bytes(6, false), 0u);
  for (std::size_t emss = 8; emss < 9000; ++emss) {
    ASSERT_LE(fpdu_bytes(max_ulpdu_bytes(emss, false)), std::max<std::size_t>(emss, 8));
  }
}

/// Puts markers among FPDU bytes one at a time: the definition that the arithmetic must meet.
std::size_t markers_by_walking(std::uint64_t position, std::size_t bytes) {
  std::size_t markers = 0;
  for (; bytes > 0; --bytes, ++position) {
    if (position % kMarkerInterval == 0) {
      ++markers;
      position += kMarkerBytes;
    }
  }
  return markers;
}

TEST(Marker, CountsAsWalkingDoes) {
  for (std::uint64_t start : {0u, 4u, 8u, 500u, 504u, 508u, 512u, 516u, 1020u, 1024u}) {
    for (std::size_t bytes = 0; bytes < 2100; ++bytes) {
      ASSERT_EQ(MarkerSchedule(start).markers_among(bytes), markers_by_walking(start, bytes))
          << start << "+" << bytes;
    }
  }
}

TEST(Marker, StandsAtTheStartAndEvery512Bytes) {
  MarkerSchedule schedule;
  EXPECT_TRUE(schedule.due());
  schedule.advance(kMarkerBytes);
  EXPECT_FALSE(schedule.due());
  EXPECT_EQ(schedule.bytes_until_due(), 508u);
  schedule.advance(508);
  EXPECT_TRUE(schedule.due());
  EXPECT_EQ(schedule.fpdu_pointer(4), 508u);  // inside the FPDU that began at 4
  EXPECT_EQ(schedule.fpdu_pointer(512), 0u);
  EXPECT_EQ(schedule.fpdu_pointer(516), 0u);  // before the FPDU that begins after it
}

}  // namespace
}  // namespace airdma::wire
