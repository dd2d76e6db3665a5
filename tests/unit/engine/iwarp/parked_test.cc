// SPDX-License-Identifier: MIT
// Messages that come while no receive is posted, what is served behind them, and how they end.
#include <gtest/gtest.h>

#include <vector>

#include "engine/iwarp/parking_lot.h"
#include "tests/sim/endpoint_pair.h"
#include "tests/sim/wire_peer.h"

namespace airdma::iwarp {
namespace {

using model::SendOpcode;
using model::WcOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::EndpointPair;
using sim::kKey;
using sim::Side;

constexpr std::uint64_t kA = 0x10000000;
constexpr std::uint64_t kB = 0x20000000;
constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr Duration kPatience = std::chrono::milliseconds(500);

struct Fixture {
  explicit Fixture(StreamParams params = {})
      : pair(params), a(pair.a.table, kKey, kA, kBytes), b(pair.b.table, kKey, kB, kBytes) {
    sim::fill(a.bytes(), 1);
    sim::fill(b.bytes(), 2);
  }
  void receive(Side& side, std::uint64_t wr_id, const model::Sge& sge) {
    side.post_receive(wr_id, {sge});
    side.endpoint.on_receives_posted(pair.now);
    side.drain();
  }
  /// Bytes of b from `offset` on are those of a.
  [[nodiscard]] bool arrived(std::size_t offset, std::size_t source, std::size_t length) {
    const auto from = a.bytes().begin() + static_cast<long>(source);
    return std::equal(from, from + static_cast<long>(length),
                      b.bytes().begin() + static_cast<long>(offset));
  }

