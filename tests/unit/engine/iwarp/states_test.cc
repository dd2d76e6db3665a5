// SPDX-License-Identifier: MIT
// Held send queues, shared receives, and rights that change while a stream runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/sim/endpoint_pair.h"

namespace airdma::iwarp {
namespace {

using model::QpEvent;
using model::SendOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::EndpointPair;
using sim::kKey;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kHere = 0x10000;

std::vector<std::uint64_t> ids(const std::vector<model::Completion>& wcs) {
  std::vector<std::uint64_t> result;
  for (const model::Completion& wc : wcs) result.push_back(wc.wr_id);
  return result;
}

model::Sge piece(std::uint32_t bytes) { return {.addr = kHere, .length = bytes, .lkey = kKey}; }

TEST(HeldSendQueue, FinishesWhatWasBegunAndSaysSo) {
  EndpointPair pair;
  Buffer here(pair.a.table, kKey, kHere, 64);
  Buffer there(pair.b.table, kKey, kHere, 64);
  pair.a.post({.opcode = SendOpcode::kRead, .wr_id = 1, .sges = {piece(8)}, .remote_addr = kHere});
  pair.move(pair.a, pair.b);  // the request is out, its answer is not there
  pair.a.endpoint.hold_sends(true, true);
  pair.a.post({.opcode = SendOpcode::kWrite, .wr_id = 2, .sges = {piece(8)}, .remote_addr = kHere});
  pair.a.drain();
  EXPECT_FALSE(pair.a.endpoint.sends_drained());
  EXPECT_THAT(pair.a.events, IsEmpty());
  pair.run();
  EXPECT_THAT(ids(pair.a.completions), ElementsAre(1));
  EXPECT_THAT(pair.a.events, ElementsAre(QpEvent::kSqDrained));
  EXPECT_TRUE(pair.a.endpoint.sends_drained());
  pair.run();
  EXPECT_EQ(pair.a.events.size(), 1u);
  pair.a.endpoint.hold_sends(false, false);
  pair.run();
  EXPECT_THAT(ids(pair.a.completions), ElementsAre(1, 2));
}

TEST(HeldSendQueue, SendsAMessageToItsEnd) {
  EndpointPair pair({.max_ulpdu = 128});
  pair.room = 256;  // a piece at a time
  Buffer here(pair.a.table, kKey, kHere, 4096);
  Buffer there(pair.b.table, kKey, kHere, 4096);
  pair.b.post_receive(9, {piece(4096)});
  pair.a.post({.opcode = SendOpcode::kSend, .wr_id = 1, .sges = {piece(4096)}});
  std::vector<std::byte> out(256);
  const std::size_t bytes = pair.a.endpoint.poll_transmit(out, pair.now);
  ASSERT_GT(bytes, 0u);
  pair.a.endpoint.on_transmitted(bytes, pair.now);
  pair.b.endpoint.on_bytes(Bytes(out).first(bytes), pair.now);
  pair.a.endpoint.hold_sends(true, true);
  pair.run();
  EXPECT_THAT(ids(pair.a.completions), ElementsAre(1));
  EXPECT_THAT(ids(pair.b.completions), ElementsAre(9));
  EXPECT_THAT(pair.a.events, ElementsAre(QpEvent::kSqDrained));
}

TEST(HeldSendQueue, IsFlushedWhenTheStreamEnds) {
  EndpointPair pair;
  Buffer here(pair.a.table, kKey, kHere, 64);
  pair.a.endpoint.hold_sends(true, false);
  pair.a.post({.opcode = SendOpcode::kSend, .wr_id = 1, .sges = {piece(8)}});
  pair.run();
  EXPECT_THAT(pair.a.completions, IsEmpty());
  EXPECT_THAT(pair.a.events, IsEmpty());
  pair.b.endpoint.fail(pair.now);
  pair.run();
  ASSERT_EQ(pair.a.completions.size(), 1u);
  EXPECT_EQ(pair.a.completions[0].status, WcStatus::kFlushError);
}

TEST(Rights, AreThoseOfTheMomentOfTheAccess) {
  EndpointPair pair;
  Buffer here(pair.a.table, kKey, kHere, 64);
  Buffer there(pair.b.table, kKey, kHere, 64);
  const sim::Post write{
      .opcode = SendOpcode::kWrite, .wr_id = 1, .sges = {piece(8)}, .remote_addr = kHere};
  pair.b.endpoint.set_remote_access(model::kAccessRemoteRead);
  pair.b.endpoint.set_remote_access(model::kAccessRemoteWrite);
  pair.a.post(write);
  pair.run();
  EXPECT_EQ(pair.b.endpoint.state(), EndpointState::kOperational);
  pair.b.endpoint.set_remote_access(model::kAccessRemoteRead);
  pair.a.post(write);
  pair.run();
  EXPECT_EQ(pair.b.endpoint.state(), EndpointState::kError);
  EXPECT_THAT(pair.b.events, ElementsAre(QpEvent::kAccessError));
}

/// Receives by id; each has one piece.
class Shared final : public model::SharedReceives {
 public:
  bool take(model::ReceiveQueue& queue) override {
    if (receives.empty()) return false;
    EXPECT_TRUE(queue.empty());
    model::ReceiveWqe& wqe = queue.slot(0);
    wqe.wr_id = receives.front().first;
    wqe.sges[0] = receives.front().second;
    wqe.length = wqe.sges[0].length;
    wqe.sge_count = 1;
    receives.pop_front();
    queue.publish(1);
    return true;
  }
  std::deque<std::pair<std::uint64_t, model::Sge>> receives;
};

/// A stream whose receiving side `b` shares its receives.
struct SharedFixture {
  SharedFixture() {
    a.endpoint.start({.initiator = true, .max_ulpdu = 128}, {});
    b.start({.initiator = false, .max_ulpdu = 128}, {});
  }
  /// One piece of at most `most` bytes from a to b; false when there is none.
  bool step(std::size_t most = 256) {
    std::vector<std::byte> out(most);
    const std::size_t bytes = a.endpoint.poll_transmit(out, {});
    a.endpoint.on_transmitted(bytes, {});
    b.on_bytes(Bytes(out).first(bytes), {});
    for (const model::Completion& wc : b.completions()) completions.push_back(wc);
    b.clear_completions();
    while (const auto event = b.poll_event()) events.push_back(*event);
    return bytes != 0;
  }
  sim::Side a;
  model::MemoryTable table;
  Shared shared;
  model::SendQueue sq{4, 1, 0};
  model::ReceiveQueue rq{1, 1, 0};
  Endpoint b{
      {.qpn = Qpn{2}, .pd = sim::kPd, .shared_receives = &shared, .receive_pd = sim::kOtherPd},
      table,
      sq,
      rq};
  std::vector<model::Completion> completions;
  std::vector<QpEvent> events;
};

TEST(SharedReceives, AreTakenOneAMessageInTheirOwnDomain) {
  SharedFixture fixture;
  Buffer here(fixture.a.table, kKey, kHere, 1024);
  Buffer there(fixture.table, kKey, kHere, 1024, sim::kAllRights, sim::kOtherPd);
  sim::fill(here.bytes(), 3);
  for (const std::uint64_t id : {1, 2, 3}) fixture.shared.receives.push_back({id, piece(1024)});
  fixture.a.post({.opcode = SendOpcode::kSend, .wr_id = 1, .sges = {piece(1024)}});
  fixture.a.post({.opcode = SendOpcode::kSend, .wr_id = 2, .sges = {piece(0)}});
  while (fixture.step()) {
  }
  EXPECT_THAT(ids(fixture.completions), ElementsAre(1, 2));
  EXPECT_EQ(fixture.shared.receives.size(), 1u);
  EXPECT_EQ(here.bytes(), there.bytes());
}

TEST(SharedReceives, OfAMessageInTheMiddleAreFlushedAndNoOthers) {
  SharedFixture fixture;
  Buffer here(fixture.a.table, kKey, kHere, 1024);
  Buffer there(fixture.table, kKey, kHere, 1024, sim::kAllRights, sim::kOtherPd);
  for (const std::uint64_t id : {1, 2}) fixture.shared.receives.push_back({id, piece(1024)});
  fixture.a.post({.opcode = SendOpcode::kSend, .wr_id = 1, .sges = {piece(1024)}});
  ASSERT_TRUE(fixture.step());
  EXPECT_EQ(fixture.shared.receives.size(), 1u);
  fixture.b.on_stream_end(StreamEnd::kReset, {});
  fixture.step();
  ASSERT_THAT(ids(fixture.completions), ElementsAre(1));
  EXPECT_EQ(fixture.completions[0].status, WcStatus::kFlushError);
  EXPECT_THAT(fixture.events, ElementsAre(QpEvent::kLastWqeReached));
  EXPECT_EQ(fixture.shared.receives.size(), 1u);
}

TEST(SharedReceives, TooSmallOnesEndTheStreamWithTheirLength) {
  SharedFixture fixture;
  Buffer here(fixture.a.table, kKey, kHere, 1024);
  Buffer there(fixture.table, kKey, kHere, 1024, sim::kAllRights, sim::kOtherPd);
  for (const std::uint64_t id : {1, 2}) fixture.shared.receives.push_back({id, piece(8)});
  fixture.a.post({.opcode = SendOpcode::kSend, .wr_id = 1, .sges = {piece(16)}});
  fixture.step();
  ASSERT_THAT(ids(fixture.completions), ElementsAre(1));
  EXPECT_EQ(fixture.completions[0].status, WcStatus::kLocalLengthError);
  EXPECT_THAT(fixture.events, ElementsAre(QpEvent::kFatal, QpEvent::kLastWqeReached));
}

}  // namespace
}  // namespace airdma::iwarp
