// SPDX-License-Identifier: MIT
#include "wire/rdmap.h"

#include <gtest/gtest.h>

#include "tests/support/bytes.h"
#include "wire/ddp.h"
#include "wire/print.h"

namespace airdma::wire {
namespace {

using test::ByteVector;
using test::from_hex;
using test::to_hex;

// ULPDUs of tests/interop/captures/siw-crc-rping-v4.pcap.
constexpr const char* kSend =
    "4143 00000000 00000000 00000001 00000000 000055885e8fe440c430310000000040";
constexpr const char* kWrite = "c140 bf703100 000055885e8faae0 72646d61";
constexpr const char* kReadRequest =
    "4141 00000000 00000001 00000001 00000000"
    "daaef400 00005612e60fcae0 00000040 c4303100 000055885e8fe440";
constexpr const char* kReadResponse = "c142 daaef400 00005612e60fcae0 72646d61";

SegmentHeader header_of(const ByteVector& ulpdu) {
  const auto header = parse_segment_header(ulpdu);
  EXPECT_TRUE(header.has_value());
  return header.value_or(SegmentHeader{});
}

ByteVector emitted(const SegmentHeader& header) {
  ByteVector out(kMaxSegmentHeaderBytes);
  out.resize(emit_segment_header(out, header));
  return out;
}

TEST(Segment, ReadsTheKernelsHeaders) {
  EXPECT_EQ(header_of(from_hex(kSend)), untagged_header(Opcode::kSend, true, Msn{1}, 0));
  EXPECT_EQ(header_of(from_hex(kWrite)),
            tagged_header(Opcode::kWrite, true, Stag{0xbf703100}, 0x55885e8faae0));
  EXPECT_EQ(header_of(from_hex(kReadRequest)),
            untagged_header(Opcode::kReadRequest, true, Msn{1}, 0));
  EXPECT_EQ(header_of(from_hex(kReadResponse)),
            tagged_header(Opcode::kReadResponse, true, Stag{0xdaaef400}, 0x5612e60fcae0));
}

TEST(Segment, EmitsWhatTheKernelSent) {
  for (const char* hex : {kSend, kWrite, kReadRequest, kReadResponse}) {
    const ByteVector bytes = from_hex(hex);
    const SegmentHeader header = header_of(bytes);
    EXPECT_EQ(to_hex(emitted(header)), to_hex(Bytes(bytes).first(header.bytes())));
  }
}

TEST(Segment, ParsesWhatItEmits) {
  for (unsigned i = 0; i < 4096; ++i) {
    SegmentHeader header;
    header.tagged = i & 1;
    header.last = i & 2;
    header.ddp_version = i >> 2 & 3;
    header.rdmap_version = i >> 4 & 3;
    header.opcode = i >> 6 & 15;
    if (header.tagged) {
      header.stag = Stag{0x80000001u * i};
      header.tagged_offset = 0x8000000000000001u * i;
    } else {
      header.invalidate_stag = Stag{0x01020304u * i};
      header.queue = QueueNumber{i};
      header.msn = Msn{~i};
      header.message_offset = i << 16;
    }
    const ByteVector bytes = emitted(header);
    ASSERT_EQ(bytes.size(), header.bytes());
    ASSERT_EQ(segment_header_bytes(bytes[0]), bytes.size());
    ASSERT_EQ(header_of(bytes), header) << to_text(header, 0);
  }
}

TEST(Segment, NeedsItsWholeHeader) {
  for (const char* hex : {kSend, kWrite}) {
    const ByteVector bytes = from_hex(hex);
    const std::size_t whole = header_of(bytes).bytes();
    for (std::size_t n = 0; n < whole; ++n) {
      EXPECT_FALSE(parse_segment_header(Bytes(bytes).first(n)).has_value()) << n;
    }
    EXPECT_TRUE(parse_segment_header(Bytes(bytes).first(whole)).has_value());
    ByteVector out(whole - 1);
    EXPECT_EQ(emit_segment_header(out, header_of(bytes)), 0u);
  }
}

TEST(Segment, NumbersMessagesModulo32Bits) {
  EXPECT_EQ(next(kFirstMsn), Msn{2});
  EXPECT_EQ(next(Msn{0xffffffff}), Msn{0});
}

TEST(Opcodes, AreThoseOfTheSpecification) {
  EXPECT_EQ(find_opcode(12), nullptr);
  EXPECT_EQ(find_opcode(15), nullptr);
  ASSERT_NE(find_opcode(7), nullptr);
  EXPECT_EQ(find_opcode(7)->queue, QueueNumber::kTerminate);
  for (const OpcodeInfo& row : kOpcodes) {
    EXPECT_EQ(row.tagged, row.opcode == Opcode::kWrite || row.opcode == Opcode::kReadResponse)
        << row.name;
    EXPECT_EQ(row.extension, static_cast<unsigned>(row.opcode) > 7) << row.name;
    EXPECT_LE(row.min_payload_bytes, row.max_payload_bytes) << row.name;
  }
  EXPECT_TRUE(info(Opcode::kSendSolicitedInvalidate).solicited);
  EXPECT_TRUE(info(Opcode::kSendSolicitedInvalidate).invalidates);
}

TEST(ReadRequest, ReadsTheKernelsRequest) {
  const ByteVector ulpdu = from_hex(kReadRequest);
  const auto request = parse_read_request(Bytes(ulpdu).subspan(kUntaggedHeaderBytes));
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(*request, (ReadRequest{.sink_stag = Stag{0xdaaef400},
                                   .sink_offset = 0x5612e60fcae0,
                                   .read_bytes = 64,
                                   .source_stag = Stag{0xc4303100},
                                   .source_offset = 0x55885e8fe440}));
  ByteVector out(kReadRequestBytes);
  EXPECT_EQ(emit_read_request(out, *request), kReadRequestBytes);
  EXPECT_EQ(to_hex(out), to_hex(Bytes(ulpdu).subspan(kUntaggedHeaderBytes)));
}

/// emit, parse, compare; and neither works with one byte less.
template <class T, class Emit, class Parse>
void expect_round_trip(const T& value, std::size_t bytes, Emit emit, Parse parse) {
  ByteVector out(bytes);
  ASSERT_EQ(emit(out, value), bytes);
  const std::optional<T> again = parse(Bytes(out));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, value) << to_text(*again);
  EXPECT_FALSE(parse(Bytes(out).first(bytes - 1)).has_value());
  EXPECT_EQ(emit(MutableBytes(out).first(bytes - 1), value), 0u);
}

TEST(FixedMessages, ParseWhatTheyEmit) {
  expect_round_trip(ReadRequest{Stag{1}, 0x0203040506070809, 0x0a0b0c0d, Stag{0xfffffffe}, ~0ull},
                    28, emit_read_request, parse_read_request);
  expect_round_trip(Immediate{0x0102030405060708}, 8, emit_immediate, parse_immediate);
  expect_round_trip(AtomicRequest{AtomicOperation::kCompareSwap, 7, Stag{8}, 9, 10, 11, 12, 13}, 52,
                    emit_atomic_request, parse_atomic_request);
  expect_round_trip(AtomicResponse{0xdeadbeef, 0x123456789abcdef0}, 12, emit_atomic_response,
                    parse_atomic_response);
}

TEST(FixedMessages, HaveTheFiguresLayout) {
  ByteVector out(kAtomicRequestBytes);
  ASSERT_EQ(emit_atomic_request(
                out, AtomicRequest{AtomicOperation::kCompareSwap, 1, Stag{2}, 3, 4, 5, 6, 7}),
            52u);
  EXPECT_EQ(to_hex(out),
            "00000002"
            "00000001"
            "00000002"
            "0000000000000003"
            "0000000000000004"
            "0000000000000005"
            "0000000000000006"
            "0000000000000007");
  out.resize(kAtomicResponseBytes);
  ASSERT_EQ(emit_atomic_response(out, AtomicResponse{1, 2}), 12u);
  EXPECT_EQ(to_hex(out),
            "00000001"
            "0000000000000002");
}

TEST(Print, SaysWhatASegmentIs) {
  EXPECT_EQ(ulpdu_to_text(from_hex(kSend)), "SEND L=1 qn=0 msn=1 mo=0 len=16");
  EXPECT_EQ(ulpdu_to_text(from_hex(kWrite)), "WRITE L=1 stag=0xbf703100 to=0x55885e8faae0 len=4");
  EXPECT_EQ(ulpdu_to_text(from_hex(kReadRequest)),
            "READ_REQ L=1 qn=1 msn=1 mo=0 len=28 sink=0xdaaef400:0x5612e60fcae0 "
            "source=0xc4303100:0x55885e8fe440 bytes=64");
  EXPECT_EQ(ulpdu_to_text(from_hex("4144 0a0b0c0d 00000000 00000002 00000000")),
            "SEND_INV L=1 qn=0 msn=2 mo=0 invalidate=0xa0b0c0d len=0");
  EXPECT_EQ(ulpdu_to_text(from_hex("024c 00000000 00000000 00000000 00000000")),
            "OPCODE_0xc L=0 ddp_version=2 qn=0 msn=0 mo=0 len=0");
  EXPECT_EQ(ulpdu_to_text(from_hex("4148 00000000 00000000 00000001 00000000 0102")),
            "IMMEDIATE L=1 qn=0 msn=1 mo=0 len=2 (too short)");
  EXPECT_EQ(ulpdu_to_text(from_hex("4143")), "short ULPDU len=2");
}

TEST(Print, StopsWhereItsRoomEnds) {
  const ByteVector ulpdu = from_hex(kReadRequest);
  char room[kPrintBytes];
  const std::string whole(print_ulpdu(room, ulpdu));
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    EXPECT_EQ(print_ulpdu(std::span(room).first(n), ulpdu), whole.substr(0, n));
  }
}

TEST(Print, HasRoomForTheLongestLine) {
  TerminateMessage message;
  message.order = TerminateOrder::kSiw;
  message.cause = cause::kTaggedStagOfOtherStream;
  message.segment_bytes = 0xffff;
  message.segment_header =
      untagged_header(Opcode::kSendSolicitedInvalidate, true, Msn{~0u}, ~0u, Stag{~0u});
  message.segment_header->queue = QueueNumber{~0u};
  message.segment_header->ddp_version = 3;
  message.segment_header->rdmap_version = 3;
  message.read_request = ReadRequest{Stag{~0u}, ~0ull, ~0u, Stag{~0u}, ~0ull};
  const std::string text = to_text(message);
  EXPECT_EQ(text.back(), ']') << text;
  EXPECT_LT(text.size() + 100, kPrintBytes);  // a segment's own line goes before it
}

}  // namespace
}  // namespace airdma::wire
