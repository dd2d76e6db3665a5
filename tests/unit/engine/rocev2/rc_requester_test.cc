// SPDX-License-Identifier: MIT
// What a requester makes of answers, of their absence, and of its program's mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "engine/rocev2/timers.h"
#include "engine/rocev2/violation.h"
#include "tests/sim/packet_pair.h"

namespace airdma::rocev2 {
namespace {

using model::QpEvent;
using model::QpState;
using model::SendOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::kKey;
using sim::PacketBytes;
using sim::PacketPair;
using sim::PacketSide;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using wire::Acknowledgement;
using wire::NakCode;
using wire::Operation;
using wire::PacketCode;
using wire::RocePacket;
using wire::Service;

constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint32_t kMtu = 256;
constexpr std::uint8_t kPeer = 2;

std::vector<WcStatus> statuses(const PacketSide& side) {
  std::vector<WcStatus> all;
  for (const auto& wc : side.completions) all.push_back(wc.status);
  return all;
}

/// A requester whose peer is played by hand.
struct Requester {
  explicit Requester(QpAttributes attributes = sim::usual_attributes())
      : side(1), memory(side.table, kKey, kBase, 65536) {
    attributes.sq_psn = Psn{10};
    side.connect(attributes, kPeer, now);
    sim::fill(memory.bytes(), 1);
  }
  model::Sge piece(std::uint32_t bytes, std::uint64_t offset = 0) {
    return {.addr = kBase + offset, .length = bytes, .lkey = kKey};
  }
  void write(std::uint64_t wr_id, std::uint32_t bytes) {
    side.post(
        {.opcode = SendOpcode::kWrite, .wr_id = wr_id, .sges = {piece(bytes)}, .remote_addr = 8});
  }
  void read(std::uint64_t wr_id, std::uint32_t bytes) {
    side.post(
        {.opcode = SendOpcode::kRead, .wr_id = wr_id, .sges = {piece(bytes)}, .remote_addr = 8});
  }
  std::vector<RocePacket> sent() {
    last_sent = side.transmit(now);
    std::vector<RocePacket> packets;
    for (const PacketBytes& packet : last_sent) packets.push_back(sim::readable(packet));
    return packets;
  }
  std::vector<std::uint32_t> psns() {
    std::vector<std::uint32_t> all;
    for (const RocePacket& packet : sent()) all.push_back(packet.psn.value());
    return all;
  }
  void answer(PacketCode code, std::uint32_t psn, Acknowledgement acknowledgement,
              std::size_t payload_bytes = 0, std::uint64_t original = 0) {
    std::vector<std::byte> payload(payload_bytes, std::byte{0x99});
    RocePacket packet;
    packet.info = &wire::roce_info(Service::kRc, code);
    packet.pkey = Pkey{0xffff};
    packet.psn = Psn{psn};
    packet.acknowledgement = acknowledgement;
    packet.original = original;
    packet.pad_bytes = wire::roce_pad_bytes(payload_bytes);
    PacketBytes made(packet.info->header_bytes);
    (void)wire::emit_roce_headers(made, packet);
    made.insert(made.end(), payload.begin(), payload.end());
    made.resize(made.size() + packet.pad_bytes);
    side.receive(made, kPeer, now);
  }
  void ack(std::uint32_t psn) {
    answer(PacketCode::kAcknowledge, psn, Acknowledgement::ack(AckMsn{1}));
  }
  void nak(std::uint32_t psn, NakCode code) {
    answer(PacketCode::kAcknowledge, psn, Acknowledgement::nak(code, AckMsn{1}));
  }
  void rnr_nak(std::uint32_t psn) {
    answer(PacketCode::kAcknowledge, psn, Acknowledgement::rnr_nak(12, AckMsn{1}));
  }
  void notify_of_congestion() {
    RocePacket packet;
    packet.info = &wire::cnp_info();
    packet.pkey = Pkey{0xffff};
    packet.becn = true;
    PacketBytes made(packet.info->header_bytes);
    (void)wire::emit_roce_headers(made, packet);
    side.receive(made, kPeer, now);
  }
  void pass(Duration time) {
    now += time;
    side.endpoint.on_deadline(now);
    side.drain();
  }

