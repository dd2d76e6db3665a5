// SPDX-License-Identifier: MIT
// Datagrams and unreliable connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/rocev2/ud_responder.h"
#include "tests/sim/packet_pair.h"

namespace airdma::rocev2 {
namespace {

using model::QpState;
using model::QpType;
using model::SendOpcode;
using model::WcOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::kKey;
using sim::PacketBytes;
using sim::PacketPair;
using testing::ElementsAre;

constexpr std::uint64_t kBase = 0x10000;

EndpointConfig of_type(QpType type) {
  EndpointConfig config;
  config.type = type;
  config.datagram_bytes = 1024;
  return config;
}

struct Pair {
  explicit Pair(QpType type)
      : pair(sim::usual_attributes(), of_type(type), of_type(type)),
        source(pair.a.table, kKey, kBase, 8192),
        target(pair.b.table, kKey, kBase, 8192) {
    sim::fill(source.bytes(), 1);
  }
  sim::Post datagram(std::uint32_t bytes) {
    sim::Post post{.wr_id = 1, .sges = {piece(bytes)}};
    post.remote_qpn = Qpn{2};
    post.remote_qkey = Qkey{0x11};
    post.address.source = sim::host(1);
    post.address.destination = sim::host(2);
    return post;
  }
  static model::Sge piece(std::uint32_t bytes, std::uint64_t offset = 0) {
    return {.addr = kBase + offset, .length = bytes, .lkey = kKey};
  }
  std::vector<WcStatus> sends() {
    std::vector<WcStatus> all;
    for (const auto& wc : pair.a.completions) all.push_back(wc.status);
    return all;
  }
  PacketPair pair;
  Buffer source;
  Buffer target;
};

TEST(Datagram, ArrivesBehindItsRouteHeader) {
  Pair p(QpType::kUd);
  p.pair.b.post_receive(7, {Pair::piece(20), Pair::piece(200, 20)});
  sim::Post post = p.datagram(33);
  post.opcode = SendOpcode::kSendWithImm;
  post.immediate = 0x1234;
  post.solicited = true;
  p.pair.a.post(post);
  p.pair.run();
  EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kSuccess));
  ASSERT_EQ(p.pair.b.completions.size(), 1u);
  const model::Completion& wc = p.pair.b.completions[0];
  EXPECT_EQ(wc.byte_len, 40u + 33u);
  EXPECT_EQ(wc.flags, model::kWcUdpOverIpv4 | model::kWcWithGrh | model::kWcWithImmediate);
  EXPECT_EQ(wc.immediate, 0x1234u);
  EXPECT_EQ(wc.source_qpn, Qpn{1});
  EXPECT_TRUE(wc.solicited);
  EXPECT_EQ(std::memcmp(p.target.bytes().data() + 40, p.source.bytes().data(), 33), 0);
}

TEST(Datagram, RouteHeaderOfIpv4) {
  const PacketOrigin origin{
      .source = sim::host(1), .destination = sim::host(2), .traffic_class = 0x28, .hop_limit = 17};
  const auto grh = make_grh(origin, 100);
  const std::uint8_t expected[] = {0x45, 0x28, 0, 120, 0, 0, 0x40, 0, 17, 17};
  EXPECT_EQ(std::count(grh.begin(), grh.begin() + 20, std::byte{0}), 20);
  EXPECT_EQ(std::memcmp(grh.data() + 20, expected, sizeof expected), 0);
  EXPECT_EQ(grh[35], std::byte{1});
  EXPECT_EQ(grh[39], std::byte{2});
  std::uint32_t sum = 0;
  for (std::size_t i = 20; i < 40; i += 2) {
    sum += static_cast<std::uint32_t>(grh[i]) << 8 | static_cast<std::uint32_t>(grh[i + 1]);
  }
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
}

TEST(Datagram, RouteHeaderOfIpv6) {
  PacketOrigin origin;
  origin.traffic_class = 0xab;
  origin.hop_limit = 9;
  origin.flow_label = 0x12345;
  origin.source.bytes[0] = 0xfd;
  origin.source.bytes[15] = 1;
  origin.destination.bytes[0] = 0xfd;
  origin.destination.bytes[15] = 2;
  const auto grh = make_grh(origin, 0x102);
  const std::uint8_t expected[] = {0x6a, 0xb1, 0x23, 0x45, 1, 2, 17, 9, 0xfd};
  EXPECT_EQ(std::memcmp(grh.data(), expected, sizeof expected), 0);
  EXPECT_EQ(grh[23], std::byte{1});
  EXPECT_EQ(grh[39], std::byte{2});
}

