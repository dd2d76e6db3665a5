// SPDX-License-Identifier: MIT
// What a responder answers, packet by packet, to peers that do right. rc_violation_test.cc has the
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/rocev2/shared.h"
#include "tests/unit/engine/rocev2/rc_responder_fixture.h"

namespace airdma::rocev2 {
namespace {

using model::QpEvent;
using model::QpState;
using model::WcStatus;
using sim::Buffer;
using sim::kKey;
using sim::PacketBytes;
using sim::PacketSide;
using testing::kBase;
using testing::kMtu;
using testing::kPeer;
using testing::Responder;
using wire::AckKind;
using wire::NakCode;
using wire::PacketCode;
using wire::RocePacket;
using wire::Service;

void expect_ack(const RocePacket& packet, std::uint32_t psn, std::uint32_t msn) {
  EXPECT_EQ(packet.info->operation, wire::Operation::kAcknowledge);
  EXPECT_EQ(packet.acknowledgement.kind, AckKind::kAck);
  EXPECT_EQ(packet.psn, Psn{psn});
  EXPECT_EQ(packet.acknowledgement.msn, AckMsn{msn});
  EXPECT_EQ(packet.destination, Qpn{kPeer});
}

TEST(RcResponder, AcknowledgesWhenAsked) {
  Responder r;
  r.side.post_receive(1, {r.piece(1000)});
  r.give(r.packet(PacketCode::kSendFirst, 10, kMtu));
  EXPECT_TRUE(r.answers().empty());
  RocePacket last = r.packet(PacketCode::kSendLast, 11, 3);
  last.ack_request = true;
  r.give(last);
  expect_ack(r.answer(), 11, 1);
  ASSERT_EQ(r.side.completions.size(), 1u);
  EXPECT_EQ(r.side.completions[0].byte_len, kMtu + 3);
}

TEST(RcResponder, OneAcknowledgementForAllReceivedTogether) {
  Responder r;
  for (std::uint32_t psn = 10; psn < 30; ++psn) {
    RocePacket write = r.packet(PacketCode::kWriteOnly, psn, 8);
    write.ack_request = true;
    r.give(write);
  }
  expect_ack(r.answer(), 29, 20);
}

TEST(RcResponder, AFewAcknowledgementsCanWaitForTheProgramsAnswer) {
  Responder r;
  const auto give_send = [&](std::uint32_t psn) {
    r.side.post_receive(1, {r.piece(8)});
    RocePacket send = r.packet(PacketCode::kSendOnly, psn, 8);
    send.ack_request = true;
    PacketBytes bytes(send.info->header_bytes);
    (void)wire::emit_roce_headers(bytes, send);
    bytes.resize(bytes.size() + 8);
    const PacketOrigin origin{.source = sim::host(kPeer), .destination = sim::host(1)};
    r.side.endpoint.on_packet(sim::readable(bytes), origin, r.now);
  };
  EXPECT_FALSE(r.side.endpoint.can_wait());
  give_send(10);
  EXPECT_TRUE(r.side.endpoint.can_wait());
  r.side.drain();
  EXPECT_FALSE(r.side.endpoint.can_wait());  // the program has heard of it
  for (std::uint32_t psn = 11; psn < 20; ++psn) give_send(psn);
  EXPECT_FALSE(r.side.endpoint.can_wait());  // too many
  expect_ack(r.answer(), 19, 10);
  give_send(20);
  r.give(r.packet(PacketCode::kWriteOnly, 25, 8));
  EXPECT_FALSE(r.side.endpoint.can_wait());
  EXPECT_TRUE(r.answers().back().acknowledgement.is_nak(NakCode::kPsnSequence));
  r.side.post({.sges = {r.piece(8)}});
  give_send(21);
  EXPECT_FALSE(r.side.endpoint.can_wait());  // something goes out anyway
}

TEST(RcResponder, AnswersComeBeforeTheAcknowledgement) {
  Responder r;
  RocePacket write = r.packet(PacketCode::kWriteOnly, 10, 8);
  write.ack_request = true;
  r.side.post({.sges = {r.piece(8)}});
  r.give(write);
  const auto answers = r.answers();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].info->operation, wire::Operation::kSend);
  expect_ack(answers[1], 10, 1);
}

