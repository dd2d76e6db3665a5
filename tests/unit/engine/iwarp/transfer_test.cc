// SPDX-License-Identifier: MIT
// The plain case: every operation, both ways, any size, any cut of the stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/sim/endpoint_pair.h"
#include "tests/sim/wire_peer.h"
#include "tests/unit/engine/transfer_fixture.h"

namespace airdma::iwarp {
namespace {

using model::QpEvent;
using model::SendOpcode;
using model::WcOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::EndpointPair;
using sim::kKey;
using test::expect_success;
using test::kHere;
using test::kThere;
using test::TransferFixture;

struct Fixture : TransferFixture<EndpointPair> {
  explicit Fixture(std::size_t bytes, const StreamParams& params = {})
      : TransferFixture(bytes, params) {}
};

struct Shape {
  std::size_t bytes;
  std::size_t max_ulpdu;
  std::size_t cut;
  bool crc;
  bool markers;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.bytes << " bytes, ulpdu " << shape.max_ulpdu << ", cut " << shape.cut
             << (shape.crc ? ", crc" : "") << (shape.markers ? ", markers" : "");
}

class Transfer : public testing::TestWithParam<Shape> {
 protected:
  Transfer()
      : fixture_(GetParam().bytes + 64, {.crc = GetParam().crc,
                                         .send_markers = GetParam().markers,
                                         .receive_markers = GetParam().markers,
                                         .max_ulpdu = GetParam().max_ulpdu}) {
    fixture_.pair.cut = GetParam().cut;
  }
  Fixture fixture_;
};

TEST_P(Transfer, Send) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  pair.b.post_receive(9, {fixture_.there(bytes)});
  pair.a.post({.opcode = SendOpcode::kSend, .wr_id = 5, .sges = {fixture_.here(bytes)}});
  pair.run();
  expect_success(pair.a.completions, 0, 5, WcOpcode::kSend, bytes);
  expect_success(pair.b.completions, 0, 9, WcOpcode::kReceive, bytes);
  EXPECT_TRUE(std::equal(source.bytes().begin(), source.bytes().begin() + static_cast<long>(bytes),
                         target.bytes().begin()));
  EXPECT_EQ(target.bytes()[bytes], std::byte{0});
}

TEST_P(Transfer, Write) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  pair.a.post({.opcode = SendOpcode::kWrite,
               .wr_id = 5,
               .sges = {fixture_.here(bytes)},
               .remote_addr = kThere + 3});
  pair.run();
  expect_success(pair.a.completions, 0, 5, WcOpcode::kRdmaWrite, bytes);
  EXPECT_TRUE(pair.b.completions.empty());
  EXPECT_TRUE(std::equal(source.bytes().begin(), source.bytes().begin() + static_cast<long>(bytes),
                         target.bytes().begin() + 3));
  EXPECT_EQ(target.bytes()[bytes + 3], std::byte{0});
}

TEST_P(Transfer, Read) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  sim::fill(target.bytes(), 2);
  pair.a.post({.opcode = SendOpcode::kRead,
               .wr_id = 5,
               .sges = {fixture_.here(bytes)},
               .remote_addr = kThere});
  const auto before = source.bytes();
  pair.run();
  expect_success(pair.a.completions, 0, 5, WcOpcode::kRdmaRead, bytes);
  EXPECT_TRUE(std::equal(target.bytes().begin(), target.bytes().begin() + static_cast<long>(bytes),
                         source.bytes().begin()));
  EXPECT_EQ(source.bytes()[bytes], before[bytes]);
}

TEST_P(Transfer, ResponderToInitiator) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  pair.a.post_receive(1, {fixture_.here(bytes)});
  pair.b.post({.opcode = SendOpcode::kSend, .wr_id = 2, .sges = {fixture_.there(bytes)}});
  pair.run();
  EXPECT_TRUE(pair.b.completions.empty()) << "held for the initiator's first FPDU";
  ASSERT_TRUE(pair.b.endpoint.next_deadline());
  pair.now = *pair.b.endpoint.next_deadline();
  pair.b.endpoint.on_deadline(pair.now);
  pair.run();
  expect_success(pair.a.completions, 0, 1, WcOpcode::kReceive, bytes);
  expect_success(pair.b.completions, 0, 2, WcOpcode::kSend, bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Transfer,
    testing::Values(Shape{0, 1440, 1 << 20, true, false}, Shape{1, 1440, 1, true, false},
                    Shape{64, 1440, 7, true, false}, Shape{64, 1440, 1 << 20, false, false},
                    Shape{1440, 1440, 1 << 20, true, false}, Shape{9001, 1440, 1000, true, false},
                    Shape{1 << 20, 65535, 1 << 20, true, false},
                    Shape{1 << 20, 65535, 65536, true, false},
                    Shape{3000000, 16000, 4096, false, false}, Shape{0, 1440, 1, true, true},
                    Shape{64, 1440, 3, true, true}, Shape{9001, 1440, 700, true, true},
                    Shape{300000, 65535, 1 << 20, true, true},
                    Shape{300000, 65535, 4099, false, true}));