TEST(Datagram, KeyDecides) {
  Pair p(QpType::kUd);
  p.pair.b.post_receive(1, {Pair::piece(100)});
  sim::Post post = p.datagram(8);
  post.remote_qkey = Qkey{0x12};
  p.pair.a.post(post);
  post.remote_qkey = Qkey{0x80000000};  // the sender's own
  p.pair.a.post(post);
  p.pair.run();
  EXPECT_EQ(p.pair.a.completions.size(), 2u);
  EXPECT_EQ(p.pair.b.completions.size(), 1u);
  EXPECT_EQ(p.pair.b.endpoint.stats().dropped, 1u);
}

TEST(Datagram, NobodyWaitsForIt) {
  Pair p(QpType::kUd);
  p.pair.a.post(p.datagram(8));
  p.pair.run();
  EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(p.pair.b.endpoint.state(), QpState::kRts);
}

TEST(Datagram, TooLongIsTheSendersMistakeAndItGoesOn) {
  Pair p(QpType::kUd);
  p.pair.b.post_receive(1, {Pair::piece(2000)});
  p.pair.a.post(p.datagram(1024));
  p.pair.a.post(p.datagram(1025));
  p.pair.a.post(p.datagram(8));
  p.pair.run();
  EXPECT_THAT(p.sends(),
              ElementsAre(WcStatus::kSuccess, WcStatus::kLocalLengthError, WcStatus::kFlushError));
  EXPECT_EQ(p.pair.a.endpoint.state(), QpState::kSqe);
  p.pair.a.post(p.datagram(8));
  p.pair.run();
  EXPECT_EQ(p.sends().back(), WcStatus::kFlushError);
  // It still receives, and sends again when its program has heard of it.
  p.pair.a.post_receive(5, {Pair::piece(100, 4096)});
  sim::Post back = p.datagram(8);
  back.remote_qpn = Qpn{1};
  back.address.destination = sim::host(1);
  p.pair.b.post(back);
  p.pair.run();
  EXPECT_TRUE(p.pair.a.completions.back().receive);
  p.pair.a.move_to(QpState::kRts, {}, 0, p.pair.now);
  p.pair.a.post(p.datagram(8));
  p.pair.run();
  EXPECT_EQ(p.sends().back(), WcStatus::kSuccess);
}

TEST(Datagram, MistakesHaveTheirStatus) {
  for (const auto opcode : {SendOpcode::kWrite, SendOpcode::kRead, SendOpcode::kFetchAdd,
                            SendOpcode::kSendWithInvalidate, SendOpcode::kBindMw}) {
    Pair p(QpType::kUd);
    sim::Post post = p.datagram(8);
    post.opcode = opcode;
    p.pair.a.post(post);
    p.pair.run();
    EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kLocalQpOperationError));
  }
  Pair p(QpType::kUd);
  sim::Post post = p.datagram(8);
  post.sges[0].lkey = Stag{0xbad};
  p.pair.a.post(post);
  p.pair.run();
  EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kLocalProtectionError));
}

TEST(Datagram, ReceiveTooSmall) {
  for (const std::uint32_t capacity : {39u, 47u}) {
    Pair p(QpType::kUd);
    p.pair.b.post_receive(1, {Pair::piece(capacity)});
    p.pair.b.post_receive(2, {Pair::piece(48)});
    p.pair.a.post(p.datagram(8));
    p.pair.run();
    ASSERT_EQ(p.pair.b.completions.size(), 2u);
    EXPECT_EQ(p.pair.b.completions[0].status, WcStatus::kLocalLengthError);
    EXPECT_EQ(p.pair.b.completions[1].status, WcStatus::kFlushError);
    EXPECT_EQ(p.pair.b.endpoint.state(), QpState::kError);
  }
}

