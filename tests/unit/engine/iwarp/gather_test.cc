// SPDX-License-Identifier: MIT
// Large payloads that are sent from where they are (docs/decisions/0013).
#include "engine/iwarp/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/sim/endpoint_pair.h"

namespace airdma::iwarp {
namespace {

using model::SendOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::EndpointPair;
using sim::kKey;

constexpr std::uint64_t kHere = 0x10000;
constexpr std::uint64_t kThere = 0x7f0000000000;
constexpr Stag kOtherKey{0x4321};
constexpr std::size_t kMessage = (std::size_t{1} << 20) + 3;
constexpr std::size_t kLocalUlpdu = 64530;

struct Fixture : testing::Test {
  explicit Fixture(StreamParams params = {.max_ulpdu = kLocalUlpdu})
      : pair(params),
        source(pair.a.table, kKey, kHere, kMessage),
        target(pair.b.table, kKey, kThere, kMessage) {
    sim::fill(source.bytes(), 1);
    pair.gathers = true;
  }
  static model::Sge sge(std::uint64_t base, std::size_t bytes, std::size_t offset = 0) {
    return {.addr = base + offset, .length = static_cast<std::uint32_t>(bytes), .lkey = kKey};
  }
  void post_write(std::uint64_t wr_id, const std::vector<model::Sge>& sges) {
    pair.a.post(
        {.opcode = SendOpcode::kWrite, .wr_id = wr_id, .sges = sges, .remote_addr = kThere});
  }
  /// The next pieces of side a, without taking them.
  std::size_t gather_next() {
    gather.start(buffer);
    return pair.a.endpoint.poll_transmit(gather, pair.now);
  }
  [[nodiscard]] std::size_t memory_pieces() const {
    return static_cast<std::size_t>(std::ranges::count_if(gather.pieces(), &Gather::Piece::memory));
  }
  void expect_status(std::size_t i, std::uint64_t wr_id, WcStatus status) {
    pair.a.drain();
    ASSERT_LT(i, pair.a.completions.size());
    EXPECT_EQ(pair.a.completions[i].wr_id, wr_id);
    EXPECT_EQ(pair.a.completions[i].status, status);
  }

