// SPDX-License-Identifier: MIT
// COMPARE_SWAP and FETCH_ADD between two endpoints, and what goes on the wire for them.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/iwarp/atomics.h"
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
using wire::AtomicOperation;
using wire::Opcode;

constexpr std::uint64_t kHere = 0x10000;
constexpr std::uint64_t kThere = 0x7f0000000000;
constexpr std::size_t kSize = 256;

std::uint64_t value_at(const Buffer& buffer, std::size_t offset) {
  std::uint64_t value;
  std::memcpy(&value, const_cast<Buffer&>(buffer).bytes().data() + offset, sizeof value);
  return value;
}
void put(Buffer& buffer, std::size_t offset, std::uint64_t value) {
  std::memcpy(buffer.bytes().data() + offset, &value, sizeof value);
}

struct Fixture {
  explicit Fixture(StreamParams params = {})
      : pair(params),
        here(pair.a.table, kKey, kHere, kSize),
        there(pair.b.table, kKey, kThere, kSize) {}
  sim::Post add(std::uint64_t wr_id, std::uint64_t value, std::size_t sink = 0) {
    return {.opcode = SendOpcode::kFetchAdd,
            .wr_id = wr_id,
            .sges = {{kHere + sink, 8, kKey}},
            .remote_addr = kThere,
            .compare_add = value};
  }
  sim::Post swap(std::uint64_t wr_id, std::uint64_t compare, std::uint64_t swap) {
    return {.opcode = SendOpcode::kCompareSwap,
            .wr_id = wr_id,
            .sges = {{kHere, 8, kKey}},
            .remote_addr = kThere,
            .compare_add = compare,
            .swap = swap};
  }
  EndpointPair pair;
  Buffer here, there;
};