TEST(Endpoint, WriteWithImmediateConsumesAReceive) {
  Fixture f(4096);
  f.pair.b.post_receive(9, {});
  f.pair.a.post({.opcode = SendOpcode::kWriteWithImm,
                 .wr_id = 5,
                 .sges = {f.here(100)},
                 .remote_addr = kThere,
                 .immediate = 0x04030201,
                 .solicited = true});
  f.pair.run();
  expect_success(f.pair.a.completions, 0, 5, WcOpcode::kRdmaWrite, 100);
  expect_success(f.pair.b.completions, 0, 9, WcOpcode::kReceiveRdmaWithImm, 100);
  EXPECT_EQ(f.pair.b.completions[0].immediate, 0x04030201u);
  EXPECT_EQ(f.pair.b.completions[0].flags, model::kWcWithImmediate);
  EXPECT_TRUE(f.pair.b.completions[0].solicited);
}

TEST(Endpoint, SendWithImmediateConsumesOneReceive) {
  Fixture f(4096);
  f.pair.b.post_receive(9, {f.there(200)});
  f.pair.b.post_receive(10, {f.there(200)});
  f.pair.a.post(
      {.opcode = SendOpcode::kSendWithImm, .wr_id = 5, .sges = {f.here(100)}, .immediate = 77});
  f.pair.a.post({.opcode = SendOpcode::kSend, .wr_id = 6, .sges = {f.here(10)}});
  f.pair.run();
  expect_success(f.pair.b.completions, 0, 9, WcOpcode::kReceive, 100);
  EXPECT_EQ(f.pair.b.completions[0].immediate, 77u);
  EXPECT_EQ(f.pair.b.completions[0].flags, model::kWcWithImmediate);
  expect_success(f.pair.b.completions, 1, 10, WcOpcode::kReceive, 10);
  EXPECT_EQ(f.pair.b.completions[1].flags, 0u);
}

TEST(Endpoint, GathersAndScattersPieces) {
  Fixture f(4096);
  f.pair.b.post_receive(1, {f.there(10, 100), f.there(0), f.there(5, 200), f.there(500, 300)});
  f.pair.a.post({.sges = {f.here(3), f.here(0), f.here(20, 50), f.here(1, 90)}});
  f.pair.run();
  expect_success(f.pair.b.completions, 0, 1, WcOpcode::kReceive, 24);
  std::vector<std::byte> sent(f.source.bytes().begin(), f.source.bytes().begin() + 3);
  sent.insert(sent.end(), f.source.bytes().begin() + 50, f.source.bytes().begin() + 70);
  sent.push_back(f.source.bytes()[90]);
  const auto& got = f.target.bytes();
  EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + 10, got.begin() + 100));
  EXPECT_TRUE(std::equal(sent.begin() + 10, sent.begin() + 15, got.begin() + 200));
  EXPECT_TRUE(std::equal(sent.begin() + 15, sent.end(), got.begin() + 300));
}

TEST(Endpoint, ReadsIntoSeveralPieces) {
  Fixture f(4096, {.ird = 1, .ord = 1});
  sim::fill(f.target.bytes(), 3);
  f.pair.a.post({.opcode = SendOpcode::kRead,
                 .wr_id = 4,
                 .sges = {f.here(0), f.here(100, 1000), f.here(0), f.here(50, 2000)},
                 .remote_addr = kThere + 8});
  f.pair.run();
  expect_success(f.pair.a.completions, 0, 4, WcOpcode::kRdmaRead, 150);
  const auto& from = f.target.bytes();
  EXPECT_TRUE(std::equal(from.begin() + 8, from.begin() + 108, f.source.bytes().begin() + 1000));
  EXPECT_TRUE(std::equal(from.begin() + 108, from.begin() + 158, f.source.bytes().begin() + 2000));
}

