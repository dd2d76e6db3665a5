// SPDX-License-Identifier: MIT
// Reliable connections over a network that loses nothing: every operation, any size, any MTU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/sim/packet_pair.h"
#include "tests/unit/engine/transfer_fixture.h"

namespace airdma::rocev2 {
namespace {

using model::SendOpcode;
using model::WcOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::kKey;
using sim::PacketPair;
using test::expect_success;
using test::kHere;
using test::kThere;
using test::TransferFixture;

struct Fixture : TransferFixture<PacketPair> {
  explicit Fixture(std::size_t bytes, const QpAttributes& attributes = sim::usual_attributes())
      : TransferFixture(bytes, attributes) {}
};

struct Shape {
  std::size_t bytes;
  std::uint32_t mtu;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.bytes << " bytes, MTU " << shape.mtu;
}

QpAttributes with_mtu(std::uint32_t mtu) {
  QpAttributes attributes = sim::usual_attributes();
  attributes.path_mtu = mtu;
  return attributes;
}

class Transfer : public testing::TestWithParam<Shape> {
 protected:
  Transfer() : fixture_(GetParam().bytes + 64, with_mtu(GetParam().mtu)) {}
  Fixture fixture_;
};

TEST_P(Transfer, Send) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  pair.b.post_receive(9, {fixture_.there(bytes)});
  pair.a.post({.wr_id = 5, .sges = {fixture_.here(bytes)}});
  pair.run();
  ASSERT_EQ(pair.b.completions.size(), 1u);
  expect_success(pair.b.completions, 0, 9, WcOpcode::kReceive, bytes);
  EXPECT_TRUE(pair.b.completions[0].receive);
  ASSERT_EQ(pair.a.completions.size(), 1u);
  expect_success(pair.a.completions, 0, 5, WcOpcode::kSend, bytes);
  EXPECT_TRUE(fixture_.same(bytes));
  EXPECT_FALSE(pair.a.endpoint.next_deadline().has_value());
}

TEST_P(Transfer, WriteInPieces) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  pair.a.post({.opcode = SendOpcode::kWrite,
               .wr_id = 6,
               .sges = {fixture_.here(bytes / 3), fixture_.here(0),
                        fixture_.here(bytes - bytes / 3, bytes / 3)},
               .remote_addr = kThere});
  pair.run();
  ASSERT_EQ(pair.a.completions.size(), 1u);
  expect_success(pair.a.completions, 0, 6, WcOpcode::kRdmaWrite, bytes);
  EXPECT_TRUE(fixture_.same(bytes));
  EXPECT_TRUE(pair.b.completions.empty());
}

TEST_P(Transfer, WriteWithImmediate) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  pair.b.post_receive(9, {});
  pair.a.post({.opcode = SendOpcode::kWriteWithImm,
               .sges = {fixture_.here(bytes)},
               .remote_addr = kThere,
               .immediate = 0x12345678,
               .solicited = true});
  pair.run();
  ASSERT_EQ(pair.b.completions.size(), 1u);
  expect_success(pair.b.completions, 0, 9, WcOpcode::kReceiveRdmaWithImm, bytes);
  EXPECT_EQ(pair.b.completions[0].immediate, 0x12345678u);
  EXPECT_EQ(pair.b.completions[0].flags, model::kWcWithImmediate);
  EXPECT_TRUE(pair.b.completions[0].solicited);
  EXPECT_TRUE(fixture_.same(bytes));
}

TEST_P(Transfer, ReadInPieces) {
  auto& [pair, source, target] = fixture_;
  const std::size_t bytes = GetParam().bytes;
  sim::fill(target.bytes(), 3);
  pair.a.post({.opcode = SendOpcode::kRead,
               .wr_id = 7,
               .sges = {fixture_.here(bytes / 2), fixture_.here(bytes - bytes / 2, bytes / 2)},
               .remote_addr = kThere});
  pair.run();
  ASSERT_EQ(pair.a.completions.size(), 1u);
  expect_success(pair.a.completions, 0, 7, WcOpcode::kRdmaRead, bytes);
  EXPECT_TRUE(fixture_.same(bytes));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Transfer,
                         testing::Values(Shape{0, 256}, Shape{1, 256}, Shape{255, 256},
                                         Shape{256, 256}, Shape{257, 1024}, Shape{1024, 512},
                                         Shape{5001, 1024}, Shape{65536, 4096},
                                         Shape{3000000, 4096}, Shape{700001, 256}));

