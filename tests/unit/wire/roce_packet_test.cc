// SPDX-License-Identifier: MIT
#include "wire/roce_packet.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

#include "tests/support/bytes.h"
#include "wire/print.h"

namespace airdma::wire {
namespace {

using test::ByteVector;
using test::from_hex;
using test::to_hex;

// UDP payloads of tests/interop/captures/rxe-*.pcap without their ICRCs, long ones cut off.
constexpr const char* kSendOnly = "0400ffff0000001c807821f1 00000000";  // payload made shorter
constexpr const char* kAck = "1100ffff0000001c007821f0 1f000001";
constexpr const char* kNak = "1100ffff00000013001535f3 60000004";
constexpr const char* kWriteOnlyImmediate =
    "0b00ffff0000002c80135205 00007fff22d31fd022d31f9000000000 e0000000";
constexpr const char* kReadRequest = "0c00ffff00000018808198b4 000055e3977f300000000f4500000064";
constexpr const char* kReadResponseLast = "0f30ffff00000019003fef30 1f000001 15000000";
constexpr const char* kAtomicAck = "1200ffff00000015009a5caa 1f000001 c83325e9db682789";
constexpr const char* kCompareSwap =
    "1300ffff0000001f80e84f01 000055f4bacb7000 000016db 0000000000000000 0000000000000000";
constexpr const char* kFetchAdd =
    "1400ffff00000015809a5caa 000055baf05f7000 0000065a 0000000000000001 0000000000000000";
constexpr const char* kDatagramImmediate =
    "6500ffff00ffffff00000000 0123456700000025 00000025 b0ad06a4";
constexpr const char* kUcWriteFirst =
    "2600ffff0000002000a4502b 0000557541491389 00001778 00001389 c335f086";

RocePacket packet_of(const ByteVector& bytes) {
  const auto packet = parse_roce_packet(bytes);
  EXPECT_TRUE(packet.has_value()) << roce_to_text(bytes);
  return packet.value_or(RocePacket{});
}

std::string text_of(const char* hex) { return roce_to_text(from_hex(hex)); }

RoceFault fault_of(const ByteVector& bytes) {
  const auto packet = parse_roce_packet(bytes);
  EXPECT_FALSE(packet.has_value());
  return packet ? RoceFault{} : packet.error().fault;
}

TEST(RocePacket, ReadsTheKernelsPackets) {
  EXPECT_EQ(text_of(kSendOnly), "RC SEND_ONLY qp=0x1c psn=0x7821f1 A=1 len=4");
  EXPECT_EQ(text_of(kAck), "RC ACK qp=0x1c psn=0x7821f0 A=0 ACK msn=1");
  EXPECT_EQ(text_of(kNak), "RC ACK qp=0x13 psn=0x1535f3 A=0 NAK PSN sequence error msn=4");
  EXPECT_EQ(text_of(kWriteOnlyImmediate),
            "RC WRITE_ONLY_IMM qp=0x2c psn=0x135205 A=1 to=0x7fff22d31fd0:0x22d31f90 bytes=0 "
            "imm=0xe0000000 len=0");
  EXPECT_EQ(text_of(kReadRequest),
            "RC READ_REQUEST qp=0x18 psn=0x8198b4 A=1 to=0x55e3977f3000:0xf45 bytes=100");
  EXPECT_EQ(text_of(kReadResponseLast),
            "RC READ_RESP_LAST qp=0x19 psn=0x3fef30 A=0 ACK msn=1 len=1");
  EXPECT_EQ(text_of(kAtomicAck),
            "RC ATOMIC_ACK qp=0x15 psn=0x9a5caa A=0 ACK msn=1 original=0xc83325e9db682789");
  EXPECT_EQ(text_of(kCompareSwap),
            "RC CMP_SWAP qp=0x1f psn=0xe84f01 A=1 to=0x55f4bacb7000:0x16db swap=0x0 compare=0x0");
  EXPECT_EQ(text_of(kFetchAdd),
            "RC FETCH_ADD qp=0x15 psn=0x9a5caa A=1 to=0x55baf05f7000:0x65a add=0x1");
  EXPECT_EQ(text_of(kDatagramImmediate),
            "UD SEND_ONLY_IMM qp=0xffffff psn=0x0 A=0 from=0x25 qkey=0x1234567 imm=0x25 len=4");
  EXPECT_EQ(text_of(kUcWriteFirst),
            "UC WRITE_FIRST qp=0x20 psn=0xa4502b A=0 to=0x557541491389:0x1778 bytes=5001 len=4");
}

TEST(RocePacket, GivesItsFields) {
  const ByteVector bytes = from_hex("0f f5 8001 c0 000019 80 3fef30 7f000002 0102030405 000000");
  // Version 5 is unknown; with version 0 the rest of the flags is read.
  EXPECT_EQ(fault_of(bytes), RoceFault::kVersion);
  ByteVector good = bytes;
  good[1] = std::byte{0xf0};
  const RocePacket packet = packet_of(good);
  EXPECT_EQ(packet.info, &roce_info(Service::kRc, PacketCode::kReadResponseLast));
  EXPECT_TRUE(packet.solicited && packet.migrated && packet.fecn && packet.becn);
  EXPECT_TRUE(packet.ack_request);
  EXPECT_EQ(packet.pad_bytes, 3);
  EXPECT_EQ(packet.pkey, Pkey{0x8001});
  EXPECT_EQ(packet.destination, Qpn{0x19});
  EXPECT_EQ(packet.psn, Psn{0x3fef30});
  EXPECT_EQ(packet.acknowledgement, (Acknowledgement{AckKind::kNak, 31, AckMsn{2}}));
  EXPECT_EQ(to_hex(packet.payload), "0102030405");
  EXPECT_EQ(packet.payload.data(), good.data() + 16);
}

TEST(RocePacket, KeepsImmediateDataInNetworkOrder) {
  const ByteVector bytes = from_hex(kWriteOnlyImmediate);
  const RocePacket packet = packet_of(bytes);
  EXPECT_EQ((std::bit_cast<std::array<std::byte, 4>>(packet.immediate)),
            (std::array{std::byte{0xe0}, std::byte{0}, std::byte{0}, std::byte{0}}));
}

/// A packet of this opcode whose fields all differ from their defaults.
RocePacket sample(const RoceOpcodeInfo& info, std::uint32_t seed) {
  RocePacket packet;
  packet.info = &info;
  packet.solicited = seed & 1;
  packet.migrated = seed & 2;
  packet.ack_request = seed & 4;
  packet.fecn = seed & 8;
  packet.becn = seed & 16;
  packet.pkey = Pkey{static_cast<std::uint16_t>(0x8001 + seed)};
  packet.destination = Qpn{0xabcdef - seed};
  packet.psn = Psn{0x123456 + seed};
  if (info.has(kHasXrcEth)) packet.srqn = Srqn{0x314159};
  if (info.has(kHasDeth)) {
    packet.qkey = Qkey{0x80010000};
    packet.source = Qpn{0x271828};
  }
  if (info.has(kHasReth)) packet.remote = {0x0102030405060708, Stag{0x11223344}, 0xfffffffe};
  if (info.has(kHasAtomicEth)) packet.atomic = {0x1122334455667788, Stag{9}, ~0ull, 1ull << 63};
  if (info.has(kHasAeth)) {
    packet.acknowledgement = {static_cast<AckKind>(seed % 4),
                              static_cast<std::uint8_t>(seed * 7 % 32), AckMsn{0x987654}};
  }
  if (info.has(kHasAtomicAckEth)) packet.original = 0xfedcba9876543210;
  if (info.has(kHasImmDt)) packet.immediate = 0xdeadbeef;
  if (info.has(kHasIeth)) packet.invalidate = Stag{0x55aa55aa};
  return packet;
}

ByteVector emitted(RocePacket packet, const ByteVector& payload) {
  packet.pad_bytes = roce_pad_bytes(payload.size());
  ByteVector out(kMaxRoceHeaderBytes);
  const std::size_t length = emit_roce_headers(out, packet);
  EXPECT_EQ(length, packet.info->header_bytes);
  out.resize(length);
  out.insert(out.end(), payload.begin(), payload.end());
  out.resize(out.size() + packet.pad_bytes);
  return out;
}

std::size_t usual_payload(const RoceOpcodeInfo& info, std::uint32_t seed) {
  if (info.operation == Operation::kAtomicWrite) return 8;
  return info.may_carry_payload ? seed : 0;
}

void expect_same(const RocePacket& a, const RocePacket& b) {
  EXPECT_EQ(a.info, b.info);
  EXPECT_EQ(a.pkey, b.pkey);
  EXPECT_EQ(a.qkey, b.qkey);
  EXPECT_EQ(a.srqn, b.srqn);
  EXPECT_EQ(a.remote, b.remote);
  EXPECT_EQ(a.atomic, b.atomic);
  EXPECT_EQ(a.acknowledgement, b.acknowledgement);
  EXPECT_EQ(a.original, b.original);
  EXPECT_EQ(a.immediate, b.immediate);
  EXPECT_EQ(a.invalidate, b.invalidate);
  EXPECT_EQ(to_text(a), to_text(b));
}

TEST(RocePacket, ParsesWhatItEmitsOfEveryOpcode) {
  for (const RoceOpcodeInfo& info : kRoceOpcodes) {
    if (!info.known) continue;
    for (std::uint32_t seed = 0; seed < 64; ++seed) {
      SCOPED_TRACE(std::string(info.name) + " " + std::to_string(seed));
      const ByteVector payload = test::pattern(usual_payload(info, seed));
      const RocePacket before = sample(info, seed);
      const ByteVector bytes = emitted(before, payload);
      const auto after = parse_roce_packet(bytes);
      ASSERT_TRUE(after.has_value());
      EXPECT_EQ(to_hex(after->payload), to_hex(payload));
      RocePacket with_payload = before;
      with_payload.payload = payload;
      with_payload.pad_bytes = after->pad_bytes;
      expect_same(*after, with_payload);
      ByteVector again(kMaxRoceHeaderBytes);
      again.resize(emit_roce_headers(again, *after));
      EXPECT_EQ(to_hex(again), to_hex(Bytes(bytes).first(info.header_bytes)));
    }
  }
}

TEST(RocePacket, ChecksEveryLength) {
  for (const RoceOpcodeInfo& info : kRoceOpcodes) {
    if (!info.known) continue;
    SCOPED_TRACE(info.name);
    const ByteVector payload(usual_payload(info, 16));
    const ByteVector bytes = emitted(sample(info, 0), payload);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      const auto packet = parse_roce_packet(Bytes(bytes).first(n));
      const bool whole =
          n >= info.header_bytes && n % 4 == 0 && info.operation != Operation::kAtomicWrite;
      ASSERT_EQ(packet.has_value(), whole) << n;
      if (!packet) {
        EXPECT_EQ(packet.error().fault, n < 12 ? RoceFault::kTruncated : RoceFault::kLength);
      }
    }
    ByteVector longer = bytes;
    longer.resize(bytes.size() + 4);
    const bool takes_more = info.may_carry_payload && info.operation != Operation::kAtomicWrite;
    EXPECT_EQ(parse_roce_packet(longer).has_value(), takes_more);
    ByteVector small(info.header_bytes - 1u);
    EXPECT_EQ(emit_roce_headers(small, sample(info, 0)), 0u);
  }
}

TEST(RocePacket, RefusesAPadThatIsNotThere) {
  ByteVector bytes = from_hex("0400ffff0000001c807821f1");  // a SEND of nothing
  EXPECT_TRUE(parse_roce_packet(bytes).has_value());
  bytes[1] = std::byte{0x10};
  EXPECT_EQ(fault_of(bytes), RoceFault::kLength);
  bytes = from_hex(kAck);  // which may have none
  bytes[1] = std::byte{0x30};
  EXPECT_EQ(fault_of(bytes), RoceFault::kLength);
  bytes.resize(bytes.size() + 4);
  EXPECT_EQ(fault_of(bytes), RoceFault::kLength);
}

TEST(RocePacket, SaysWhoseBrokenPacketItIs) {
  const auto packet = parse_roce_packet(from_hex("5500ffff0012345680654321"));
  ASSERT_FALSE(packet.has_value());
  EXPECT_EQ(packet.error().fault, RoceFault::kOpcode);
  EXPECT_EQ(packet.error().opcode, 0x55);
  EXPECT_EQ(packet.error().destination, Qpn{0x123456});
  EXPECT_EQ(packet.error().psn, Psn{0x654321});
  EXPECT_EQ(text_of("5500ffff0012345680654321"),
            "opcode 0x55 qp=0x123456 psn=0x654321 (undefined opcode) len=12");
  EXPECT_EQ(text_of("5500"), "(too short) len=2");
}

TEST(RocePacket, KnowsCongestionNotifications) {
  RocePacket cnp;
  cnp.info = &cnp_info();
  cnp.becn = true;
  cnp.pkey = Pkey{0xffff};
  cnp.destination = Qpn{0x17};
  const ByteVector bytes = emitted(cnp, {});
  EXPECT_EQ(to_hex(bytes), "8100ffff4000001700000000" + std::string(32, '0'));
  EXPECT_TRUE(packet_of(bytes).becn);
  EXPECT_EQ(roce_to_text(bytes), "CNP qp=0x17");
}

TEST(RoceOpcodes, AreThoseOfTheSpecification) {
  // Opcode bytes and names as <infiniband/opcode.h> has them, and the ranges of A14 and A17.
  std::set<unsigned> expected;
  for (unsigned code = 0x00; code <= 0x14; ++code) expected.insert(code);
  for (unsigned code : {0x16, 0x17, 0x1d}) expected.insert(code);
  for (unsigned code : std::set<unsigned>(expected)) expected.insert(0xa0 + code);
  for (unsigned code = 0x20; code <= 0x2b; ++code) expected.insert(code);
  for (unsigned code : {0x64, 0x65, 0x81}) expected.insert(code);
  std::set<unsigned> known;
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_EQ(kRoceOpcodes[code].opcode, code);
    if (find_roce_opcode(static_cast<std::uint8_t>(code)) != nullptr) known.insert(code);
  }
  EXPECT_EQ(known, expected);
}