TEST(Endpoint, SendsInlineData) {
  Fixture f(4096);
  f.pair.b.post_receive(1, {f.there(64)});
  f.pair.a.post({.inlined = true, .inline_data = {std::byte{1}, std::byte{2}, std::byte{3}}});
  f.pair.run();
  expect_success(f.pair.b.completions, 0, 1, WcOpcode::kReceive, 3);
  EXPECT_EQ(f.target.bytes()[2], std::byte{3});
}

TEST(Endpoint, CompletesInPostingOrderAndSilentlyWhenUnsignaled) {
  Fixture f(4096);
  f.pair.b.post_receive(1, {f.there(64)});
  f.pair.a.post(
      {.opcode = SendOpcode::kRead, .wr_id = 1, .sges = {f.here(8)}, .remote_addr = kThere});
  f.pair.a.post({.opcode = SendOpcode::kWrite,
                 .wr_id = 2,
                 .sges = {f.here(8)},
                 .remote_addr = kThere,
                 .signaled = false});
  f.pair.a.post({.opcode = SendOpcode::kSend, .wr_id = 3, .sges = {f.here(8)}});
  f.pair.move(f.pair.a, f.pair.b);
  EXPECT_TRUE(f.pair.a.completions.empty()) << "the READ is first";
  EXPECT_EQ(f.pair.b.completions.size(), 1u) << "the SEND does not wait for the READ";
  f.pair.run();
  ASSERT_EQ(f.pair.a.completions.size(), 2u);
  EXPECT_EQ(f.pair.a.completions[0].wr_id, 1u);
  EXPECT_EQ(f.pair.a.completions[1].wr_id, 3u);
  EXPECT_TRUE(f.pair.a.sq.empty());
}

TEST(Endpoint, SendsCompleteWhenTcpHasTheirLastByte) {
  Fixture f(4096);
  f.pair.a.post({.wr_id = 1, .sges = {f.here(100)}});
  f.pair.a.post({.wr_id = 2, .sges = {f.here(100)}});
  std::vector<std::byte> out(4096);
  const std::size_t bytes = f.pair.a.endpoint.poll_transmit(out, f.pair.now);
  ASSERT_EQ(bytes, 2 * 124u);
  const std::size_t steps[] = {123, 1, 123, 1};
  const std::size_t completed[] = {0, 1, 1, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    f.pair.a.endpoint.on_transmitted(steps[i], f.pair.now);
    f.pair.a.drain();
    EXPECT_EQ(f.pair.a.completions.size(), completed[i]);
  }
}

TEST(Endpoint, ANudgeKeepsOutOfMessages) {
  Fixture f(8192);
  f.pair.a.post({.opcode = SendOpcode::kWrite, .sges = {f.here(5000)}, .remote_addr = kThere});
  std::vector<std::byte> out(1700);
  for (std::size_t left = 5000; left > 1700;) {
    const std::size_t bytes = f.pair.a.endpoint.poll_transmit(out, f.pair.now);
    ASSERT_GT(bytes, 1440u) << "a long FPDU";
    ASSERT_LT(bytes, 1460u) << "and nothing else";
    left -= bytes;
    f.pair.now += std::chrono::seconds(1);
    f.pair.a.endpoint.on_deadline(f.pair.now);
  }
}

TEST(Endpoint, FenceWaitsForReads) {
  Fixture f(4096);
  f.pair.b.post_receive(1, {f.there(64)});
  f.pair.a.post(
      {.opcode = SendOpcode::kRead, .wr_id = 1, .sges = {f.here(8)}, .remote_addr = kThere});
  f.pair.a.post({.wr_id = 2, .sges = {f.here(8)}, .fence = true});
  f.pair.move(f.pair.a, f.pair.b);
  EXPECT_TRUE(f.pair.b.completions.empty());
  f.pair.run();
  EXPECT_EQ(f.pair.b.completions.size(), 1u);
  EXPECT_EQ(f.pair.a.completions.size(), 2u);
}