  Time now{};
  PacketSide side;
  Buffer memory;
  std::vector<PacketBytes> last_sent;
};

TEST(RcRequester, AsksForAnAcknowledgementWhenNothingFollows) {
  Requester r;
  r.write(1, 3 * kMtu);
  r.write(2, 8);
  const auto sent = r.sent();
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_FALSE(sent[2].ack_request);
  EXPECT_TRUE(sent[3].ack_request);
  r.ack(12);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess));
  r.ack(13);
  EXPECT_EQ(r.side.completions.size(), 2u);
}

TEST(RcRequester, AskedAlsoWhenAFenceHoldsBackTheRest) {
  Requester r;
  r.read(1, 8);
  r.write(2, 8);
  r.side.post({.opcode = SendOpcode::kWrite, .wr_id = 3, .remote_addr = 8, .fence = true});
  const auto sent = r.sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_TRUE(sent[1].ack_request);
  r.answer(PacketCode::kReadResponseOnly, 10, Acknowledgement::ack(AckMsn{1}), 8);
  EXPECT_THAT(r.psns(), ElementsAre(12));
}

TEST(RcRequester, GoesBackToTheMissingPacket) {
  Requester r;
  r.write(1, 4 * kMtu);
  EXPECT_THAT(r.psns(), ElementsAre(10, 11, 12, 13));
  r.nak(12, NakCode::kPsnSequence);
  EXPECT_THAT(r.psns(), ElementsAre(12, 13));
  r.nak(12, NakCode::kPsnSequence);  // the network brings it twice
  EXPECT_TRUE(r.psns().empty());
  r.ack(13);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess));
}

TEST(RcRequester, RepeatsAtOnceWhatIsLostTwice) {
  Requester r;
  r.write(1, 4 * kMtu);
  EXPECT_EQ(r.psns().size(), 4u);
  r.nak(12, NakCode::kPsnSequence);
  EXPECT_THAT(r.psns(), ElementsAre(12, 13));
  r.now += milliseconds(1);
  r.nak(12, NakCode::kPsnSequence);  // a round trip later it speaks of the repetition
  EXPECT_THAT(r.psns(), ElementsAre(12, 13));
  r.ack(13);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(r.side.endpoint.stats().probes, 0u);
}

TEST(RcRequester, DoesNotRepeatWhatHasArrivedMeanwhile) {
  Requester r;
  r.write(1, 4 * kMtu);
  EXPECT_EQ(r.psns().size(), 4u);
  r.nak(11, NakCode::kPsnSequence);
  r.ack(12);
  EXPECT_THAT(r.psns(), ElementsAre(13));
}

TEST(RcRequester, AsksAgainForTheRestOfARead) {
  Requester r;
  r.read(1, 4 * kMtu);
  r.write(2, 8);
  EXPECT_THAT(r.psns(), ElementsAre(10, 14));
  r.answer(PacketCode::kReadResponseFirst, 10, Acknowledgement::ack(AckMsn{1}), kMtu);
  r.answer(PacketCode::kReadResponseMiddle, 12, {}, kMtu);
  const auto again = r.sent();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].info->operation, Operation::kReadRequest);
  EXPECT_EQ(again[0].psn, Psn{11});
  EXPECT_EQ(again[0].remote.address, 8u + kMtu);
  EXPECT_EQ(again[0].remote.bytes, 3 * kMtu);
  for (std::uint32_t psn = 11; psn < 14; ++psn) {
    r.answer(psn == 13 ? PacketCode::kReadResponseLast : PacketCode::kReadResponseMiddle, psn,
             Acknowledgement::ack(AckMsn{1}), kMtu);
  }
  r.ack(14);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
}