TEST(RoceOpcodes, SayWhichHeadersThereAre) {
  const auto headers = [](Service service, PacketCode code) {
    return roce_info(service, code).headers;
  };
  EXPECT_EQ(headers(Service::kRc, PacketCode::kWriteOnlyImmediate), kHasReth | kHasImmDt);
  EXPECT_EQ(headers(Service::kXrc, PacketCode::kWriteMiddle), kHasXrcEth);
  EXPECT_EQ(headers(Service::kXrc, PacketCode::kFetchAdd), kHasXrcEth | kHasAtomicEth);
  EXPECT_EQ(headers(Service::kXrc, PacketCode::kAcknowledge), kHasAeth);
  EXPECT_EQ(headers(Service::kUd, PacketCode::kSendOnlyImmediate), kHasDeth | kHasImmDt);
  EXPECT_EQ(roce_info(Service::kXrc, PacketCode::kCompareSwap).header_bytes, kMaxRoceHeaderBytes);
}

TEST(RoceOpcodes, FollowThePlaceInTheMessage) {
  for (const bool first : {false, true}) {
    for (const bool last : {false, true}) {
      const Position position = first ? (last ? Position::kOnly : Position::kFirst)
                                      : (last ? Position::kLast : Position::kMiddle);
      for (const PacketCode code :
           {send_code(first, last), write_code(first, last), read_response_code(first, last)}) {
        EXPECT_EQ(roce_info(Service::kRc, code).position, position);
        EXPECT_EQ(roce_info(Service::kRc, code).starts(), first);
        EXPECT_EQ(roce_info(Service::kRc, code).ends(), last);
      }
      const auto tail = [&](PacketCode code) { return roce_info(Service::kRc, code); };
      EXPECT_EQ(tail(send_code(first, last, Tail::kImmediate)).has(kHasImmDt), last);
      EXPECT_EQ(tail(send_code(first, last, Tail::kInvalidate)).has(kHasIeth), last);
      EXPECT_EQ(tail(write_code(first, last, true)).has(kHasImmDt), last);
      EXPECT_EQ(tail(write_code(first, last)).operation, Operation::kWrite);
      EXPECT_EQ(tail(write_code(first, last)).has(kHasReth), first);
    }
  }
}

}  // namespace
}  // namespace airdma::wire