TEST(Endpoint, KeepsToTheAgreedReads) {
  Fixture f(4096, {.ird = 2, .ord = 2});
  for (std::uint64_t i = 0; i < 20; ++i) {
    f.pair.a.post(
        {.opcode = SendOpcode::kRead, .wr_id = i, .sges = {f.here(8)}, .remote_addr = kThere});
    f.pair.b.post(
        {.opcode = SendOpcode::kRead, .wr_id = i, .sges = {f.there(8)}, .remote_addr = kHere});
  }
  f.pair.run();
  EXPECT_EQ(f.pair.a.completions.size(), 20u);
  EXPECT_EQ(f.pair.b.completions.size(), 20u);
  EXPECT_EQ(f.pair.a.endpoint.state(), EndpointState::kOperational) << f.pair.a.endpoint.failure();
}

TEST(Endpoint, LeavesAnIncompleteFpduWithTheCallerWhoAsksForIt) {
  Fixture f(200);
  f.pair.b.post_receive(7, {f.there(100)});
  f.pair.a.post({.opcode = SendOpcode::kSend, .sges = {f.here(100)}});
  std::vector<std::byte> stream(1 << 16);
  stream.resize(f.pair.a.endpoint.poll_transmit(stream, {}));
  Endpoint& target = f.pair.b.endpoint;
  for (std::size_t bytes = 1; bytes < stream.size(); ++bytes) {
    EXPECT_EQ(target.take_bytes(Bytes(stream).first(bytes), {}), 0u);
  }
  EXPECT_TRUE(target.completions().empty());
  stream.push_back(std::byte{});  // and the first byte of the next
  EXPECT_EQ(target.take_bytes(stream, {}), stream.size() - 1);
  EXPECT_EQ(target.completions().size(), 1u);
}

TEST(Endpoint, KeepsWhatBeganInsideEvenForACallerWhoAsks) {
  Fixture f(200);
  f.pair.b.post_receive(7, {f.there(100)});
  f.pair.a.post({.opcode = SendOpcode::kSend, .sges = {f.here(100)}});
  std::vector<std::byte> stream(1 << 16);
  stream.resize(f.pair.a.endpoint.poll_transmit(stream, {}));
  Endpoint& target = f.pair.b.endpoint;
  target.on_bytes(Bytes(stream).first(10), {});
  EXPECT_EQ(target.take_bytes(Bytes(stream).subspan(10, 20), {}), 20u);
  EXPECT_EQ(target.take_bytes(Bytes(stream).subspan(30), {}), stream.size() - 30);
  EXPECT_EQ(target.completions().size(), 1u);
}

// The kernel's siw takes no segment of a Read Response between two of a WRITE, nor the reverse.
TEST(Endpoint, KeepsReadResponsesAndWritesWhole) {
  constexpr std::size_t kBytes = 5000;
  Fixture f(4 * kBytes);
  for (std::uint64_t i = 0; i < 3; ++i) {
    f.pair.b.post({.opcode = SendOpcode::kRead,
                   .sges = {f.there(kBytes)},
                   .remote_addr = kHere + i * kBytes});
    f.pair.a.post({.opcode = SendOpcode::kWrite,
                   .sges = {f.here(kBytes)},
                   .remote_addr = kThere + i * kBytes});
  }
  // The requests are there before the first WRITE is framed.
  std::vector<std::byte> requests(1 << 16);
  requests.resize(f.pair.b.endpoint.poll_transmit(requests, Time{} + std::chrono::seconds(1)));
  ASSERT_FALSE(requests.empty());
  f.pair.a.endpoint.on_bytes(requests, {});
  std::optional<std::uint8_t> unfinished;
  std::size_t changes = 0;
  std::uint8_t before = 0xff;
  for (const auto& ulpdu : sim::sent_ulpdus(f.pair.a)) {
    const auto header = wire::parse_segment_header(ulpdu);
    ASSERT_TRUE(header.has_value());
    if (unfinished) {
      EXPECT_EQ(header->opcode, *unfinished);
    }
    unfinished = header->last ? std::nullopt : std::optional(header->opcode);
    changes += header->opcode != before ? 1 : 0;
    before = header->opcode;
  }
  EXPECT_FALSE(unfinished.has_value());
  EXPECT_GE(changes, 2u);  // neither kind waited for all of the other
}

TEST(Stats, TellWhatWasWrittenFromWhatWasSent) {
  Fixture fixture(64);
  auto& [pair, source, target] = fixture;
  pair.b.post_receive(1, {fixture.there(64)});
  pair.a.post({.wr_id = 2, .sges = {fixture.here(64)}});
  pair.run();
  EXPECT_EQ(pair.b.endpoint.stats().payload_received, 64u);
  EXPECT_EQ(pair.b.endpoint.stats().payload_written, 0u);
  pair.a.post({.opcode = SendOpcode::kWrite,
               .wr_id = 3,
               .sges = {fixture.here(64)},
               .remote_addr = kThere});
  pair.run();
  EXPECT_EQ(pair.b.endpoint.stats().payload_received, 128u);
  EXPECT_EQ(pair.b.endpoint.stats().payload_written, 64u);
}