// Between RESET and RTR the endpoint is asked for what it has to send, as at all times.
TEST(Unreliable, BeginsAnewAfterAMessageThatWasTooLong) {
  for (const QpType type : {QpType::kUc, QpType::kUd}) {
    Pair p(type);
    p.pair.b.post_receive(1, {Pair::piece(47)});
    p.pair.a.post(p.datagram(48));
    p.pair.run();
    ASSERT_EQ(p.pair.b.endpoint.state(), QpState::kError);
    p.pair.b.move_to(QpState::kReset, {}, 0, p.pair.now);
    p.pair.b.completions.clear();
    QpAttributes attributes = sim::usual_attributes();
    attributes.rq_psn = p.pair.a.endpoint.attributes().sq_psn;
    p.pair.b.move_to(QpState::kInit, attributes, ~model::QpAttrMask{0}, p.pair.now);
    EXPECT_TRUE(p.pair.b.transmit(p.pair.now).empty());
    ASSERT_EQ(p.pair.b.endpoint.state(), QpState::kInit);
    p.pair.b.connect(attributes, 1, p.pair.now);
    p.pair.b.post_receive(2, {Pair::piece(100)});
    p.pair.a.post(p.datagram(8));
    p.pair.run();
    ASSERT_EQ(p.pair.b.completions.size(), 1u);
    EXPECT_EQ(p.pair.b.completions[0].status, WcStatus::kSuccess);
  }
}

TEST(Datagram, OneBatchHasOneAddress) {
  Pair p(QpType::kUd);
  for (int i = 0; i < 6; ++i) {
    sim::Post post = p.datagram(8);
    post.address.destination = sim::host(i < 4 ? 2 : 3);
    p.pair.a.post(post);
  }
  auto& batch = p.pair.a.batch;
  auto& endpoint = p.pair.a.endpoint;
  batch.clear();
  ASSERT_TRUE(endpoint.poll_transmit(batch, p.pair.now));
  EXPECT_EQ(batch.packets().size(), 4u);
  EXPECT_EQ(batch.destination().destination, sim::host(2));
  batch.clear();
  ASSERT_TRUE(endpoint.poll_transmit(batch, p.pair.now));
  EXPECT_EQ(batch.packets().size(), 2u);
  EXPECT_EQ(batch.destination().destination, sim::host(3));
}

TEST(Datagram, UnsentIsNoSuccess) {
  Pair p(QpType::kUd);
  p.pair.a.post(p.datagram(8));
  p.pair.a.post(p.datagram(8));
  auto& a = p.pair.a;
  a.batch.clear();
  ASSERT_TRUE(a.endpoint.poll_transmit(a.batch, p.pair.now));
  a.endpoint.on_unsent(a.batch.packets()[1], p.pair.now);
  a.batch.clear();
  a.drain();
  EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kSuccess, WcStatus::kLocalProtectionError));
  EXPECT_EQ(a.endpoint.state(), QpState::kSqe);
}

// Unreliable connections.

TEST(Uc, SendsAndWrites) {
  Pair p(QpType::kUc);
  p.pair.b.post_receive(1, {Pair::piece(3000)});
  p.pair.b.post_receive(2, {});
  p.pair.a.post({.wr_id = 1, .sges = {Pair::piece(3000)}});
  p.pair.a.post({.opcode = SendOpcode::kWriteWithImm,
                 .wr_id = 2,
                 .sges = {Pair::piece(2000, 3000)},
                 .remote_addr = kBase + 3000,
                 .immediate = 9});
  p.pair.run();
  EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
  ASSERT_EQ(p.pair.b.completions.size(), 2u);
  EXPECT_EQ(p.pair.b.completions[0].byte_len, 3000u);
  EXPECT_EQ(p.pair.b.completions[0].flags, 0u);
  EXPECT_EQ(p.pair.b.completions[1].opcode, WcOpcode::kReceiveRdmaWithImm);
  EXPECT_EQ(std::memcmp(p.target.bytes().data(), p.source.bytes().data(), 5000), 0);
}

TEST(Uc, AMessageWithAHoleIsNone) {
  Pair p(QpType::kUc);
  p.pair.b.post_receive(1, {Pair::piece(3000)});
  std::size_t count = 0;
  p.pair.tamper = [&](const wire::RocePacket&, bool) { return ++count != 2; };
  p.pair.a.post({.wr_id = 1, .sges = {Pair::piece(1000)}});
  p.pair.a.post({.wr_id = 2, .sges = {Pair::piece(500, 1000)}});
  p.pair.run();
  EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
  ASSERT_EQ(p.pair.b.completions.size(), 1u);
  EXPECT_EQ(p.pair.b.completions[0].wr_id, 1u);
  EXPECT_EQ(p.pair.b.completions[0].byte_len, 500u);
  EXPECT_EQ(std::memcmp(p.target.bytes().data(), p.source.bytes().data() + 1000, 500), 0);
}

