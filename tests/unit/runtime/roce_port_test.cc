// SPDX-License-Identifier: MIT
#include "runtime/roce_port.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "engine/rocev2/attributes.h"
#include "io/fault_handler.h"
#include "runtime/udp_sender.h"
#include "tests/support/lone_pages.h"
#include "tests/unit/runtime/roce_fixture.h"

namespace airdma::runtime {
namespace {

using testing::add_packet;
using testing::KeepingSink;
using testing::loopback;
using testing::pattern;

class RegisteredSink : public KeepingSink {
 public:
  static std::shared_ptr<RegisteredSink> create() {
    auto sink = std::make_shared<RegisteredSink>();
    sink->qpn = RocePort::get().allocate_qpn().value();
    RocePort::get().register_sink(sink->qpn, sink);
    return sink;
  }
  ~RegisteredSink() { RocePort::get().release_qpn(qpn); }
  Qpn qpn;
};

bool is_packet(const std::vector<std::byte>& packet, const std::vector<std::byte>& payload) {
  return packet.size() == 12 + payload.size() &&
         std::equal(payload.begin(), payload.end(), packet.begin() + 12);
}

TEST(RocePort, GivesEachQueuePairANumberOfItsOwn) {
  RocePort& port = RocePort::get();
  const Qpn first = port.allocate_qpn().value();
  const Qpn second = port.allocate_qpn().value();
  EXPECT_NE(first, second);
  EXPECT_EQ(first.value() >> 12, port.first_block().value());
  port.release_qpn(first);
  EXPECT_NE(port.allocate_qpn().value(), first) << "a number rests before it is used again";
  port.release_qpn(second);
}

TEST(RocePort, BringsPacketsOfThisHostToTheirSink) {
  for (const model::Gid& gid : {testing::kLoopbackV4, testing::kLoopbackV6}) {
    const auto one = RegisteredSink::create();
    const auto other = RegisteredSink::create();
    const auto big = pattern(4096, 1);
    const auto small = pattern(12, 2);
    rocev2::PacketBatch batch;
    auto to = loopback(gid);
    to.traffic_class = 0x22;
    to.hop_limit = 7;
    batch.set_destination(to);
    add_packet(batch, one->qpn, big);
    add_packet(batch, one->qpn, small);
    add_packet(batch, other->qpn, small);
    const SendOutcome outcome = RocePort::get().send(batch);
    EXPECT_EQ(outcome.status, SendStatus::kSent);
    EXPECT_EQ(outcome.packets, 3u);
    const auto packets = one->wait(2);
    EXPECT_TRUE(is_packet(packets[0], big));
    EXPECT_TRUE(is_packet(packets[1], small));
    EXPECT_TRUE(is_packet(other->wait(1)[0], small));
    EXPECT_EQ(one->calls(), 1u) << "what was sent together comes together";
    EXPECT_EQ(one->origin().source, gid);
    EXPECT_EQ(one->origin().destination, gid);
    EXPECT_EQ(one->origin().traffic_class, 0x22);
    EXPECT_EQ(one->origin().hop_limit, 7);
  }
}

// The kernel has no route to groups of IPv6 on loopback, and one of IPv4 there.
TEST(RocePort, BringsPacketsForAGroupOnLoopbackToItsMembers) {
  constexpr Qpn kGroupQpn{0xffffff};
  constexpr std::uint32_t kLoopback = 1;
  const model::Gid v6{{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77, 0x01}};
  const model::Gid link{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77, 0x02}};
  RocePort& port = RocePort::get();
  for (const model::Gid& group : {model::Gid::from_v4({239, 77, 1, 2}), v6, link}) {
    if ((group.is_v4() ? port.report().ipv4_error : port.report().ipv6_error) != 0) continue;
    const auto member = RegisteredSink::create();
    const auto second = RegisteredSink::create();
    const auto stranger = RegisteredSink::create();
    ASSERT_TRUE(port.join(group, kLoopback, member->qpn));
    ASSERT_TRUE(port.join(group, kLoopback, second->qpn));
    const model::Gid& source = group.is_v4() ? testing::kLoopbackV4 : testing::kLoopbackV6;
    const auto send = [&](unsigned seed) {
      const auto payload = pattern(1000, seed);
      rocev2::PacketBatch batch;
      batch.set_destination({.source = source, .destination = group, .interface_index = kLoopback});
      add_packet(batch, kGroupQpn, payload);
      EXPECT_EQ(port.send(batch).status, SendStatus::kSent);
      return payload;
    };
    const auto first = send(1);
    for (const auto& sink : {member, second}) EXPECT_TRUE(is_packet(sink->wait(1)[0], first));
    EXPECT_EQ(member->origin().source, source);
    EXPECT_EQ(member->origin().destination, group);
    ASSERT_TRUE(port.leave(group, kLoopback, second->qpn));
    const auto next = send(2);
    EXPECT_TRUE(is_packet(member->wait(2)[1], next));
    EXPECT_EQ(second->count(), 1u);
    EXPECT_EQ(stranger->count(), 0u);
    ASSERT_TRUE(port.leave(group, kLoopback, member->qpn));
    EXPECT_FALSE(port.leave(group, kLoopback, member->qpn));
  }
}

TEST(RocePort, TellsOfMemoryThatIsGone) {
  io::watch_faults();
  std::byte* const pages = test::map_lone_pages(8192);
  const auto sink = RegisteredSink::create();
  rocev2::PacketBatch batch;
  batch.set_destination(loopback(testing::kLoopbackV4));
  const auto there = pattern(100, 3);
  add_packet(batch, sink->qpn, there);
  add_packet(batch, sink->qpn, Bytes(pages + 4000, 200));
  add_packet(batch, sink->qpn, there);
  ::munmap(pages + 4096, 4096);
  const SendOutcome first = RocePort::get().send(batch);
  EXPECT_EQ(first.status, SendStatus::kUnreadable);
  EXPECT_EQ(first.packets, 1u);
  const SendOutcome rest = RocePort::get().send(batch, 2);
  EXPECT_EQ(rest.status, SendStatus::kSent);
  EXPECT_EQ(rest.packets, 1u);
  sink->wait(2);
  ::munmap(pages, 4096);
}

TEST(RocePort, DropsPacketsForNobody) {
  RocePort& port = RocePort::get();
  const Qpn unused = port.allocate_qpn().value();
  rocev2::PacketBatch batch;
  batch.set_destination(loopback(testing::kLoopbackV4));
  add_packet(batch, Qpn(0xfff001), {});  // a block that nobody can have
  EXPECT_EQ(port.send(batch).status, SendStatus::kUnreachable);
  batch.clear();
  add_packet(batch, unused, {});
  EXPECT_EQ(port.send(batch).status, SendStatus::kSent);
  port.release_qpn(unused);
}

// UDP to an address of this host, which the port itself never uses.
class UdpLoopback : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const PortReport report = RocePort::get().report();
    if ((GetParam() ? report.ipv6_error : report.ipv4_error) != 0) GTEST_SKIP() << "no such port";
    const model::Gid& gid = GetParam() ? testing::kLoopbackV6 : testing::kLoopbackV4;
    to_ = loopback(gid);
    sender_ = UdpSender::open(**Progress::start(), GetParam() ? AF_INET6 : AF_INET).value();
  }
  SendOutcome send(Qpn qpn, std::span<const std::vector<std::byte>> payloads) {
    std::vector<std::array<std::byte, 12>> headers(payloads.size());
    std::vector<Bytes> pieces(payloads.begin(), payloads.end());
    std::vector<Frame> frames;
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      wire::RocePacket packet;
      packet.info = &wire::kRoceOpcodes[0x07];
      packet.destination = qpn;
      packet.pad_bytes = wire::roce_pad_bytes(payloads[i].size());
      EXPECT_EQ(wire::emit_roce_headers(headers[i], packet), headers[i].size());
      frames.push_back({headers[i],
                        {&pieces[i], 1},
                        packet.pad_bytes,
                        12 + payloads[i].size() + packet.pad_bytes});
    }
    return sender_->send(to_, false, frames);
  }
  model::AddressVector to_;
  std::shared_ptr<UdpSender> sender_;
};

