// SPDX-License-Identifier: MIT
#include "wire/terminate.h"

#include <gtest/gtest.h>

#include "tests/support/bytes.h"
#include "wire/print.h"

namespace airdma::wire {
namespace {

using test::ByteVector;
using test::from_hex;
using test::to_hex;

// Terminate payloads (after the DDP header) of tests/interop/captures/siw-term-send-toolong.pcap
// and siw-term-write-bounds.pcap.
constexpr const char* kSendTooLong = "21020300 0590 0143 00000000 00000000 00000001 00000000";
constexpr const char* kWriteBounds = "11010300 0594 8140 1b8cbe00 0000565377d2bb28";

TerminateMessage parsed(const ByteVector& payload) {
  const auto message = parse_terminate(payload);
  EXPECT_TRUE(message.has_value());
  return message.value_or(TerminateMessage{});
}

ByteVector emitted(const TerminateMessage& message) {
  ByteVector out(kTerminateMaxBytes);
  out.resize(emit_terminate(out, message));
  return out;
}

TEST(Terminate, ReadsTheKernelsUntaggedError) {
  const TerminateMessage message = parsed(from_hex(kSendTooLong));
  EXPECT_EQ(message.order, TerminateOrder::kSiw);
  EXPECT_EQ(message.cause, cause::kUntaggedNoBuffer);
  EXPECT_EQ(message.segment_bytes, 0x590);
  EXPECT_EQ(message.segment_header, untagged_header(Opcode::kSend, false, Msn{1}, 0));
  EXPECT_FALSE(message.read_request.has_value());
  EXPECT_EQ(to_text(message),
            "layer=DDP type=2 code=0x02 (invalid MSN, no buffer available) order=siw segment=1424 "
            "[SEND L=0 qn=0 msn=1 mo=0]");
}

TEST(Terminate, ReadsTheKernelsTaggedError) {
  const TerminateMessage message = parsed(from_hex(kWriteBounds));
  EXPECT_EQ(message.order, TerminateOrder::kSiw);
  EXPECT_EQ(message.cause, cause::kTaggedBounds);
  EXPECT_EQ(message.segment_bytes, 0x594);
  EXPECT_EQ(message.segment_header,
            tagged_header(Opcode::kWrite, false, Stag{0x1b8cbe00}, 0x565377d2bb28));
}

TEST(Terminate, EmitsTheKernelsOrderWhenAsked) {
  for (const char* hex : {kSendTooLong, kWriteBounds}) {
    const ByteVector bytes = from_hex(hex);
    EXPECT_EQ(to_hex(emitted(parsed(bytes))), to_hex(bytes));
  }
}

TEST(Terminate, EmitsTheSpecificationsOrder) {
  TerminateMessage message = parsed(from_hex(kSendTooLong));
  message.order = TerminateOrder::kRfc;
  const ByteVector bytes = emitted(message);
  EXPECT_EQ(to_hex(Bytes(bytes).first(4)), "1202c000");
  EXPECT_EQ(parsed(bytes), message);
}

TEST(Terminate, ParsesWhatItEmitsInBothOrders) {
  TerminateMessage message;
  message.cause = cause::kBounds;
  message.segment_bytes = 28 + 18;
  message.segment_header = untagged_header(Opcode::kReadRequest, true, Msn{5}, 0);
  message.read_request = ReadRequest{Stag{1}, 2, 3, Stag{4}, 5};
  for (TerminateOrder order : {TerminateOrder::kRfc, TerminateOrder::kSiw}) {
    message.order = order;
    const ByteVector bytes = emitted(message);
    EXPECT_EQ(bytes.size(), kTerminateMaxBytes);
    EXPECT_EQ(parsed(bytes), message) << to_text(message);
    ByteVector small(kTerminateMaxBytes - 1);
    EXPECT_EQ(emit_terminate(small, message), 0u);
  }
}

TEST(Terminate, TellsTheOrderByTheCauseWhenNoHeaderFollows) {
  // Layer 2, type 0 in one order; in the other, layer 0 with a type 2 that has no code 2.
  EXPECT_EQ(parsed(from_hex("20020000")).cause, cause::kMpaCrc);
  EXPECT_EQ(parsed(from_hex("20020000")).order, TerminateOrder::kRfc);
  // Layer 0, type 2 has no code 2, so this is siw's way to say layer 2, type 0.
  EXPECT_EQ(parsed(from_hex("02020000")).cause, cause::kMpaCrc);
  EXPECT_EQ(parsed(from_hex("02020000")).order, TerminateOrder::kSiw);
  // Unknown either way: read as the specification has it.
  EXPECT_EQ(parsed(from_hex("45990000")).cause, (TerminateCause{TerminateLayer{4}, 5, 0x99}));
}

TEST(Terminate, LeavesOutHeadersThatAreCutOff) {
  const ByteVector bytes = from_hex(kSendTooLong);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto message = parse_terminate(Bytes(bytes).first(n));
    ASSERT_EQ(message.has_value(), n >= 4) << n;
    if (!message) continue;
    EXPECT_EQ(message->cause, cause::kUntaggedNoBuffer);
    EXPECT_EQ(message->segment_bytes.has_value(), n >= 6) << n;
    EXPECT_FALSE(message->segment_header.has_value()) << n;
  }
}

TEST(Terminate, KeepsAHeaderWhoseLengthIsNotValid) {
  TerminateMessage message;
  message.cause = cause::kUnexpectedOpcode;
  message.segment_header = tagged_header(Opcode::kWrite, true, Stag{1}, 2);
  EXPECT_EQ(parsed(emitted(message)), message);
}

TEST(Terminate, NamesEveryDefinedCauseOnce) {
  unsigned defined = 0;
  for (unsigned layer = 0; layer < 16; ++layer) {
    for (unsigned type = 0; type < 16; ++type) {
      for (unsigned code = 0; code < 256; ++code) {
        const TerminateCause cause{static_cast<TerminateLayer>(layer),
                                   static_cast<std::uint8_t>(type),
                                   static_cast<std::uint8_t>(code)};
        defined += is_defined(cause);
        EXPECT_EQ(is_defined(cause), describe(cause) != "unknown");
      }
    }
  }
  EXPECT_EQ(defined, 33u);
}

}  // namespace
}  // namespace airdma::wire