TEST(RcRequester, AsksAtOnceForAResponseThatIsLostTwice) {
  Requester r;
  r.read(1, 5 * kMtu);
  EXPECT_THAT(r.psns(), ElementsAre(10));
  const auto respond = [&](PacketCode code, std::uint32_t psn) {
    r.answer(code, psn, Acknowledgement::ack(AckMsn{1}), kMtu);
  };
  r.now += milliseconds(1);
  respond(PacketCode::kReadResponseFirst, 10);
  respond(PacketCode::kReadResponseMiddle, 12);
  EXPECT_THAT(r.psns(), ElementsAre(11));
  r.now += milliseconds(1);
  respond(PacketCode::kReadResponseMiddle, 13);  // of the first request
  respond(PacketCode::kReadResponseLast, 14);
  EXPECT_TRUE(r.psns().empty());
  respond(PacketCode::kReadResponseMiddle, 12);
  EXPECT_THAT(r.psns(), ElementsAre(11));
  respond(PacketCode::kReadResponseMiddle, 12);  // the network brings it twice
  respond(PacketCode::kReadResponseMiddle, 13);
  EXPECT_TRUE(r.psns().empty());
  EXPECT_EQ(r.side.endpoint.stats().probes, 0u);
}

TEST(RcRequester, AnAcknowledgementBehindAReadMeansItsResponseWasLost) {
  Requester r;
  r.read(1, 8);
  r.write(2, 8);
  EXPECT_THAT(r.psns(), ElementsAre(10, 11));
  r.ack(11);
  EXPECT_TRUE(r.side.completions.empty());
  EXPECT_THAT(r.psns(), ElementsAre(10, 11));
}

TEST(RcRequester, ReadsBeyondTheDepthWait) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.max_rd_atomic = 2;
  Requester r(attributes);
  for (std::uint64_t i = 0; i < 3; ++i) r.read(i, 8);
  EXPECT_THAT(r.psns(), ElementsAre(10, 11));
  r.answer(PacketCode::kReadResponseOnly, 10, Acknowledgement::ack(AckMsn{1}), 8);
  EXPECT_THAT(r.psns(), ElementsAre(12));
}

TEST(RcRequester, WaitsAsLongAsThePeerSays) {
  Requester r;
  r.write(1, 8);
  EXPECT_EQ(r.psns().size(), 1u);
  r.rnr_nak(10);
  EXPECT_TRUE(r.psns().empty());
  EXPECT_EQ(*r.side.endpoint.next_deadline(), r.now + rnr_delay(12));
  r.pass(rnr_delay(12));
  EXPECT_THAT(r.psns(), ElementsAre(10));
}

TEST(RcRequester, WaitsForEverWhenToldSo) {
  Requester r;
  r.write(1, 8);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(r.psns().size(), 1u);
    r.rnr_nak(10);
    r.pass(rnr_delay(12));
  }
  EXPECT_TRUE(r.side.completions.empty());
}

TEST(RcRequester, CountsHowOftenThePeerIsNotReady) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.rnr_retry = 2;
  Requester r(attributes);
  r.write(1, 8);
  r.write(2, 8);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(r.side.completions.empty());
    EXPECT_EQ(r.psns().size(), 2u);
    r.rnr_nak(10);
    r.pass(rnr_delay(12));
  }
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kRnrRetryExceeded, WcStatus::kFlushError));
  EXPECT_EQ(r.side.endpoint.state(), QpState::kError);
}

TEST(RcRequester, EndsWhenThePeerIsSilent) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.retry_count = 3;
  Requester r(attributes);
  r.write(1, 8);
  r.write(2, 8);
  const Duration timeout = *ack_timeout(attributes.timeout);
  EXPECT_EQ(r.psns().size(), 2u);
  while (r.side.completions.empty() && r.now < Time{} + seconds(10)) {
    r.pass(*r.side.endpoint.next_deadline() - r.now);
    (void)r.psns();
  }
  EXPECT_EQ(r.now, Time{} + 4 * timeout);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kRetryExceeded, WcStatus::kFlushError));
  EXPECT_EQ(r.side.endpoint.stats().timeouts, 4u);
}

TEST(RcRequester, NeverEndsWithoutATimer) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.timeout = 0;
  attributes.retry_count = 0;
  Requester r(attributes);
  r.write(1, 8);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(r.psns().size(), 1u);
    r.pass(*r.side.endpoint.next_deadline() - r.now);
  }
  EXPECT_EQ(r.side.endpoint.state(), QpState::kRts);
}