  EndpointPair pair;
  Buffer source;
  Buffer target;
  std::vector<std::byte> buffer = std::vector<std::byte>(std::size_t{256} * 1024);
  Gather gather;
};
using Gathered = Fixture;

struct WithoutCrc : Fixture {
  WithoutCrc() : Fixture({.crc = false, .max_ulpdu = kLocalUlpdu}) {}
};
struct WithMarkers : Fixture {
  WithMarkers()
      : Fixture({.send_markers = true, .receive_markers = true, .max_ulpdu = kLocalUlpdu}) {}
};

TEST_F(Gathered, WritesArrive) {
  post_write(1, {sge(kHere, kMessage)});
  pair.run();
  expect_status(0, 1, WcStatus::kSuccess);
  EXPECT_EQ(source.bytes(), target.bytes());
  EXPECT_TRUE(source.idle());
}

TEST_F(Gathered, SendsArriveFromPiecesOfAnySizeInAnyCut) {
  pair.cut = 10'007;
  constexpr std::size_t kSmall = 1001;  // copied, in the middle of an FPDU
  constexpr std::size_t kLarge = 300'002;
  pair.b.post_receive(9, {sge(kThere, 77), sge(kThere, kMessage - 77, 77)});
  pair.a.post(
      {.wr_id = 1,
       .sges = {sge(kHere, kSmall), sge(kHere, kLarge, kSmall), sge(kHere, 20'000, kSmall + kLarge),
                sge(kHere, kMessage - kSmall - kLarge - 20'000, kSmall + kLarge + 20'000)}});
  pair.run();
  expect_status(0, 1, WcStatus::kSuccess);
  ASSERT_EQ(pair.b.completions.size(), 1u);
  EXPECT_EQ(pair.b.completions[0].byte_len, kMessage);
  EXPECT_EQ(source.bytes(), target.bytes());
}

TEST_F(Gathered, SmallMessagesBetweenLargeOnesKeepTheirPlace) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    pair.b.post_receive(i, {sge(kThere, kMessage)});
    const std::size_t bytes = i % 2 == 0 ? kMessage : 100 + i;
    pair.a.post({.wr_id = i, .sges = {sge(kHere, bytes)}});
  }
  pair.run();
  for (std::size_t i = 0; i < 4; ++i) expect_status(i, i, WcStatus::kSuccess);
  ASSERT_EQ(pair.b.completions.size(), 4u);
  EXPECT_EQ(pair.b.completions[3].byte_len, 103u);
  EXPECT_EQ(source.bytes(), target.bytes());
}

TEST_F(WithoutCrc, WritesArrive) {
  post_write(1, {sge(kHere, kMessage)});
  pair.run();
  expect_status(0, 1, WcStatus::kSuccess);
  EXPECT_EQ(source.bytes(), target.bytes());
}

TEST_F(WithMarkers, EverythingIsCopied) {
  post_write(1, {sge(kHere, kMessage)});
  ASSERT_NE(gather_next(), 0u);
  EXPECT_EQ(memory_pieces(), 0u);
  EXPECT_EQ(gather.pieces().size(), 1u);
}

TEST_F(Gathered, MemoryIsPinnedUntilItIsCleared) {
  post_write(1, {sge(kHere, kMessage)});
  const std::size_t framed = gather_next();
  EXPECT_EQ(memory_pieces(), Gather::kMostMemory);
  std::size_t bytes = 0;
  for (const Gather::Piece& piece : gather.pieces()) bytes += piece.bytes.size();
  EXPECT_EQ(bytes, framed);
  EXPECT_FALSE(source.idle());
  gather.clear();
  EXPECT_TRUE(source.idle());
}

TEST_F(Gathered, MessagesOfLessThan128KibAreCopied) {
  post_write(1, {sge(kHere, 128 * 1024 - 1)});
  ASSERT_NE(gather_next(), 0u);
  EXPECT_EQ(memory_pieces(), 0u);
  EXPECT_TRUE(source.idle());
}

// The memory may change by right while it is read.
TEST_F(Gathered, AnswersToReadsAreCopied) {
  pair.a.post({.opcode = SendOpcode::kRead,
               .wr_id = 1,
               .sges = {sge(kHere, kMessage)},
               .remote_addr = kThere});
  ASSERT_TRUE(pair.move(pair.a, pair.b));
  gather.start(buffer);
  ASSERT_GT(pair.b.endpoint.poll_transmit(gather, pair.now), 200'000u);
  EXPECT_EQ(memory_pieces(), 0u);
  EXPECT_TRUE(target.idle());
}

// Of an FPDU that could not be completed nothing is sent, and nothing stays pinned.
TEST_F(Gathered, AnAbandonedFpduLeavesNothing) {
  Buffer other(pair.a.table, kOtherKey, kHere, kMessage);
  constexpr std::size_t kFirst = 8 * 64512 + 20'000;  // one Gather, and the front of an FPDU
  post_write(1, {sge(kHere, kFirst), {.addr = kHere, .length = 200'000, .lkey = kOtherKey}});
  ASSERT_NE(gather_next(), 0u);
  ASSERT_EQ(memory_pieces(), Gather::kMostMemory);
  gather.clear();
  other.withdraw();
  // What a driver does with the first part; then the fault's turn has come, and a Terminate with
  // it.
  const std::size_t terminate = gather_next();
  EXPECT_EQ(memory_pieces(), 0u);
  EXPECT_TRUE(source.idle());
  EXPECT_GT(terminate, 0u);
  EXPECT_LT(terminate, 100u);
  expect_status(0, 1, WcStatus::kLocalProtectionError);
}

TEST_F(Gathered, ALostPayloadFailsItsRequestAndTheStream) {
  post_write(1, {sge(kHere, 64)});
  post_write(2, {sge(kHere, kMessage)});
  post_write(3, {sge(kHere, 64)});
  ASSERT_GT(gather_next(), 200u);
  pair.a.endpoint.on_transmitted(200, pair.now);  // the first one, and the front of the second
  gather.clear();
  pair.a.endpoint.on_payload_lost(pair.now);
  expect_status(0, 1, WcStatus::kSuccess);
  expect_status(1, 2, WcStatus::kLocalProtectionError);
  expect_status(2, 3, WcStatus::kFlushError);
  EXPECT_EQ(pair.a.endpoint.state(), EndpointState::kError);
  EXPECT_EQ(pair.a.endpoint.stream_request(), StreamRequest::kAbort);
  EXPECT_EQ(gather_next(), 0u);  // no Terminate in the middle of an FPDU
}

}  // namespace
}  // namespace airdma::iwarp