  EndpointPair pair;
  Buffer a;
  Buffer b;
};

model::Sge at_a(std::uint32_t length, std::uint64_t offset = 0) {
  return {.addr = kA + offset, .length = length, .lkey = kKey};
}
model::Sge at_b(std::uint32_t length, std::uint64_t offset = 0) {
  return {.addr = kB + offset, .length = length, .lkey = kKey};
}

TEST(Parked, MessagesAreDeliveredInOrderAsReceivesCome) {
  Fixture f;
  for (std::uint32_t i = 0; i < 5; ++i) {
    f.pair.a.post({.wr_id = i, .sges = {at_a(100 + i, std::uint64_t{i} * 200)}});
  }
  f.pair.run();
  EXPECT_TRUE(f.pair.b.endpoint.wants_input());
  EXPECT_TRUE(f.pair.b.endpoint.wants_receives());
  EXPECT_EQ(f.pair.a.completions.size(), 5u);
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(f.pair.b.completions.size(), i);
    f.receive(f.pair.b, i, at_b(200, 4096 + std::uint64_t{i} * 200));
    ASSERT_EQ(f.pair.b.completions.size(), i + 1);
    EXPECT_EQ(f.pair.b.completions[i].byte_len, 100 + i);
    EXPECT_TRUE(f.arrived(4096 + std::size_t{i} * 200, std::size_t{i} * 200, 100 + i));
  }
  EXPECT_FALSE(f.pair.b.endpoint.wants_receives());
  f.receive(f.pair.b, 6, at_b(100));
  f.pair.a.post({.wr_id = 6, .sges = {at_a(100)}});
  f.pair.run();
  EXPECT_EQ(f.pair.b.completions.size(), 6u);
}

TEST(Parked, ReadsAtomicsAndWritesBehindThemAreServed) {
  Fixture f;
  std::fill_n(f.b.bytes().begin() + 512, 8, std::byte{0});
  f.pair.a.post({.wr_id = 1, .sges = {at_a(64)}});
  f.pair.a.post({.opcode = SendOpcode::kWrite,
                 .wr_id = 2,
                 .sges = {at_a(64, 100)},
                 .remote_addr = kB + 8192});
  f.pair.a.post({.opcode = SendOpcode::kRead,
                 .wr_id = 3,
                 .sges = {at_a(64, 1024)},
                 .remote_addr = kB + 8192});
  f.pair.a.post({.opcode = SendOpcode::kFetchAdd,
                 .wr_id = 4,
                 .sges = {at_a(8, 2048)},
                 .remote_addr = kB + 512,
                 .compare_add = 7});
  f.pair.run();
  ASSERT_EQ(f.pair.a.completions.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(f.pair.a.completions[i].wr_id, i + 1);
    EXPECT_EQ(f.pair.a.completions[i].status, WcStatus::kSuccess);
  }
  EXPECT_TRUE(f.arrived(8192, 1024, 64));
  EXPECT_EQ(f.b.bytes()[512], std::byte{7});
  EXPECT_TRUE(f.pair.b.completions.empty());
}

TEST(Parked, TwoPeersThatSendAndThenReadDoNotWaitForEachOther) {
  Fixture f;
  f.pair.a.post({.wr_id = 1, .sges = {at_a(3000)}});
  f.pair.b.post({.wr_id = 1, .sges = {at_b(3000)}});
  f.pair.a.post({.opcode = SendOpcode::kRead,
                 .wr_id = 2,
                 .sges = {at_a(5000, 10000)},
                 .remote_addr = kB + 50000});
  f.pair.b.post({.opcode = SendOpcode::kRead,
                 .wr_id = 2,
                 .sges = {at_b(5000, 10000)},
                 .remote_addr = kA + 50000});
  f.pair.run();
  for (Side* side : {&f.pair.a, &f.pair.b}) {
    ASSERT_EQ(side->completions.size(), 2u);
    EXPECT_EQ(side->completions[1].opcode, WcOpcode::kRdmaRead);
    EXPECT_EQ(side->completions[1].status, WcStatus::kSuccess);
  }
  f.receive(f.pair.a, 9, at_a(4000, 100000));
  f.receive(f.pair.b, 9, at_b(4000, 100000));
  f.pair.run();
  for (Side* side : {&f.pair.a, &f.pair.b}) {
    ASSERT_EQ(side->completions.size(), 3u);
    EXPECT_EQ(side->completions[2].byte_len, 3000u);
  }
  EXPECT_TRUE(f.arrived(100000, 0, 3000));
}

TEST(Parked, ImmediatesKeepTheirPlaceAndTheLengthOfTheirWrite) {
  Fixture f;
  f.pair.a.post({.wr_id = 1, .sges = {at_a(10)}});
  f.pair.a.post({.opcode = SendOpcode::kWriteWithImm,
                 .wr_id = 2,
                 .sges = {at_a(300, 100)},
                 .remote_addr = kB + 300,
                 .immediate = 22,
                 .solicited = true});
  f.pair.a.post(
      {.opcode = SendOpcode::kSendWithImm, .wr_id = 3, .sges = {at_a(30)}, .immediate = 33});
  f.pair.a.post({.opcode = SendOpcode::kWrite,
                 .wr_id = 4,
                 .sges = {at_a(50, 100)},
                 .remote_addr = kB + 1000});
  f.pair.a.post(
      {.opcode = SendOpcode::kWriteWithImm, .wr_id = 5, .remote_addr = kB, .immediate = 55});
  f.pair.run();
  EXPECT_TRUE(f.arrived(300, 100, 300));  // placed, and nobody is told
  EXPECT_TRUE(f.pair.b.completions.empty());
  for (std::uint64_t i = 1; i <= 4; ++i) f.receive(f.pair.b, i, at_b(64, 4096 * i));
  const auto& wcs = f.pair.b.completions;
  ASSERT_EQ(wcs.size(), 4u);
  EXPECT_EQ(wcs[0].opcode, WcOpcode::kReceive);
  EXPECT_EQ(wcs[0].flags, 0u);
  EXPECT_EQ(wcs[1].opcode, WcOpcode::kReceiveRdmaWithImm);
  EXPECT_EQ(wcs[1].byte_len, 300u);
  EXPECT_EQ(wcs[1].immediate, 22u);
  EXPECT_TRUE(wcs[1].solicited);
  EXPECT_EQ(wcs[2].opcode, WcOpcode::kReceive);
  EXPECT_EQ(wcs[2].immediate, 33u);
  EXPECT_EQ(wcs[3].byte_len, 0u);
  EXPECT_EQ(wcs[3].immediate, 55u);
}

TEST(Parked, AFullLotHoldsTheStreamAndLosesNothing) {
  Fixture f({.max_ulpdu = 8000});
  constexpr std::uint32_t kMessage = 30000;
  constexpr std::uint32_t kMessages = 20;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    f.pair.a.post({.wr_id = i, .sges = {at_a(kMessage, std::uint64_t{i} * 1000)}});
  }
  f.pair.a.post({.opcode = SendOpcode::kRead,
                 .wr_id = kMessages,
                 .sges = {at_a(10, 200000)},
                 .remote_addr = kB});
  f.pair.room = 9000;
  f.pair.run();
  EXPECT_FALSE(f.pair.b.endpoint.wants_input());
  EXPECT_TRUE(f.pair.b.endpoint.wants_receives());
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(f.pair.b.completions.size(), i);
    f.receive(f.pair.b, i, at_b(kMessage, 100000));
    f.pair.run();
    ASSERT_TRUE(f.arrived(100000, std::size_t{i} * 1000, kMessage)) << i;
  }
  EXPECT_TRUE(f.pair.b.endpoint.wants_input());
  ASSERT_EQ(f.pair.a.completions.size(), kMessages + 1);
  EXPECT_EQ(f.pair.a.completions.back().status, WcStatus::kSuccess);
}