TEST_P(UdpLoopback, ArrivesWithARightIcrc) {
  const auto sink = RegisteredSink::create();
  to_.traffic_class = 0x61;
  to_.hop_limit = 9;
  std::vector<std::vector<std::byte>> payloads;
  for (unsigned i = 0; i < 40; ++i) payloads.push_back(pattern(1024, i));
  payloads.push_back(pattern(512, 40));
  payloads.push_back(pattern(2048, 41));
  EXPECT_EQ(send(sink->qpn, payloads).packets, payloads.size());
  const auto packets = sink->wait(payloads.size());
  for (std::size_t i = 0; i < payloads.size(); ++i) EXPECT_TRUE(is_packet(packets[i], payloads[i]));
  EXPECT_EQ(sink->origin().source, to_.source);
  EXPECT_EQ(sink->origin().traffic_class, 0x61);
  EXPECT_EQ(sink->origin().hop_limit, 9);
  EXPECT_LE(sink->calls(), 4u) << "segments are received together";
}

TEST_P(UdpLoopback, KeepsThePadding) {
  const auto sink = RegisteredSink::create();
  const std::vector<std::vector<std::byte>> payloads{pattern(5, 1), pattern(5, 2), pattern(3, 3)};
  EXPECT_EQ(send(sink->qpn, payloads).status, SendStatus::kSent);
  const auto packets = sink->wait(3);
  EXPECT_EQ(packets[1].size(), 12u + 8u);
  EXPECT_EQ(packets[2].size(), 12u + 4u);
}

INSTANTIATE_TEST_SUITE_P(Families, UdpLoopback, ::testing::Values(false, true),
                         [](const auto& chosen) { return chosen.param ? "v6" : "v4"; });

TEST(RocePort, IsSteeredAmongItsOwn) {
  const PortReport report = RocePort::get().report();
  if (report.ipv4_error == 0) {
    EXPECT_TRUE(report.ipv4_steered);
    EXPECT_TRUE(report.segmentation);
    EXPECT_GT(report.receive_buffer_bytes, 0u);
  }
  EXPECT_TRUE(report.ipv6_error != 0 || report.ipv6_steered);
}

}  // namespace
}  // namespace airdma::runtime