TEST(RcResponder, SaysOnceThatAPacketIsMissing) {
  Responder r;
  r.give(r.packet(PacketCode::kWriteOnly, 12, 8));
  r.give(r.packet(PacketCode::kWriteOnly, 13, 8));
  const RocePacket nak = r.answer();
  EXPECT_TRUE(nak.acknowledgement.is_nak(NakCode::kPsnSequence));
  EXPECT_EQ(nak.psn, Psn{10});
  r.give(r.packet(PacketCode::kWriteOnly, 14, 8));
  EXPECT_TRUE(r.answers().empty());
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  r.give(r.packet(PacketCode::kWriteOnly, 12, 8));
  EXPECT_EQ(r.answers().back().psn, Psn{11});
}

TEST(RcResponder, SaysAgainThatAPacketIsMissingWhenItWasRepeatedAndLost) {
  Responder r;
  const auto give = [&](std::uint32_t psn) { r.give(r.packet(PacketCode::kWriteOnly, psn, 8)); };
  for (std::uint32_t psn = 11; psn < 15; ++psn) give(psn);
  EXPECT_EQ(r.answer().psn, Psn{10});
  for (int times = 0; times < 2; ++times) {
    give(11);
    const RocePacket nak = r.answer();
    EXPECT_TRUE(nak.acknowledgement.is_nak(NakCode::kPsnSequence));
    EXPECT_EQ(nak.psn, Psn{10});
    for (std::uint32_t psn = 12; psn < 18; ++psn) give(psn);
    EXPECT_TRUE(r.answers().empty());
  }
}

TEST(RcResponder, SaysNothingElseBeforeAReceiveIsPosted) {
  Responder r;
  r.give(r.packet(PacketCode::kSendOnly, 10, 8));
  r.give(r.packet(PacketCode::kSendOnly, 12, 8));
  r.give(r.packet(PacketCode::kSendOnly, 11, 8));
  EXPECT_EQ(r.answer().acknowledgement.kind, AckKind::kRnrNak);
}

// The kernel's rxe takes an acknowledgement with the PSN of a READ's response for the response.
TEST(RcResponder, AcknowledgesARepeatedMessageByThePsnOfAMessage) {
  Responder r;
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  RocePacket read = r.packet(PacketCode::kReadRequest, 11);
  read.remote.bytes = 600;
  r.give(read);
  EXPECT_EQ(r.answers().size(), 3u);
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  expect_ack(r.answer(), 10, 2);
}

// The kernel's rxe does not hear a NAK that follows another one directly.
TEST(RcResponder, AcknowledgesWhatCameBeforeAGap) {
  Responder r;
  r.give(r.packet(PacketCode::kWriteOnly, 11, 8));
  EXPECT_EQ(r.answer().psn, Psn{10});
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  r.give(r.packet(PacketCode::kWriteOnly, 11, 8));
  r.give(r.packet(PacketCode::kWriteOnly, 13, 8));
  const auto answers = r.answers();
  ASSERT_EQ(answers.size(), 2u);
  expect_ack(answers[0], 11, 2);
  EXPECT_TRUE(answers[1].acknowledgement.is_nak(NakCode::kPsnSequence));
  EXPECT_EQ(answers[1].psn, Psn{12});
}

TEST(RcResponder, AGapThatClosesBeforeTheAnswerIsNone) {
  Responder r;
  r.give(r.packet(PacketCode::kWriteOnly, 11, 8));
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  EXPECT_TRUE(r.answers().empty());
}

TEST(RcResponder, DuplicatesAreAcknowledgedAndNotPlaced) {
  Responder r;
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  std::memset(r.memory.bytes().data(), 1, 8);
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  expect_ack(r.answer(), 10, 1);
  EXPECT_EQ(r.memory.bytes()[0], std::byte{1});
}