TEST(Atomic, FetchAddAddsAndBringsWhatWasThere) {
  Fixture f;
  put(f.there, 0, 0x00ff00ff00ff00ff);
  f.pair.a.post(f.add(1, 0x0102030405060708));
  f.pair.run();
  EXPECT_EQ(value_at(f.there, 0), 0x00ff00ff00ff00ffu + 0x0102030405060708u);
  EXPECT_EQ(value_at(f.here, 0), 0x00ff00ff00ff00ffu);
  ASSERT_EQ(f.pair.a.completions.size(), 1u);
  EXPECT_EQ(f.pair.a.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(f.pair.a.completions[0].opcode, WcOpcode::kFetchAdd);
  EXPECT_EQ(f.pair.a.completions[0].byte_len, 8u);
  EXPECT_TRUE(f.pair.b.completions.empty());
}

TEST(Atomic, FetchAddWraps) {
  Fixture f;
  put(f.there, 0, ~std::uint64_t{0});
  f.pair.a.post(f.add(1, 2));
  f.pair.run();
  EXPECT_EQ(value_at(f.there, 0), 1u);
}

TEST(Atomic, CompareSwapSwapsOnlyWhatIsEqual) {
  Fixture f;
  put(f.there, 0, 5);
  f.pair.a.post(f.swap(1, 4, 9));
  f.pair.run();
  EXPECT_EQ(value_at(f.there, 0), 5u);
  EXPECT_EQ(value_at(f.here, 0), 5u);
  f.pair.a.post(f.swap(2, 5, 9));
  f.pair.run();
  EXPECT_EQ(value_at(f.there, 0), 9u);
  EXPECT_EQ(value_at(f.here, 0), 5u);
  ASSERT_EQ(f.pair.a.completions.size(), 2u);
  EXPECT_EQ(f.pair.a.completions[1].opcode, WcOpcode::kCompareSwap);
  EXPECT_EQ(f.pair.a.completions[1].byte_len, 8u);
}

TEST(Atomic, OriginalValueGoesIntoSeveralPieces) {
  Fixture f;
  put(f.there, 0, 0x1122334455667788);
  sim::Post post = f.add(1, 1);
  post.sges = {{kHere + 1, 3, kKey}, {kHere + 50, 0, kKey}, {kHere + 101, 5, kKey}};
  f.pair.a.post(post);
  f.pair.run();
  std::uint64_t got = 0;
  std::memcpy(&got, f.here.bytes().data() + 1, 3);
  std::memcpy(reinterpret_cast<std::byte*>(&got) + 3, f.here.bytes().data() + 101, 5);
  EXPECT_EQ(got, 0x1122334455667788u);
}

TEST(Atomic, CompletesInOrderWithReadsAndWithoutSignals) {
  Fixture f({.ird = 8, .ord = 8});
  for (std::uint64_t i = 0; i < 40; ++i) {
    sim::Post post = f.add(i, 1, 8 * (i % 16));
    if (i % 3 == 1) {
      post.opcode = SendOpcode::kRead;
      post.sges = {{kHere + 128, 8, kKey}};
    }
    post.signaled = i % 2 == 0;
    f.pair.a.post(post);
  }
  f.pair.run();
  ASSERT_EQ(f.pair.a.completions.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(f.pair.a.completions[i].wr_id, 2 * i);
  EXPECT_EQ(value_at(f.there, 0), 27u);
  EXPECT_TRUE(f.pair.a.sq.empty());
}

TEST(Atomic, AReadBeforeItSeesTheOldValueAndOneBehindItTheNew) {
  Fixture f({.ird = 8, .ord = 8});
  put(f.there, 0, 10);
  const auto read = [&](std::uint64_t wr_id, std::size_t sink) {
    f.pair.a.post({.opcode = SendOpcode::kRead,
                   .wr_id = wr_id,
                   .sges = {{kHere + sink, 8, kKey}},
                   .remote_addr = kThere});
  };
  read(1, 16);
  f.pair.a.post(f.add(2, 1, 24));
  read(3, 32);
  f.pair.run();
  EXPECT_EQ(value_at(f.here, 16), 10u);
  EXPECT_EQ(value_at(f.here, 24), 10u);
  EXPECT_EQ(value_at(f.here, 32), 11u);
}

TEST(Atomic, OneBehindAnotherThatWaitsForAReadWaitsToo) {
  Side side;
  Buffer buffer(side.table, kKey, kHere, kSize);
  put(buffer, 0, 1);
  side.endpoint.start({.ird = 4}, Time{});
  const auto swap = [&](std::uint32_t msn, std::uint64_t from, std::uint64_t to) {
    wire::AtomicRequest request{.operation = AtomicOperation::kCompareSwap,
                                .stag = kKey,
                                .tagged_offset = kHere,
                                .add_or_swap_data = to,
                                .compare_data = from};
    request.add_or_swap_mask = request.compare_mask = ~std::uint64_t{0};
    side.endpoint.on_bytes(
        sim::atomic_request(wire::untagged_header(Opcode::kAtomicRequest, true, wire::Msn{msn}, 0),
                            request),
        Time{});
  };
  side.endpoint.on_bytes(
      sim::read_request(wire::untagged_header(Opcode::kReadRequest, true, wire::Msn{1}, 0),
                        {kKey, 0, 8, kKey, kHere}),
      Time{});
  swap(2, 1, 2);
  std::vector<std::byte> out(40);  // room for the READ's answer and no more
  ASSERT_EQ(side.endpoint.poll_transmit(out, Time{}), wire::fpdu_bytes(14 + 8));
  swap(3, 2, 3);
  EXPECT_EQ(sim::sent_ulpdus(side).size(), 2u);
  EXPECT_EQ(value_at(buffer, 0), 3u);
}

TEST(Atomic, IsDoneBeforeAMessageBehindItArrives) {
  Fixture f;
  f.pair.a.post(f.add(1, 7));
  f.pair.b.post_receive(9, {{kThere + 64, 8, kKey}});
  f.pair.a.post({.wr_id = 2, .sges = {{kHere, 8, kKey}}});
  f.pair.move(f.pair.a, f.pair.b);
  ASSERT_EQ(f.pair.b.completions.size(), 1u);
  EXPECT_EQ(value_at(f.there, 0), 7u);
}

TEST(Atomic, CountsAgainstOrdWithReads) {
  Side side;
  Buffer buffer(side.table, kKey, kHere, kSize);
  side.endpoint.start({.initiator = true, .ord = 2}, Time{});
  for (std::uint64_t i = 0; i < 2; ++i) {
    side.post({.opcode = SendOpcode::kFetchAdd,
               .wr_id = i,
               .sges = {{kHere, 8, kKey}},
               .remote_addr = 8});
    side.post(
        {.opcode = SendOpcode::kRead, .wr_id = i, .sges = {{kHere, 8, kKey}}, .remote_addr = 8});
  }
  EXPECT_EQ(sim::sent_ulpdus(side).size(), 2u);
  side.endpoint.on_bytes(
      sim::atomic_response(wire::untagged_header(Opcode::kAtomicResponse, true, wire::Msn{1}, 0),
                           {.request_id = 1, .original_value = 3}),
      Time{});
  EXPECT_EQ(value_at(buffer, 0), 3u);
  EXPECT_EQ(sim::sent_ulpdus(side).size(), 1u);
}

TEST(Atomic, AFenceWaitsForIt) {
  Fixture f;
  f.pair.a.post(f.add(1, 7));
  f.pair.a.post({.opcode = SendOpcode::kWrite,
                 .wr_id = 2,
                 .sges = {{kHere, 8, kKey}},
                 .remote_addr = kThere + 8,
                 .fence = true});
  put(f.there, 0, 30);
  f.pair.move(f.pair.a, f.pair.b);
  EXPECT_EQ(f.pair.a.endpoint.stats().fpdus_sent, 1u);
  f.pair.run();
  EXPECT_EQ(value_at(f.there, 8), 30u) << "the WRITE carries what the atomic brought";
}

TEST(Atomic, OnTheWire) {
  Side side;
  Buffer buffer(side.table, kKey, kHere, kSize);
  side.endpoint.start({.initiator = true, .ord = 2}, Time{});
  side.post({.opcode = SendOpcode::kCompareSwap,
             .wr_id = 1,
             .sges = {{kHere, 8, kKey}},
             .remote_addr = 0x1122334455667788,
             .rkey = Stag{0xaabbccdd},
             .compare_add = 0x0102030405060708,
             .swap = 0x1112131415161718});
  const auto ulpdus = sim::sent_ulpdus(side);
  ASSERT_EQ(ulpdus.size(), 1u);
  constexpr unsigned char kExpected[] = {
      0x41, 0x4a, 0,    0,    0,    0,    0,    0,    0,    1,
      0,    0,    0,    1,    0,    0,    0,    0,  // queue 1, MSN 1, MO 0
      0,    0,    0,    2,                          // CmpSwap
      0,    0,    0,    1,                          // request identifier
      0xaa, 0xbb, 0xcc, 0xdd, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
      0x77, 0x88, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,  // swap, its mask
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x02,
      0x03, 0x04, 0x05, 0x06, 0x07, 0x08,  // compare, its mask
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  ASSERT_EQ(ulpdus[0].size(), sizeof kExpected);
  EXPECT_EQ(std::memcmp(ulpdus[0].data(), kExpected, sizeof kExpected), 0);
}

TEST(Atomic, MasksOfAPeerAreObeyed) {
  std::uint64_t value = 0x00ff'00ff;
  wire::AtomicRequest request{.operation = AtomicOperation::kFetchAdd};
  request.add_or_swap_data = 0x0001'0001;
  request.add_or_swap_mask = 0x8000'8080;  // fields of 8, 8 and 16 bits
  EXPECT_EQ(perform_atomic(reinterpret_cast<std::byte*>(&value), request), 0x00ff'00ffu);
  EXPECT_EQ(value, 0x0100'0000u);
  request = {.operation = AtomicOperation::kCompareSwap};
  request.compare_data = 0x0100'00ee;
  request.compare_mask = 0xffff'0000;
  request.add_or_swap_data = 0xaaaa'aaaa;
  request.add_or_swap_mask = 0x0000'00ff;
  EXPECT_EQ(perform_atomic(reinterpret_cast<std::byte*>(&value), request), 0x0100'0000u);
  EXPECT_EQ(value, 0x0100'00aau);
}

TEST(Atomic, IsAtomicAgainstThisProcessorsOwn) {
  alignas(8) std::uint64_t value = 0;
  constexpr std::uint64_t kRounds = 50000;
  std::thread other([&] {
    for (std::uint64_t i = 0; i < kRounds; ++i) std::atomic_ref(value).fetch_add(1);
  });
  wire::AtomicRequest request{.operation = AtomicOperation::kFetchAdd};
  request.add_or_swap_data = 1;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    (void)perform_atomic(reinterpret_cast<std::byte*>(&value), request);
  }
  other.join();
  EXPECT_EQ(value, 2 * kRounds);
}

TEST(Atomic, OfAnotherLengthIsRefused) {
  for (const std::uint32_t length : {0u, 4u, 16u}) {
    Fixture f;
    sim::Post post = f.add(1, 1);
    post.sges[0].length = length;
    f.pair.a.post(post);
    f.pair.run();
    ASSERT_EQ(f.pair.a.completions.size(), 1u);
    EXPECT_EQ(f.pair.a.completions[0].status, WcStatus::kLocalQpOperationError);
  }
}

TEST(Atomic, AResponseMustBelongToTheOldestRequest) {
  const auto header = [](std::uint32_t msn, std::uint32_t offset = 0) {
    return wire::untagged_header(Opcode::kAtomicResponse, true, wire::Msn{msn}, offset);
  };
  const struct {
    std::vector<std::byte> fpdu;
    model::Violation violation;
    WcStatus status;
  } wrong[] = {
      {sim::atomic_response(header(2), {1, 0}), model::Violation::kUntaggedMsn,
       WcStatus::kFlushError},
      {sim::atomic_response(header(1, 4), {1, 0}), model::Violation::kUntaggedOffset,
       WcStatus::kFlushError},
      {sim::atomic_response(header(1), {2, 0}), model::Violation::kAtomicResponse,
       WcStatus::kBadResponse},
      {sim::fpdu(header(1), std::vector<std::byte>(11)), model::Violation::kMessageLength,
       WcStatus::kFlushError},
      {sim::fpdu(header(1), std::vector<std::byte>(13)), model::Violation::kMessageLength,
       WcStatus::kFlushError},
      {sim::fpdu(wire::tagged_header(Opcode::kReadResponse, true, kKey, kHere),
                 std::vector<std::byte>(8)),
       model::Violation::kUnexpectedOpcode, WcStatus::kFlushError},
  };
  for (const auto& [fpdu, violation, status] : wrong) {
    Side side;
    Buffer buffer(side.table, kKey, kHere, kSize);
    put(buffer, 0, 77);
    side.endpoint.start({.initiator = true, .ord = 4}, Time{});
    side.post({.opcode = SendOpcode::kFetchAdd, .wr_id = 1, .sges = {{kHere, 8, kKey}}});
    ASSERT_EQ(sim::sent_ulpdus(side).size(), 1u);
    side.endpoint.on_bytes(fpdu, Time{});
    side.drain();
    EXPECT_STREQ(side.endpoint.failure(), model::info(violation).text);
    ASSERT_EQ(side.completions.size(), 1u);
    EXPECT_EQ(side.completions[0].status, status);
    EXPECT_EQ(value_at(buffer, 0), 77u);
  }
}

TEST(Atomic, MemoryWithdrawnWhileItWaitsBehindARead) {
  Side side;
  Buffer buffer(side.table, kKey, kHere, kSize);
  side.endpoint.start({.ird = 4}, Time{});
  side.endpoint.on_bytes(
      sim::read_request(wire::untagged_header(Opcode::kReadRequest, true, wire::Msn{1}, 0), {}),
      Time{});
  side.endpoint.on_bytes(
      sim::atomic_request(wire::untagged_header(Opcode::kAtomicRequest, true, wire::Msn{2}, 0),
                          {.stag = kKey, .tagged_offset = kHere, .add_or_swap_data = 1}),
      Time{});
  buffer.withdraw();
  const auto terminate = sim::sent_terminate(side);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->cause, wire::cause::kInvalidStag);
  EXPECT_EQ(terminate->segment_header->msn, wire::Msn{2});
  EXPECT_EQ(terminate->segment_bytes, 18 + 52);
  EXPECT_EQ(value_at(buffer, 0), 0u);
}

struct Refusal {
  const char* name;
  std::uint64_t offset;
  model::AccessMask access;
  WcStatus status;
};

TEST(Atomic, ARefusedOneSaysWhy) {
  const Refusal refusals[] = {
      {"unaligned", 4, sim::kAllRights, WcStatus::kRemoteInvalidRequest},
      {"denied", 0, model::kAccessLocalWrite | model::kAccessRemoteWrite,
       WcStatus::kRemoteAccessError},
      {"bounds", kSize, sim::kAllRights, WcStatus::kRemoteAccessError},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    EndpointPair pair;
    Buffer here(pair.a.table, kKey, kHere, kSize);
    Buffer there(pair.b.table, kKey, kThere, kSize, refusal.access);
    put(there, 0, 1);
    pair.a.post({.opcode = SendOpcode::kFetchAdd,
                 .wr_id = 1,
                 .sges = {{kHere, 8, kKey}},
                 .remote_addr = kThere + refusal.offset,
                 .compare_add = 1});
    pair.a.post({.wr_id = 2, .sges = {{kHere, 8, kKey}}, .fence = true});
    pair.run();
    ASSERT_EQ(pair.a.completions.size(), 2u);
    EXPECT_EQ(pair.a.completions[0].status, refusal.status);
    EXPECT_EQ(pair.a.completions[1].status, WcStatus::kFlushError);
    EXPECT_EQ(value_at(there, 0), 1u);
    EXPECT_TRUE(there.idle());
  }
}

TEST(Atomic, APeerThatKnowsNoneIsToldFromOneThatRefuses) {
  Side side;
  Buffer buffer(side.table, kKey, kHere, kSize);
  side.endpoint.start({.initiator = true, .ord = 4}, Time{});
  side.post({.opcode = SendOpcode::kRead, .wr_id = 1, .sges = {{kHere, 8, kKey}}});
  side.post({.opcode = SendOpcode::kFetchAdd, .wr_id = 2, .sges = {{kHere, 8, kKey}}});
  ASSERT_EQ(sim::sent_ulpdus(side).size(), 2u);
  // Without headers, as the kernel's siw does it.
  side.endpoint.on_bytes(
      sim::terminate({wire::TerminateOrder::kSiw, wire::cause::kUnexpectedOpcode, {}, {}, {}}),
      Time{});
  side.drain();
  ASSERT_EQ(side.completions.size(), 2u);
  EXPECT_EQ(side.completions[0].status, WcStatus::kFlushError);
  EXPECT_EQ(side.completions[1].status, WcStatus::kRemoteInvalidRequest);
}

}  // namespace
}  // namespace airdma::iwarp