TEST(Nudge, FollowsAFirstFrameThatNothingAnswered) {
  EndpointPair pair;
  Buffer source(pair.a.table, kKey, kHere, 64);
  std::vector<std::byte> out(std::size_t{128} * 1024);
  EXPECT_EQ(pair.a.endpoint.next_deadline(), std::nullopt);
  pair.a.post({.wr_id = 1, .sges = {{.addr = kHere, .length = 64, .lkey = kKey}}});
  ASSERT_GT(pair.a.endpoint.poll_transmit(out, pair.now), 64u);
  Duration interval = StreamParams{}.nudge_after;
  for (int i = 0; i < 3; ++i) {
    const auto deadline = pair.a.endpoint.next_deadline();
    ASSERT_EQ(deadline, pair.now + interval);
    pair.now = *deadline;
    EXPECT_EQ(pair.a.endpoint.poll_transmit(out, pair.now), 0u);
    pair.a.endpoint.on_deadline(pair.now);
    // Length field, tagged header, CRC: a WRITE of nothing.
    EXPECT_EQ(pair.a.endpoint.poll_transmit(out, pair.now), 2u + 14u + 4u);
    EXPECT_EQ(pair.a.endpoint.poll_transmit(out, pair.now), 0u);
    interval *= 5;
  }
  EXPECT_EQ(pair.a.endpoint.next_deadline(), std::nullopt);
}

TEST(Nudge, IsNotSentToAPeerThatNeedsNone) {
  Fixture f(64, {.nudge_after = Duration::max()});
  f.pair.a.post({.wr_id = 1, .sges = {f.here(64)}});
  std::vector<std::byte> out(std::size_t{128} * 1024);
  ASSERT_GT(f.pair.a.endpoint.poll_transmit(out, f.pair.now), 64u);
  EXPECT_EQ(f.pair.a.endpoint.next_deadline(), std::nullopt);
}

TEST(Nudge, IsNotSentToAPeerThatAnswers) {
  EndpointPair pair;
  Buffer source(pair.a.table, kKey, kHere, 64);
  Buffer target(pair.b.table, kKey, kThere, 64);
  pair.b.post_receive(2, {{.addr = kThere, .length = 64, .lkey = kKey}});
  pair.a.post_receive(3, {{.addr = kHere, .length = 64, .lkey = kKey}});
  pair.a.post({.wr_id = 1, .sges = {{.addr = kHere, .length = 64, .lkey = kKey}}});
  pair.run();
  pair.b.post({.wr_id = 4, .sges = {{.addr = kThere, .length = 64, .lkey = kKey}}});
  pair.run();
  EXPECT_EQ(pair.a.endpoint.next_deadline(), std::nullopt);
}

class RtrFrame : public testing::TestWithParam<Rtr> {};

TEST_P(RtrFrame, IsSwallowedAndReleasesTheResponder) {
  Fixture f(4096, {.rtr = GetParam()});
  f.pair.a.post_receive(1, {f.here(64)});
  f.pair.b.post_receive(2, {f.there(64)});
  f.pair.b.post({.wr_id = 3, .sges = {f.there(5)}});
  f.pair.run();
  expect_success(f.pair.a.completions, 0, 1, WcOpcode::kReceive, 5);
  expect_success(f.pair.b.completions, 0, 3, WcOpcode::kSend, 5);
  f.pair.a.post({.wr_id = 4, .sges = {f.here(6)}});
  f.pair.a.post(
      {.opcode = SendOpcode::kRead, .wr_id = 5, .sges = {f.here(8)}, .remote_addr = kThere});
  f.pair.run();
  expect_success(f.pair.b.completions, 1, 2, WcOpcode::kReceive, 6);
  EXPECT_EQ(f.pair.a.completions.size(), 3u);
  EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kOperational) << f.pair.b.endpoint.failure();
}

INSTANTIATE_TEST_SUITE_P(Frames, RtrFrame, testing::Values(Rtr::kSend, Rtr::kWrite, Rtr::kRead));

}  // namespace
}  // namespace airdma::iwarp