TEST(Datagram, CongestionIsToldToItsSender) {
  constexpr std::uint8_t kSender = 9;
  Pair p(QpType::kUd);
  p.pair.a.post(p.datagram(33));
  const auto sent = p.pair.a.transmit(p.pair.now);
  ASSERT_EQ(sent.size(), 1u);
  p.pair.b.receive(sent[0], kSender, p.pair.now, kCongestionExperienced);
  p.pair.b.receive(sent[0], kSender, p.pair.now, kCongestionExperienced);
  ASSERT_TRUE(p.pair.b.endpoint.may_transmit());
  PacketBatch batch;
  ASSERT_TRUE(p.pair.b.endpoint.poll_transmit(batch, p.pair.now));
  ASSERT_EQ(batch.packets().size(), 1u);
  EXPECT_EQ(batch.destination().source, sim::host(2));
  EXPECT_EQ(batch.destination().destination, sim::host(kSender));
  const PacketBytes bytes = sim::flatten(batch, batch.packets()[0]);
  const wire::RocePacket notification = sim::readable(bytes);
  EXPECT_EQ(notification.info->operation, wire::Operation::kCongestionNotification);
  EXPECT_EQ(notification.destination, Qpn{1});
  // The sender learns of it, and goes on: a datagram has no window.
  p.pair.a.receive(bytes, 2, p.pair.now);
  EXPECT_EQ(p.pair.a.endpoint.stats().notifications_received, 1u);
}

TEST(Datagram, CongestionOfAGroupIsToldToNobody) {
  Pair p(QpType::kUd);
  p.pair.a.post(p.datagram(33));
  const auto sent = p.pair.a.transmit(p.pair.now);
  const PacketOrigin origin{.source = sim::host(1),
                            .destination = model::Gid::from_v4({239, 1, 1, 1}),
                            .traffic_class = kCongestionExperienced};
  p.pair.b.endpoint.on_packet(sim::readable(sent.at(0)), origin, p.pair.now);
  EXPECT_FALSE(p.pair.b.endpoint.may_transmit());
}

TEST(Uc, BadKeysAreDroppedInSilence) {
  Pair p(QpType::kUc);
  p.pair.a.post({.opcode = SendOpcode::kWrite,
                 .sges = {Pair::piece(1000)},
                 .remote_addr = kBase,
                 .rkey = Stag{0xdead}});
  p.pair.a.post({.opcode = SendOpcode::kWrite, .sges = {Pair::piece(8)}, .remote_addr = kBase});
  p.pair.run();
  EXPECT_EQ(p.sends().size(), 2u);
  EXPECT_EQ(p.pair.b.endpoint.state(), QpState::kRts);
  EXPECT_EQ(p.target.bytes()[0], p.source.bytes()[0]);
  EXPECT_EQ(p.target.bytes()[8], std::byte{0});
}

TEST(Uc, ReceiveTooSmall) {
  Pair p(QpType::kUc);
  p.pair.b.post_receive(1, {Pair::piece(10)});
  p.pair.a.post({.sges = {Pair::piece(11)}});
  p.pair.run();
  ASSERT_EQ(p.pair.b.completions.size(), 1u);
  EXPECT_EQ(p.pair.b.completions[0].status, WcStatus::kLocalLengthError);
  EXPECT_EQ(p.pair.b.endpoint.state(), QpState::kError);
  EXPECT_EQ(p.pair.a.endpoint.state(), QpState::kRts);
}

TEST(Uc, OperationsItDoesNotHave) {
  for (const auto opcode :
       {SendOpcode::kRead, SendOpcode::kFetchAdd, SendOpcode::kSendWithInvalidate}) {
    Pair p(QpType::kUc);
    p.pair.a.post({.opcode = opcode, .sges = {Pair::piece(8)}, .remote_addr = kBase});
    p.pair.run();
    EXPECT_THAT(p.sends(), ElementsAre(WcStatus::kLocalQpOperationError));
    EXPECT_EQ(p.pair.a.endpoint.state(), QpState::kSqe);
  }
}

}  // namespace
}  // namespace airdma::rocev2