TEST(RcResponder, TellsThatNoReceiveIsPosted) {
  Responder r;
  r.give(r.packet(PacketCode::kSendOnly, 10, 8));
  r.give(r.packet(PacketCode::kSendOnly, 11, 8));
  const RocePacket nak = r.answer();
  EXPECT_EQ(nak.acknowledgement.kind, AckKind::kRnrNak);
  EXPECT_EQ(nak.acknowledgement.value, 12);
  EXPECT_EQ(nak.psn, Psn{10});
  r.side.post_receive(1, {r.piece(8)});
  RocePacket again = r.packet(PacketCode::kSendOnly, 10, 8);
  again.ack_request = true;
  r.give(again);
  expect_ack(r.answer(), 10, 1);
}

TEST(RcResponder, ImmediateOfAWriteWaitsForAReceiveToo) {
  Responder r;
  RocePacket write = r.packet(PacketCode::kWriteOnlyImmediate, 10, 8);
  write.ack_request = true;
  r.give(write);
  EXPECT_EQ(r.answer().acknowledgement.kind, AckKind::kRnrNak);
  r.side.post_receive(1, {});
  r.give(write);
  expect_ack(r.answer(), 10, 1);
  EXPECT_EQ(r.side.completions.size(), 1u);
}

TEST(RcResponder, ReadIsAnsweredInPackets) {
  Responder r;
  RocePacket read = r.packet(PacketCode::kReadRequest, 10);
  read.remote.bytes = 600;
  r.give(read);
  const auto answers = r.answers();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].info->code, PacketCode::kReadResponseFirst);
  EXPECT_EQ(answers[1].info->code, PacketCode::kReadResponseMiddle);
  EXPECT_EQ(answers[2].info->code, PacketCode::kReadResponseLast);
  EXPECT_EQ(answers[2].psn, Psn{12});
  EXPECT_EQ(answers[2].acknowledgement.msn, AckMsn{1});
  ASSERT_EQ(answers[2].payload.size(), 88u);
  EXPECT_EQ(std::memcmp(answers[2].payload.data(), r.memory.bytes().data() + 512, 88), 0);
  // The next request has the PSN behind the response.
  RocePacket write = r.packet(PacketCode::kWriteOnly, 13, 8);
  write.ack_request = true;
  r.give(write);
  expect_ack(r.answer(), 13, 2);
}

TEST(RcResponder, ReadIsRepeatedFromTheMissingPacket) {
  Responder r;
  RocePacket read = r.packet(PacketCode::kReadRequest, 10);
  read.remote.bytes = 600;
  r.give(read);
  EXPECT_EQ(r.answers().size(), 3u);
  RocePacket again = r.packet(PacketCode::kReadRequest, 11);
  again.remote.address += 256;
  again.remote.bytes = 344;
  r.give(again);
  const auto answers = r.answers();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].info->code, PacketCode::kReadResponseFirst);
  EXPECT_EQ(answers[0].psn, Psn{11});
  EXPECT_EQ(answers[1].psn, Psn{12});
}

TEST(RcResponder, RepeatedReadOfWithdrawnMemoryIsNotHeard) {
  Responder r;
  RocePacket read = r.packet(PacketCode::kReadRequest, 10);
  read.remote.bytes = 600;
  r.give(read);
  EXPECT_EQ(r.answers().size(), 3u);
  r.memory.withdraw();
  r.give(read);
  EXPECT_TRUE(r.answers().empty());
  EXPECT_EQ(r.side.endpoint.state(), QpState::kRts);
}

TEST(RcResponder, AtomicIsDoneOnceAndItsAnswerRepeated) {
  Responder r;
  std::uint64_t value = 5;
  std::memcpy(r.memory.bytes().data(), &value, 8);
  RocePacket add = r.packet(PacketCode::kFetchAdd, 10);
  add.atomic = {.address = kBase, .rkey = kKey, .swap_or_add = 3};
  for (int i = 0; i < 2; ++i) {
    r.give(add);
    const RocePacket answer = r.answer();
    EXPECT_EQ(answer.info->operation, wire::Operation::kAtomicAcknowledge);
    EXPECT_EQ(answer.original, 5u);
    EXPECT_EQ(answer.psn, Psn{10});
  }
  std::memcpy(&value, r.memory.bytes().data(), 8);
  EXPECT_EQ(value, 8u);
}