TEST(Parked, AMessageTooLongForItsReceiveIsToldOfWithItsOwnHeader) {
  Fixture f;
  f.pair.a.post({.wr_id = 1, .sges = {at_a(10)}});
  f.pair.a.post({.wr_id = 2, .sges = {at_a(100)}});
  f.pair.run();
  f.receive(f.pair.b, 1, at_b(10));
  f.receive(f.pair.b, 2, at_b(99));
  ASSERT_EQ(f.pair.b.completions.size(), 2u);
  EXPECT_EQ(f.pair.b.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(f.pair.b.completions[1].status, WcStatus::kLocalLengthError);
  const auto terminate = sim::sent_terminate(f.pair.b);
  ASSERT_TRUE(terminate && terminate->segment_header);
  EXPECT_EQ(terminate->segment_header->msn.value(), 2u);
  EXPECT_EQ(terminate->segment_bytes, wire::kUntaggedHeaderBytes + 100);
  EXPECT_FALSE(f.pair.b.endpoint.wants_receives());
}

// The end of a stream on which messages wait.

struct Departed : Fixture {
  Departed() {
    pair.a.post({.wr_id = 1, .sges = {at_a(10)}});
    pair.a.post({.wr_id = 2, .sges = {at_a(20)}});
    pair.run();
  }
};

TEST(Parked, ADepartedPeersMessagesCanStillBeReceived) {
  for (const StreamEnd how : {StreamEnd::kFin, StreamEnd::kReset}) {
    Departed f;
    f.pair.b.endpoint.on_stream_end(how, f.pair.now);
    EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kOperational);
    EXPECT_EQ(f.pair.b.endpoint.next_deadline(), f.pair.now + kPatience);
    f.pair.now += kPatience / 2;
    f.receive(f.pair.b, 1, at_b(64));
    EXPECT_EQ(f.pair.b.endpoint.next_deadline(), f.pair.now + kPatience);
    f.receive(f.pair.b, 2, at_b(64));
    ASSERT_EQ(f.pair.b.completions.size(), 2u);
    EXPECT_EQ(f.pair.b.completions[1].byte_len, 20u);
    EXPECT_EQ(f.pair.b.completions[1].status, WcStatus::kSuccess);
    EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kError);
    EXPECT_EQ(f.pair.b.endpoint.stream_request(),
              how == StreamEnd::kFin ? StreamRequest::kShutdown : StreamRequest::kAbort);
  }
}

TEST(Parked, NothingIsSentOnAStreamThatWasReset) {
  Departed f;
  f.pair.b.post({.opcode = SendOpcode::kRead, .wr_id = 5, .sges = {at_b(8)}, .remote_addr = kA});
  f.pair.b.endpoint.on_stream_end(StreamEnd::kReset, f.pair.now);
  EXPECT_FALSE(f.pair.b.endpoint.may_transmit());
  EXPECT_TRUE(sim::sent_ulpdus(f.pair.b).empty());
  f.receive(f.pair.b, 1, at_b(9));  // a violation, of which nobody can be told
  EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kError);
  EXPECT_FALSE(f.pair.b.endpoint.may_transmit());
  EXPECT_EQ(f.pair.b.endpoint.stream_request(), StreamRequest::kAbort);
  ASSERT_EQ(f.pair.b.completions.size(), 2u);
  EXPECT_EQ(f.pair.b.completions[0].status, WcStatus::kFlushError);
  EXPECT_EQ(f.pair.b.completions[1].status, WcStatus::kLocalLengthError);
}

