// SPDX-License-Identifier: MIT
// Shared receive queues, and XRC connections, whose target takes receives from several of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>

#include "tests/sim/packet_pair.h"

namespace airdma::rocev2 {
namespace {

using model::QpEvent;
using model::QpState;
using model::QpType;
using model::SendOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::kKey;
using sim::kOtherPd;
using sim::kPd;
using sim::PacketPair;
using testing::ElementsAre;

constexpr std::uint64_t kBase = 0x10000;
constexpr Stag kOtherKey{0x5678};

struct Receive {
  std::uint64_t wr_id = 0;
  model::Sge sge;
};

bool move_one(std::deque<Receive>& from, model::ReceiveQueue& to) {
  if (from.empty()) return false;
  sim::post_receive_to(to, from.front().wr_id, {from.front().sge});
  from.pop_front();
  return true;
}

struct Shared final : model::SharedReceives {
  bool take(model::ReceiveQueue& queue) override { return move_one(receives, queue); }
  std::deque<Receive> receives;
};

struct Domain final : XrcReceives {
  struct Queue {
    PdId pd;
    std::deque<Receive> receives;
  };
  Outcome take(Srqn number, model::ReceiveQueue& queue, PdId& pd) override {
    const auto found = queues.find(number.value());
    if (found == queues.end()) return Outcome::kNoSuchQueue;
    pd = found->second.pd;
    return move_one(found->second.receives, queue) ? Outcome::kTaken : Outcome::kEmpty;
  }
  std::optional<PdId> domain(Srqn number) override {
    const auto found = queues.find(number.value());
    return found == queues.end() ? std::nullopt : std::optional(found->second.pd);
  }
  std::map<std::uint32_t, Queue> queues;
};

std::vector<WcStatus> statuses(const std::vector<model::Completion>& completions) {
  std::vector<WcStatus> all;
  for (const auto& wc : completions) all.push_back(wc.status);
  return all;
}

TEST(SharedReceives, FeedConnectionsAndDatagrams) {
  for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    Shared shared;
    EndpointConfig config;
    config.type = type;
    EndpointConfig with_shared = config;
    with_shared.shared_receives = &shared;
    with_shared.receive_pd = kOtherPd;
    PacketPair pair(sim::usual_attributes(), config, with_shared);
    Buffer source(pair.a.table, kKey, kBase, 1000);
    Buffer target(pair.b.table, kKey, kBase, 1000, sim::kAllRights, kOtherPd);
    shared.receives.push_back({.wr_id = 7, .sge = {kBase, 1000, kKey}});
    sim::Post post{.sges = {{kBase, 700, kKey}}};
    post.remote_qpn = Qpn{2};
    post.remote_qkey = Qkey{0x11};
    post.address.source = sim::host(1);
    post.address.destination = sim::host(2);
    pair.a.post(post);
    pair.run();
    ASSERT_EQ(pair.b.completions.size(), 1u);
    EXPECT_EQ(pair.b.completions[0].wr_id, 7u);
    EXPECT_EQ(pair.b.completions[0].status, WcStatus::kSuccess);
    pair.b.endpoint.fail(pair.now);
    pair.b.drain();
    EXPECT_THAT(pair.b.events, ElementsAre(QpEvent::kLastWqeReached));
  }
}

TEST(SharedReceives, WhatWasTakenIsFlushed) {
  Shared shared;
  EndpointConfig config;
  config.shared_receives = &shared;
  PacketPair pair(sim::usual_attributes(), {}, config);
  Buffer source(pair.a.table, kKey, kBase, 1000);
  Buffer target(pair.b.table, kKey, kBase, 1000);
  shared.receives.push_back({.wr_id = 7, .sge = {kBase, 1000, kKey}});
  shared.receives.push_back({.wr_id = 8, .sge = {kBase, 1000, kKey}});
  std::size_t count = 0;
  pair.tamper = [&](const wire::RocePacket&, bool) { return ++count <= 1; };
  pair.a.post({.sges = {{kBase, 700, kKey}}});
  pair.run();
  pair.b.endpoint.fail(pair.now);
  pair.b.drain();
  EXPECT_THAT(statuses(pair.b.completions), ElementsAre(WcStatus::kFlushError));
  EXPECT_EQ(shared.receives.size(), 1u);
}

struct Xrc {
  static EndpointConfig initiator() {
    EndpointConfig config;
    config.type = QpType::kXrcSend;
    return config;
  }
  static EndpointConfig target_in(Domain& domain) {
    EndpointConfig config;
    config.type = QpType::kXrcReceive;
    config.xrc_receives = &domain;
    return config;
  }
  Xrc()
      : pair(sim::usual_attributes(), initiator(), target_in(domain)),
        source(pair.a.table, kKey, kBase, 4096),
        target(pair.b.table, kKey, kBase, 4096),
        other(pair.b.table, kOtherKey, 0x90000, 4096, sim::kAllRights, kOtherPd) {
    sim::fill(source.bytes(), 1);
    domain.queues[5] = {.pd = kPd, .receives = {}};
    domain.queues[6] = {.pd = kOtherPd, .receives = {}};
  }
  void post(SendOpcode opcode, std::uint32_t bytes, std::uint32_t queue,
            std::uint64_t there = kBase, Stag key = kKey) {
    sim::Post post{
        .opcode = opcode, .sges = {{kBase, bytes, kKey}}, .remote_addr = there, .rkey = key};
    post.remote_srqn = Srqn{queue};
    pair.a.post(post);
  }
  Domain domain;
  PacketPair pair;
  Buffer source;
  Buffer target;
  Buffer other;
};

TEST(Xrc, MessagesGoToTheQueueTheyName) {
  Xrc x;
  x.domain.queues[5].receives.push_back({.wr_id = 50, .sge = {kBase, 2000, kKey}});
  x.domain.queues[6].receives.push_back({.wr_id = 60, .sge = {0x90000, 2000, kOtherKey}});
  x.post(SendOpcode::kSend, 600, 6);
  x.post(SendOpcode::kSend, 700, 5);
  x.pair.run();
  EXPECT_THAT(statuses(x.pair.a.completions), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
  ASSERT_EQ(x.pair.b.completions.size(), 2u);
  EXPECT_EQ(x.pair.b.completions[0].wr_id, 60u);
  EXPECT_EQ(x.pair.b.completions[0].srqn, Srqn{6});
  EXPECT_EQ(x.pair.b.completions[1].wr_id, 50u);
  EXPECT_EQ(x.pair.b.completions[1].srqn, Srqn{5});
  EXPECT_EQ(x.other.bytes()[599], x.source.bytes()[599]);
  EXPECT_EQ(x.target.bytes()[699], x.source.bytes()[699]);
}

TEST(Xrc, MemoryIsThatOfTheQueuesDomain) {
  Xrc x;
  x.post(SendOpcode::kWrite, 600, 6, 0x90000, kOtherKey);
  x.post(SendOpcode::kRead, 300, 5);
  x.post(SendOpcode::kFetchAdd, 8, 5);
  x.pair.run();
  EXPECT_EQ(x.pair.a.completions.size(), 3u);
  EXPECT_EQ(x.pair.a.endpoint.state(), QpState::kRts);
  x.post(SendOpcode::kWrite, 600, 5, 0x90000, kOtherKey);
  x.pair.run();
  EXPECT_EQ(x.pair.a.completions.back().status, WcStatus::kRemoteAccessError);
  EXPECT_THAT(x.pair.b.events, ElementsAre(QpEvent::kAccessError));
}

TEST(Xrc, QueueThatIsNot) {
  Xrc x;
  x.post(SendOpcode::kSend, 8, 77);
  x.pair.run();
  EXPECT_THAT(statuses(x.pair.a.completions), ElementsAre(WcStatus::kRemoteInvalidRequest));
  EXPECT_EQ(x.pair.b.endpoint.state(), QpState::kError);
}

TEST(Xrc, EmptyQueueIsWaitedFor) {
  Xrc x;
  x.post(SendOpcode::kSend, 8, 5);
  x.pair.run();
  EXPECT_EQ(x.pair.b.endpoint.stats().rnr_naks_sent, 1u);
  x.domain.queues[5].receives.push_back({.wr_id = 50, .sge = {kBase, 2000, kKey}});
  x.pair.run_until_idle();
  EXPECT_THAT(statuses(x.pair.a.completions), ElementsAre(WcStatus::kSuccess));
}

}  // namespace
}  // namespace airdma::rocev2