TEST(RcRequester, AsksAgainLongBeforeTheTimer) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.timeout = 20;  // 4 s
  Requester r(attributes);
  r.write(1, 8);
  EXPECT_EQ(r.psns().size(), 1u);
  r.now += milliseconds(1);
  r.ack(10);
  r.write(2, 8);
  EXPECT_THAT(r.psns(), ElementsAre(11));
  r.pass(milliseconds(5));
  EXPECT_THAT(r.psns(), ElementsAre(11));
  EXPECT_EQ(r.side.endpoint.stats().timeouts, 0u);
}

TEST(RcRequester, APeerThatAnswersIsNotSilent) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.retry_count = 1;
  Requester r(attributes);
  r.write(1, 8);
  EXPECT_THAT(r.psns(), ElementsAre(10));
  r.ack(10);
  r.write(2, 8);
  const Duration timeout = *ack_timeout(attributes.timeout);
  for (int i = 0; i < 10; ++i) {
    (void)r.psns();
    r.pass(timeout * 9 / 10);
    r.ack(10);  // to one of the packets that were sent again
  }
  EXPECT_EQ(r.side.endpoint.state(), QpState::kRts);
  r.pass(timeout);
  r.pass(timeout);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess, WcStatus::kRetryExceeded));
}

TEST(RcRequester, LearnsFromAnswersThatWereLate) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.timeout = 18;  // 1 s
  Requester r(attributes);
  r.write(1, 40 * kMtu);
  EXPECT_EQ(r.psns().size(), 40u);
  r.pass(*r.side.endpoint.next_deadline() - r.now);
  EXPECT_THAT(r.psns(), ElementsAre(10, 11, 12, 13, 14, 15, 16, 17));
  r.now = Time{} + milliseconds(150);
  r.ack(39);  // of 22 that were not sent again
  EXPECT_THAT(r.psns(), ElementsAre(40, 41, 42, 43, 44, 45, 46, 47));
  r.ack(49);
  r.write(2, 8);
  EXPECT_THAT(r.psns(), ElementsAre(50));
  EXPECT_GE(*r.side.endpoint.next_deadline(), r.now + milliseconds(150));
}

TEST(RcRequester, RefusalsBecomeStatuses) {
  const std::pair<NakCode, WcStatus> kCodes[] = {
      {NakCode::kInvalidRequest, WcStatus::kRemoteInvalidRequest},
      {NakCode::kRemoteAccess, WcStatus::kRemoteAccessError},
      {NakCode::kRemoteOperational, WcStatus::kRemoteOperationError},
      {static_cast<NakCode>(9), WcStatus::kBadResponse}};
  for (const auto& [code, status] : kCodes) {
    Requester r;
    r.write(1, 8);
    r.write(2, 8);
    r.write(3, 8);
    EXPECT_EQ(r.psns().size(), 3u);
    r.nak(11, code);
    EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess, status, WcStatus::kFlushError));
    EXPECT_EQ(r.side.endpoint.state(), QpState::kError);
    EXPECT_TRUE(r.side.events.empty());
  }
}

TEST(RcRequester, ResponsesOfAnotherLengthAreBad) {
  Requester r;
  r.read(1, 100);
  EXPECT_EQ(r.psns().size(), 1u);
  r.answer(PacketCode::kReadResponseOnly, 10, Acknowledgement::ack(AckMsn{1}), 99);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kBadResponse));
}

TEST(RcRequester, AnswersToNothingAreDropped) {
  Requester r;
  r.ack(10);
  r.write(1, 8);
  EXPECT_EQ(r.psns().size(), 1u);
  r.ack(11);
  r.ack(9);
  r.nak(11, NakCode::kRemoteAccess);
  r.answer(PacketCode::kReadResponseOnly, 10, Acknowledgement::ack(AckMsn{1}), 8);
  r.answer(PacketCode::kAtomicAcknowledge, 10, Acknowledgement::ack(AckMsn{1}));
  EXPECT_TRUE(r.side.completions.empty());
  EXPECT_EQ(r.side.endpoint.state(), QpState::kRts);
}

TEST(RcRequester, MistakesOfTheProgramCompleteInTheirTurn) {
  Requester r;
  r.write(1, 8);
  r.side.post({.wr_id = 2, .sges = {{.addr = kBase, .length = 8, .lkey = Stag{0xbad}}}});
  r.write(3, 8);
  EXPECT_THAT(r.psns(), ElementsAre(10));
  EXPECT_TRUE(r.side.completions.empty());
  r.ack(10);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess, WcStatus::kLocalProtectionError,
                                            WcStatus::kFlushError));
}