TEST(RcTransfer, ManyOperationsBothWaysInOrder) {
  Fixture f(1 << 20);
  auto& pair = f.pair;
  for (std::uint64_t i = 0; i < 60; ++i) pair.b.post_receive(i, {f.there(1000, i * 1000)});
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto opcode = i % 3 == 0   ? SendOpcode::kSend
                        : i % 3 == 1 ? SendOpcode::kRead
                                     : SendOpcode::kWriteWithImm;
    pair.a.post({.opcode = opcode,
                 .wr_id = i,
                 .sges = {f.here(1000, 1000 * i)},
                 .remote_addr = kThere + 1000 * i,
                 .signaled = i % 7 != 0});
  }
  pair.run();
  std::uint64_t expected = 0;
  for (const auto& wc : pair.a.completions) {
    if (expected % 7 == 0) ++expected;
    EXPECT_EQ(wc.wr_id, expected++);
    EXPECT_EQ(wc.status, WcStatus::kSuccess);
  }
  EXPECT_EQ(pair.b.completions.size(), 40u);
}

TEST(RcTransfer, Atomics) {
  Fixture f(64);
  auto& pair = f.pair;
  std::uint64_t value = 40;
  std::memcpy(f.target.bytes().data(), &value, 8);
  pair.a.post({.opcode = SendOpcode::kFetchAdd,
               .wr_id = 1,
               .sges = {f.here(8)},
               .remote_addr = kThere,
               .compare_add = 2});
  pair.a.post({.opcode = SendOpcode::kCompareSwap,
               .wr_id = 2,
               .sges = {f.here(3, 8), f.here(5, 11)},
               .remote_addr = kThere,
               .compare_add = 42,
               .swap = 7});
  pair.a.post({.opcode = SendOpcode::kCompareSwap,
               .wr_id = 3,
               .sges = {f.here(8, 16)},
               .remote_addr = kThere,
               .compare_add = 42,
               .swap = 8});
  pair.run();
  ASSERT_EQ(pair.a.completions.size(), 3u);
  expect_success(pair.a.completions, 0, 1, WcOpcode::kFetchAdd, 8);
  expect_success(pair.a.completions, 1, 2, WcOpcode::kCompareSwap, 8);
  std::uint64_t got[3];
  std::memcpy(got, f.source.bytes().data(), sizeof got);
  EXPECT_THAT(got, testing::ElementsAre(40, 42, 7));
  std::memcpy(&value, f.target.bytes().data(), 8);
  EXPECT_EQ(value, 7u);
}

TEST(RcTransfer, InlineDataIsCopied) {
  Fixture f(64);
  auto& pair = f.pair;
  pair.b.post_receive(1, {f.there(64)});
  pair.a.post({.inlined = true, .inline_data = std::vector<std::byte>(33, std::byte{5})});
  pair.run();
  ASSERT_EQ(pair.b.completions.size(), 1u);
  EXPECT_EQ(pair.b.completions[0].byte_len, 33u);
  EXPECT_EQ(f.target.bytes()[32], std::byte{5});
  EXPECT_EQ(f.target.bytes()[33], std::byte{0});
}

TEST(RcTransfer, OneAcknowledgementForAMessage) {
  Fixture f(64 * 256, with_mtu(256));
  f.pair.a.post({.opcode = SendOpcode::kWrite, .sges = {f.here(64 * 256)}, .remote_addr = kThere});
  f.pair.run();
  EXPECT_EQ(f.pair.a.completions.size(), 1u);
  EXPECT_EQ(f.pair.packets, 64u + 1u);
}

TEST(RcTransfer, AcknowledgementsAreFewInAStream) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  Fixture f(kBytes, with_mtu(4096));
  f.pair.a.post({.opcode = SendOpcode::kWrite, .sges = {f.here(kBytes)}, .remote_addr = kThere});
  f.pair.run();
  ASSERT_EQ(f.pair.a.completions.size(), 1u);
  EXPECT_TRUE(f.same(kBytes));
  EXPECT_LE(f.pair.packets, kBytes / 4096 + 40);
}

}  // namespace
}  // namespace airdma::rocev2
