// SPDX-License-Identifier: MIT
// Everything a peer can do wrong, and what a responder answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ostream>

#include "engine/rocev2/shared.h"
#include "engine/rocev2/violation.h"
#include "tests/unit/engine/rocev2/rc_responder_fixture.h"

namespace airdma::rocev2 {
namespace {

using model::QpEvent;
using model::QpState;
using model::WcStatus;
using sim::kKey;
using sim::PacketBytes;
using testing::kBase;
using testing::kMtu;
using testing::kPeer;
using testing::Responder;
using wire::NakCode;
using wire::PacketCode;
using wire::RocePacket;

struct Wrong {
  const char* name;
  Violation violation;
  std::function<void(Responder&)> act;
  WcStatus first_receive = WcStatus::kFlushError;
};
std::ostream& operator<<(std::ostream& out, const Wrong& wrong) { return out << wrong.name; }

void give_wrong(Responder& r, PacketCode code, std::size_t bytes,
                const std::function<void(RocePacket&)>& change = {}, std::uint32_t psn = 10) {
  RocePacket packet = r.packet(code, psn, bytes);
  if (change) change(packet);
  r.give(packet);
}

/// The first packet of a WRITE, which changes nothing.
void begin_write(Responder& r) {
  give_wrong(r, PacketCode::kWriteFirst, 0, [&](RocePacket& p) {
    r.payload = {r.memory.bytes().begin(), r.memory.bytes().begin() + kMtu};
    p.payload = r.payload;
    p.pad_bytes = 0;
    p.remote.bytes = 600;
  });
}

class Wrongs : public ::testing::TestWithParam<Wrong> {};

TEST_P(Wrongs, AreRefusedWithTheirCode) {
  Responder r;
  r.side.post_receive(1, {r.piece(100)});
  r.side.post_receive(2, {r.piece(100)});
  const auto before = r.memory.bytes();
  GetParam().act(r);
  const ViolationInfo& expected = info(GetParam().violation);
  const auto answers = r.answers();
  ASSERT_FALSE(answers.empty());
  EXPECT_TRUE(answers.back().acknowledgement.is_nak(*expected.nak));
  EXPECT_EQ(r.side.endpoint.state(), QpState::kError);
  EXPECT_STREQ(r.side.endpoint.failure(), expected.text);
  ASSERT_EQ(r.side.completions.size(), 2u);
  EXPECT_EQ(r.side.completions[0].status, GetParam().first_receive);
  EXPECT_EQ(r.side.completions[1].status, WcStatus::kFlushError);
  EXPECT_EQ(r.side.events.size(), 1u);
  EXPECT_EQ(r.side.events.front(), *expected.event);
  EXPECT_EQ(r.memory.bytes(), before);
  // Who asks again is told again.
  RocePacket again = r.packet(PacketCode::kWriteOnly, answers.back().psn.value(), 8);
  r.give(again);
  EXPECT_TRUE(r.answer().acknowledgement.is_nak(*expected.nak));
}

/// The next packet, with an opcode of RC that does not exist.
PacketBytes unknown_opcode() {
  wire::Bth bth;
  bth.opcode = 0x1f;
  bth.pkey = 0xffff;
  wire::Bth::DestinationQpn::set(bth, 1);
  wire::Bth::PacketNumber::set(bth, 10);
  PacketBytes bytes(sizeof bth);
  std::memcpy(bytes.data(), &bth, sizeof bth);
  return bytes;
}

const Wrong kWrongs[] = {
    {"MiddleWithoutFirst", Violation::kOpcodeSequence,
     [](Responder& r) { give_wrong(r, PacketCode::kSendMiddle, kMtu); }},
    {"FirstInsideOfAMessage", Violation::kOpcodeSequence,
     [](Responder& r) {
       begin_write(r);
       give_wrong(r, PacketCode::kSendOnly, 8, {}, 11);
     }},
    {"ReadInsideOfAMessage", Violation::kOpcodeSequence,
     [](Responder& r) {
       begin_write(r);
       give_wrong(r, PacketCode::kReadRequest, 0, {}, 11);
     }},
    {"ShortFirst", Violation::kPayloadLength,
     [](Responder& r) { give_wrong(r, PacketCode::kWriteFirst, 100); }},
    {"OnlyBeyondTheMtu", Violation::kPayloadLength,
     [](Responder& r) { give_wrong(r, PacketCode::kSendOnly, kMtu + 1); }},
    {"WriteShorterThanAnnounced", Violation::kWriteLength,
     [](Responder& r) {
       give_wrong(r, PacketCode::kWriteOnly, 8, [](RocePacket& p) { p.remote.bytes = 9; });
     }},
    {"WriteLongerThanAnnounced", Violation::kWriteLength,
     [](Responder& r) {
       give_wrong(r, PacketCode::kWriteOnly, 8, [](RocePacket& p) { p.remote.bytes = 7; });
     }},
    {"HugeWrite", Violation::kMessageTooLong,
     [](Responder& r) {
       give_wrong(r, PacketCode::kWriteFirst, kMtu,
                  [](RocePacket& p) { p.remote.bytes = kMaxMessageBytes + 1; });
     }},
    {"HugeRead", Violation::kMessageTooLong,
     [](Responder& r) {
       give_wrong(r, PacketCode::kReadRequest, 0,
                  [](RocePacket& p) { p.remote.bytes = kMaxMessageBytes + 1; });
     }},
    {"ReceiveTooSmall", Violation::kReceiveTooSmall,
     [](Responder& r) { give_wrong(r, PacketCode::kSendOnly, 101); }, WcStatus::kLocalLengthError},
    {"TooManyReads", Violation::kTooManyReads,
     [](Responder& r) {
       for (std::uint32_t psn = 10; psn < 15; ++psn) {
         give_wrong(r, PacketCode::kReadRequest, 0, [](RocePacket& p) { p.remote.bytes = 4; }, psn);
       }
     }},
    {"UnalignedAtomic", Violation::kAtomicUnaligned,
     [](Responder& r) {
       give_wrong(r, PacketCode::kFetchAdd, 0,
                  [](RocePacket& p) { p.atomic = {.address = kBase + 4, .rkey = kKey}; });
     }},
    {"UnknownKey", Violation::kInvalidKey,
     [](Responder& r) {
       give_wrong(r, PacketCode::kWriteOnly, 8,
                  [](RocePacket& p) { p.remote.rkey = Stag{0xdead}; });
     }},
    {"ReadOfUnknownKey", Violation::kInvalidKey,
     [](Responder& r) {
       give_wrong(r, PacketCode::kReadRequest, 0, [](RocePacket& p) {
         p.remote.rkey = Stag{0xdead};
         p.remote.bytes = 4;
       });
     }},
    {"AtomicOnUnknownKey", Violation::kInvalidKey,
     [](Responder& r) {
       give_wrong(r, PacketCode::kCompareSwap, 0,
                  [](RocePacket& p) { p.atomic = {.address = kBase, .rkey = Stag{0xdead}}; });
     }},
    {"Bounds", Violation::kBounds,
     [](Responder& r) {
       give_wrong(r, PacketCode::kWriteOnly, 8,
                  [](RocePacket& p) { p.remote.address = kBase + 65536 - 7; });
     }},
    {"AddressWraps", Violation::kBounds,
     [](Responder& r) {
       give_wrong(r, PacketCode::kReadRequest, 0, [](RocePacket& p) {
         p.remote.address = ~std::uint64_t{0};
         p.remote.bytes = 64;
       });
     }},
    {"InvalidatesARegion", Violation::kCannotInvalidate,
     [](Responder& r) {
       give_wrong(r, PacketCode::kSendOnlyInvalidate, 0,
                  [](RocePacket& p) { p.invalidate = kKey; });
     }},
    {"AtomicWrite", Violation::kUnsupported,
     [](Responder& r) { give_wrong(r, PacketCode::kAtomicWrite, 8); }},
    {"UnknownOpcode", Violation::kUnknownOpcode,
     [](Responder& r) { r.side.receive(unknown_opcode(), kPeer, r.now); }},
};
INSTANTIATE_TEST_SUITE_P(All, Wrongs, ::testing::ValuesIn(kWrongs),
                         [](const auto& wrong) { return wrong.param.name; });

TEST(RcResponder, TakesNoUnknownOpcodeFromOthers) {
  Responder r;
  r.side.receive(unknown_opcode(), 9, r.now);  // another host
  PacketBytes other_partition = unknown_opcode();
  other_partition[3] = std::byte{0x12};
  r.side.receive(other_partition, kPeer, r.now);
  EXPECT_TRUE(r.answers().empty());
  EXPECT_EQ(r.side.endpoint.state(), model::QpState::kRts);
  EXPECT_EQ(r.side.endpoint.stats().dropped, 2u);
}

TEST(RcResponder, RightsOfTheQueuePair) {
  for (const auto code :
       {PacketCode::kWriteOnly, PacketCode::kReadRequest, PacketCode::kFetchAdd}) {
    QpAttributes attributes = sim::usual_attributes();
    attributes.remote_access = 0;
    Responder r(attributes);
    give_wrong(r, code, code == PacketCode::kWriteOnly ? 8 : 0,
               [](RocePacket& p) { p.atomic = {.address = kBase, .rkey = kKey}; });
    EXPECT_TRUE(r.answer().acknowledgement.is_nak(NakCode::kInvalidRequest));
    EXPECT_THAT(r.side.events, ::testing::ElementsAre(QpEvent::kRequestError));
  }
}

TEST(RcResponder, ReceiveBufferThatMayNotBeWritten) {
  Responder r;
  r.side.post_receive(1, {{.addr = kBase, .length = 8, .lkey = Stag{0xbad}}});
  give_wrong(r, PacketCode::kSendOnly, 8);
  EXPECT_TRUE(r.answer().acknowledgement.is_nak(NakCode::kRemoteOperational));
  ASSERT_EQ(r.side.completions.size(), 1u);
  EXPECT_EQ(r.side.completions[0].status, WcStatus::kLocalProtectionError);
}

}  // namespace
}  // namespace airdma::rocev2