TEST(RcRequester, MistakesHaveTheirStatus) {
  const auto status_of = [](const sim::Post& post, std::uint8_t depth = 4) {
    QpAttributes attributes = sim::usual_attributes();
    attributes.max_rd_atomic = depth;
    Requester r(attributes);
    r.side.post(post);
    EXPECT_TRUE(r.psns().empty());
    return r.side.completions.empty() ? WcStatus::kSuccess : r.side.completions[0].status;
  };
  const model::Sge good{.addr = kBase, .length = 8, .lkey = kKey};
  const model::Sge bad{.addr = kBase + 65536, .length = 8, .lkey = kKey};
  EXPECT_EQ(status_of({.sges = {good, bad}}), WcStatus::kLocalProtectionError);
  EXPECT_EQ(status_of({.opcode = SendOpcode::kRead, .sges = {bad}}),
            WcStatus::kLocalProtectionError);
  EXPECT_EQ(status_of({.opcode = SendOpcode::kRead, .sges = {good}}, 0),
            WcStatus::kLocalQpOperationError);
  EXPECT_EQ(status_of({.opcode = SendOpcode::kFetchAdd, .sges = {good, good}}),
            WcStatus::kLocalQpOperationError);
  EXPECT_EQ(status_of({.opcode = static_cast<SendOpcode>(77), .sges = {good}}),
            WcStatus::kLocalQpOperationError);
  EXPECT_EQ(status_of({.opcode = SendOpcode::kLocalInvalidate, .rkey = kKey}),
            WcStatus::kMwBindError);
}

TEST(RcRequester, UnreadableMemoryThatIsFoundWhenItIsSent) {
  Requester r;
  r.write(1, 8);
  r.write(2, 8);
  r.side.batch.clear();
  ASSERT_TRUE(r.side.endpoint.poll_transmit(r.side.batch, r.now));
  r.side.endpoint.on_unsent(r.side.batch.packets()[1], r.now);
  r.side.batch.clear();
  r.side.drain();
  EXPECT_TRUE(r.side.completions.empty());
  r.ack(10);
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess, WcStatus::kLocalProtectionError));
}

TEST(RcRequester, MemoryThatIsGoneIsNotNeededForWhatHadArrived) {
  Requester r;
  r.side.post({.opcode = SendOpcode::kWrite, .wr_id = 1, .sges = {}, .remote_addr = 8});
  r.write(2, 2 * kMtu);
  EXPECT_THAT(r.psns(), ElementsAre(10, 11, 12));
  r.memory.withdraw();
  r.nak(10, NakCode::kPsnSequence);
  EXPECT_THAT(r.psns(), ElementsAre(10));
  r.ack(12);  // the NAK was of what had only come late
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
  r.side.post({.opcode = SendOpcode::kWrite, .wr_id = 3, .sges = {}, .remote_addr = 8});
  EXPECT_THAT(r.psns(), ElementsAre(13));
}

TEST(RcRequester, SqdFinishesWhatWasBegun) {
  Requester r;
  r.write(1, 3 * kMtu);
  EXPECT_EQ(r.psns().size(), 3u);
  QpAttributes attributes;
  attributes.sqd_notify = true;
  r.side.move_to(QpState::kSqd, attributes, model::kQpAttrSqdNotify, r.now);
  r.write(2, 8);
  EXPECT_TRUE(r.psns().empty());
  EXPECT_TRUE(r.side.events.empty());
  r.nak(11, NakCode::kPsnSequence);
  EXPECT_THAT(r.psns(), ElementsAre(11, 12));
  r.ack(12);
  EXPECT_THAT(r.side.events, ElementsAre(QpEvent::kSqDrained));
  EXPECT_EQ(r.side.completions.size(), 1u);
  r.side.move_to(QpState::kRts, attributes, 0, r.now);
  EXPECT_THAT(r.psns(), ElementsAre(13));
}