TEST(Parked, NobodyWaitsForEverForADepartedPeer) {
  Departed f;
  f.pair.b.post({.opcode = SendOpcode::kRead, .wr_id = 5, .sges = {at_b(8)}, .remote_addr = kA});
  f.pair.b.endpoint.on_stream_end(StreamEnd::kFin, f.pair.now);
  f.pair.now += kPatience - std::chrono::nanoseconds(1);
  f.pair.b.endpoint.on_deadline(f.pair.now);
  EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kOperational);
  f.pair.now += std::chrono::nanoseconds(1);
  f.pair.b.endpoint.on_deadline(f.pair.now);
  EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kError);
  f.pair.b.drain();
  ASSERT_EQ(f.pair.b.completions.size(), 1u);
  EXPECT_EQ(f.pair.b.completions[0].status, WcStatus::kFlushError);
  EXPECT_EQ(f.pair.b.endpoint.next_deadline(), std::nullopt);
}

TEST(Parked, ATerminateWaitsBehindThem) {
  Departed f;
  f.pair.a.endpoint.fail(f.pair.now);
  f.pair.run();
  EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kOperational);
  EXPECT_FALSE(f.pair.b.endpoint.wants_input());
  f.receive(f.pair.b, 1, at_b(64));
  f.receive(f.pair.b, 2, at_b(64));
  ASSERT_EQ(f.pair.b.completions.size(), 2u);
  EXPECT_EQ(f.pair.b.completions[1].status, WcStatus::kSuccess);
  EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kError);
}

TEST(Parked, ATerminateThatHasWaitedStillBlamesItsRequest) {
  Departed f;
  f.pair.b.post({.opcode = SendOpcode::kRead,
                 .wr_id = 5,
                 .sges = {at_b(8)},
                 .remote_addr = kA,
                 .rkey = Stag{0x999}});
  f.pair.run();
  EXPECT_EQ(f.pair.a.endpoint.state(), EndpointState::kError);
  EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kOperational);
  f.pair.b.endpoint.on_stream_end(StreamEnd::kFin, f.pair.now);
  f.pair.b.drain();
  ASSERT_EQ(f.pair.b.completions.size(), 1u);
  EXPECT_EQ(f.pair.b.completions[0].status, WcStatus::kRemoteAccessError);
}

TEST(Parked, OurOwnEndForgetsThem) {
  Departed f;
  f.pair.b.endpoint.disconnect(f.pair.now);
  EXPECT_FALSE(f.pair.b.endpoint.wants_receives());
  EXPECT_TRUE(f.pair.b.endpoint.wants_input());
}

// The lot itself.

TEST(ParkingLot, TakesTheLargestSegmentWhenEmptyAndHasALimit) {
  ParkingLot lot;
  const std::vector<std::byte> large(65535);
  std::size_t taken = 0;
  while (lot.add({.payload = large})) ++taken;
  EXPECT_EQ(taken, 3u);
  lot.clear();
  taken = 0;
  while (lot.add({})) ++taken;
  EXPECT_GT(taken, 1000u);
  EXPECT_LT(taken, ParkingLot::kLimit / 32);
}

TEST(ParkingLot, IsAQueueThatMayNeverGetEmpty) {
  ParkingLot lot;
  std::vector<std::byte> payload(40000);
  std::uint32_t in = 0;
  std::uint32_t out = 0;
  for (int round = 0; round < 2000; ++round) {
    while (true) {
      sim::fill(payload, in);
      const Bytes piece = Bytes{payload}.first(in * 7919 % payload.size());
      if (!lot.add({.written = in, .payload = piece})) break;
      ++in;
    }
    for (int i = 0; i < 3 && lot.size() > 1; ++i, ++out) {
      const UntaggedSegment segment = lot.front();
      ASSERT_EQ(segment.written, out);
      sim::fill(payload, out);
      ASSERT_EQ(segment.payload.size(), out * 7919 % payload.size());
      ASSERT_TRUE(std::equal(segment.payload.begin(), segment.payload.end(), payload.begin()));
      lot.pop();
    }
  }
  EXPECT_GT(out, 4000u);
}

}  // namespace
}  // namespace airdma::iwarp