TEST(RcResponder, ForgottenAtomicIsNotDoneAgain) {
  Responder r;
  RocePacket add = r.packet(PacketCode::kFetchAdd, 10);
  add.atomic = {.address = kBase, .rkey = kKey, .swap_or_add = 1};
  std::memset(r.memory.bytes().data(), 0, 8);
  for (std::uint32_t psn = 10; psn < 16; ++psn) {
    add.psn = Psn{psn};
    r.give(add);
    EXPECT_EQ(r.answers().size(), 1u);
  }
  add.psn = Psn{10};
  r.give(add);
  EXPECT_TRUE(r.answers().empty());
  EXPECT_EQ(r.memory.bytes()[0], std::byte{6});
}

TEST(RcResponder, AnswersComeInTheOrderOfRequests) {
  Responder r;
  RocePacket read = r.packet(PacketCode::kReadRequest, 10);
  read.remote.bytes = 300;
  r.give(read);
  RocePacket write = r.packet(PacketCode::kWriteOnly, 12, 8);
  write.ack_request = true;
  r.give(write);
  r.give(r.packet(PacketCode::kWriteOnly, 20, 8));
  const auto answers = r.answers();
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0].psn, Psn{10});
  EXPECT_EQ(answers[1].psn, Psn{11});
  expect_ack(answers[2], 12, 2);
  EXPECT_TRUE(answers[3].acknowledgement.is_nak(NakCode::kPsnSequence));
  EXPECT_EQ(answers[3].psn, Psn{13});
}

TEST(RcResponder, PacketsOfOthersAreNotHeard) {
  Responder r;
  RocePacket write = r.packet(PacketCode::kWriteOnly, 10, 8);
  write.ack_request = true;
  PacketBytes bytes(write.info->header_bytes + 8);
  (void)wire::emit_roce_headers(bytes, write);
  r.side.receive(bytes, 9, r.now);  // another host
  write.pkey = Pkey{0x8001};
  r.give(write);
  write.pkey = Pkey{0xffff};
  write.info = &wire::roce_info(Service::kUc, PacketCode::kWriteOnly);
  r.give(write);
  EXPECT_TRUE(r.answers().empty());
  EXPECT_EQ(r.side.endpoint.stats().dropped, 3u);
}

TEST(RcResponder, CongestionIsToldOncePerInterval) {
  Responder r;
  for (std::uint32_t psn = 10; psn < 14; ++psn) {
    r.give(r.packet(PacketCode::kWriteOnly, psn, 8), kCongestionExperienced);
  }
  const RocePacket notification = r.answer();
  EXPECT_EQ(notification.info->operation, wire::Operation::kCongestionNotification);
  EXPECT_TRUE(notification.becn);
  EXPECT_EQ(notification.destination, Qpn{kPeer});
  r.now += std::chrono::microseconds(60);
  r.give(r.packet(PacketCode::kWriteOnly, 14, 8), kCongestionExperienced);
  EXPECT_EQ(r.answers().size(), 1u);
}

TEST(RcResponder, EstablishedIsToldInRtr) {
  PacketSide side(1);
  Buffer memory(side.table, kKey, kBase, 64);
  side.connect(sim::usual_attributes(), kPeer, Time{}, false);
  RocePacket write;
  write.info = &wire::roce_info(Service::kRc, PacketCode::kWriteOnly);
  write.pkey = Pkey{0xffff};
  PacketBytes bytes(write.info->header_bytes);
  (void)wire::emit_roce_headers(bytes, write);
  side.receive(bytes, kPeer, Time{});
  EXPECT_THAT(side.events, ::testing::ElementsAre(QpEvent::kCommunicationEstablished));
}

TEST(RcResponder, ProgramsEndIsSilent) {
  Responder r;
  r.side.post_receive(1, {r.piece(8)});
  r.side.endpoint.fail(r.now);
  r.side.drain();
  r.give(r.packet(PacketCode::kWriteOnly, 10, 8));
  EXPECT_TRUE(r.answers().empty());
  ASSERT_EQ(r.side.completions.size(), 1u);
  r.side.post_receive(2, {r.piece(8)});
  r.side.drain();
  ASSERT_EQ(r.side.completions.size(), 2u);
  EXPECT_EQ(r.side.completions[1].status, WcStatus::kFlushError);
}

}  // namespace
}  // namespace airdma::rocev2