TEST(RcRequester, ResetForgetsEverything) {
  Requester r;
  r.write(1, 3 * kMtu);
  EXPECT_EQ(r.psns().size(), 3u);
  r.side.move_to(QpState::kReset, {}, 0, r.now);
  r.side.drain();
  EXPECT_TRUE(r.side.completions.empty());
  EXPECT_TRUE(r.side.sq.empty());
  EXPECT_FALSE(r.side.endpoint.next_deadline());
  QpAttributes attributes = sim::usual_attributes();
  attributes.sq_psn = Psn{99};
  r.side.connect(attributes, kPeer, r.now);
  r.write(2, 8);
  EXPECT_THAT(r.psns(), ElementsAre(99));
  r.ack(99);
  ASSERT_EQ(r.side.completions.size(), 1u);
  EXPECT_EQ(r.side.completions[0].wr_id, 2u);
}

TEST(RcRequester, FlushesWhatIsPostedInError) {
  Requester r;
  r.side.endpoint.fail(r.now);
  r.write(1, 8);
  r.side.drain();
  EXPECT_THAT(statuses(r.side), ElementsAre(WcStatus::kFlushError));
  EXPECT_TRUE(r.psns().empty());
}

TEST(RcRequester, NothingBeyondTheWindow) {
  Requester r;
  std::vector<std::byte> big(4 << 20);
  Buffer source(r.side.table, Stag{0x77}, 0x1000, big.size());
  r.side.post({.opcode = SendOpcode::kWrite,
               .sges = {{.addr = 0x1000, .length = 4 << 20, .lkey = Stag{0x77}}},
               .remote_addr = 8});
  const auto sent = r.sent();
  EXPECT_LE(sent.size() * (kMtu + 512), 1u << 18);
  EXPECT_TRUE(sent.back().ack_request);
  r.ack(sent.back().psn.value());
  EXPECT_GT(r.psns().size(), sent.size());  // it grows
}

TEST(RcRequester, SlowsDownWhenToldOfCongestion) {
  Requester r;
  Buffer source(r.side.table, Stag{0x77}, 0x1000, 4 << 20);
  r.side.post({.opcode = SendOpcode::kWrite,
               .sges = {{.addr = 0x1000, .length = 4 << 20, .lkey = Stag{0x77}}},
               .remote_addr = 8});
  r.now += seconds(1);
  auto sent = r.psns();
  const std::size_t window = sent.size();
  for (int times = 0; times < 3; ++times) r.notify_of_congestion();  // those of a moment are one
  EXPECT_EQ(r.side.endpoint.stats().notifications_received, 3u);
  r.ack(sent.back());
  sent = r.psns();
  EXPECT_EQ(sent.size(), window / 2);
  r.ack(sent.back());
  EXPECT_EQ(r.psns().size(), window / 2 + window / 4);  // it grows again
}

// A batch of two packets more than one send carries would cost two sends.
TEST(RcRequester, BatchesEndWhereSendsDo) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.path_mtu = 1024;
  Requester r(attributes);
  r.write(1, 64 * 1024);
  const auto batch = std::make_unique<PacketBatch>();
  ASSERT_TRUE(r.side.endpoint.poll_transmit(*batch, r.now));
  EXPECT_EQ(batch->packets().size(), 62u);
}

// STYLE's example, with both sides.
TEST(RcRequester, ResendsFromLostPacketAfterSequenceNak) {
  PacketPair pair;
  Buffer source(pair.a.table, kKey, kBase, 4096);
  Buffer target(pair.b.table, kKey, kBase, 4096);
  sim::fill(source.bytes(), 1);
  std::size_t count = 0;
  pair.tamper = [&](const RocePacket&, bool from_a) { return !from_a || ++count != 2; };
  pair.a.post({.opcode = SendOpcode::kWrite,
               .wr_id = 1,
               .sges = {{.addr = kBase, .length = 3000, .lkey = kKey}},
               .remote_addr = kBase});
  pair.run();
  EXPECT_THAT(statuses(pair.a), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(source.bytes().data(), target.bytes().data(), 3000), 0);
  EXPECT_EQ(pair.a.endpoint.stats().sequence_naks, 1u);
}

}  // namespace
}  // namespace airdma::rocev2
