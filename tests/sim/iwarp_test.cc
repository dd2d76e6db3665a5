// SPDX-License-Identifier: MIT
// iWARP connections in a seeded world, and one small conversation cut and reset at every byte.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/sim/iwarp_world.h"
#include "tests/sim/seeds.h"
#include "wire/mpa.h"

namespace airdma::sim {
namespace {

using iwarp::EndpointState;
using model::SendOpcode;
using model::WcStatus;

class Seeds : public testing::TestWithParam<Ending> {};

TEST_P(Seeds, HoldWhatIsPromised) {
  for_each_seed(60, [](std::uint64_t seed) { return IwarpWorld(seed, GetParam()).run(); });
}

std::string ending_name(const testing::TestParamInfo<Ending>& ending) {
  constexpr const char* kNames[] = {"Idle", "Reset", "Disconnect", "Fail", "Corrupt", "Withdraw"};
  return kNames[static_cast<std::size_t>(ending.param)];
}

INSTANTIATE_TEST_SUITE_P(Endings, Seeds,
                         testing::Values(Ending::kIdle, Ending::kReset, Ending::kDisconnect,
                                         Ending::kFail, Ending::kCorrupt, Ending::kWithdraw),
                         ending_name);

// Both send, then wait for a READ, and only then post receives. Whatever the stream is cut into,
// the answers pass the messages that wait.
TEST(SendThenRead, NeitherWaitsForTheOther) {
  for (const std::size_t max_ulpdu : {std::size_t{128}, std::size_t{1442}, wire::kMaxUlpduBytes}) {
    for (const std::size_t cut : {std::size_t{1}, std::size_t{700}, std::size_t{1} << 20}) {
      EndpointPair pair({.max_ulpdu = max_ulpdu});
      constexpr std::uint64_t kBase = 0x10000;
      constexpr std::uint32_t kBytes = 100000;
      Buffer a(pair.a.table, kKey, kBase, std::size_t{8} * kBytes);
      Buffer b(pair.b.table, kKey, kBase, std::size_t{8} * kBytes);
      pair.cut = cut;
      for (Side* side : {&pair.a, &pair.b}) {
        fill((side == &pair.a ? a : b).bytes(), side == &pair.a ? 1 : 2);
        side->post({.wr_id = 1, .sges = {{kBase, kBytes, kKey}}});
        side->post({.opcode = SendOpcode::kRead,
                    .wr_id = 2,
                    .sges = {{kBase + kBytes, kBytes, kKey}},
                    .remote_addr = kBase + std::uint64_t{2} * kBytes});
      }
      pair.run();
      for (Side* side : {&pair.a, &pair.b}) {
        ASSERT_EQ(side->completions.size(), 2u);
        ASSERT_EQ(side->completions[1].status, WcStatus::kSuccess);
        side->post_receive(3, {{kBase + std::uint64_t{4} * kBytes, kBytes, kKey}});
        side->endpoint.on_receives_posted(pair.now);
      }
      pair.run();
      const auto same = [](Buffer& to, std::size_t at, Buffer& from, std::size_t source) {
        return std::memcmp(to.bytes().data() + at * kBytes, from.bytes().data() + source * kBytes,
                           kBytes) == 0;
      };
      for (Side* side : {&pair.a, &pair.b}) {
        ASSERT_EQ(side->completions.size(), 3u);
        ASSERT_EQ(side->completions[2].byte_len, kBytes);
      }
      EXPECT_TRUE(same(a, 1, b, 2) && same(b, 1, a, 2) && same(a, 4, b, 0) && same(b, 4, a, 0));
    }
  }
}

/// A few operations each way, delivered up to a number of bytes.
struct Conversation {
  explicit Conversation(iwarp::StreamParams params)
      : pair(params), a(pair.a.table, kKey, kA, 4096), b(pair.b.table, kKey, kB, 4096) {
    fill(a.bytes(), 1);
    fill(b.bytes(), 2);
    pair.room = 2000;
    pair.b.post_receive(1, {{kB, 300, kKey}});
    pair.b.post_receive(2, {{kB + 300, 10, kKey}});
    pair.a.post_receive(1, {{kA, 50, kKey}});
    pair.a.post({.opcode = SendOpcode::kWrite,
                 .wr_id = 1,
                 .sges = {{kA + 2000, 150, kKey}},
                 .remote_addr = kB + 1000});
    pair.a.post({.opcode = SendOpcode::kSend, .wr_id = 2, .sges = {{kA + 2200, 130, kKey}}});
    pair.a.post({.opcode = SendOpcode::kRead,
                 .wr_id = 3,
                 .sges = {{kA + 100, 140, kKey}},
                 .remote_addr = kB + 2000});
    pair.a.post({.opcode = SendOpcode::kWriteWithImm,
                 .wr_id = 4,
                 .sges = {{kA + 2400, 7, kKey}},
                 .remote_addr = kB + 1200,
                 .immediate = 5});
    pair.b.post({.opcode = SendOpcode::kSend, .wr_id = 1, .sges = {{kB + 2100, 33, kKey}}});
    pair.b.post({.opcode = SendOpcode::kRead,
                 .wr_id = 2,
                 .sges = {{kB + 600, 0, kKey}},
                 .remote_addr = kA});
  }
  static constexpr std::uint64_t kA = 0x10000;
  static constexpr std::uint64_t kB = 0x20000;

  /// Both directions until `limit` bytes were delivered; the byte at the limit starts a new piece.
  std::size_t run(std::size_t limit) {
    std::size_t delivered = 0;
    std::vector<std::byte> out(pair.room);
    for (bool moved = true; moved && delivered < limit;) {
      moved = false;
      for (const bool forth : {true, false}) {
        Side& from = forth ? pair.a : pair.b;
        Side& to = forth ? pair.b : pair.a;
        const std::size_t bytes = from.endpoint.poll_transmit(out, pair.now);
        from.endpoint.on_transmitted(bytes, pair.now);
        const std::size_t first = std::min(bytes, limit - delivered);
        to.endpoint.on_bytes(Bytes{out}.first(first), pair.now);
        delivered += first;
        if (delivered == limit && stop) break;
        to.endpoint.on_bytes(Bytes{out}.subspan(first, bytes - first), pair.now);
        moved |= bytes != 0;
      }
    }
    pair.a.drain();
    pair.b.drain();
    return delivered;
  }

  EndpointPair pair;
  Buffer a;
  Buffer b;
  bool stop = false;  // at the limit, the rest is lost
};

iwarp::StreamParams small_fpdus(bool markers) {
  iwarp::StreamParams params;
  params.send_markers = params.receive_markers = markers;
  params.ird = params.ord = 1;
  params.max_ulpdu = 128;
  return params;
}

std::size_t statuses(const Side& side, WcStatus status) {
  return static_cast<std::size_t>(
      std::count_if(side.completions.begin(), side.completions.end(),
                    [&](const model::Completion& wc) { return wc.status == status; }));
}

TEST(EveryByte, CutThere) {
  for (const bool markers : {false, true}) {
    Conversation whole(small_fpdus(markers));
    const std::size_t total = whole.run(~std::size_t{0});
    ASSERT_GT(total, 500u);
    for (std::size_t at = 0; at <= total; ++at) {
      Conversation cut(small_fpdus(markers));
      cut.run(at);
      cut.run(~std::size_t{0});
      ASSERT_EQ(cut.pair.a.completions.size(), 5u) << at;
      ASSERT_EQ(cut.pair.b.completions.size(), 4u) << at;
      ASSERT_EQ(statuses(cut.pair.a, WcStatus::kSuccess), 5u) << at;
      ASSERT_EQ(statuses(cut.pair.b, WcStatus::kSuccess), 4u) << at;
      ASSERT_EQ(cut.a.bytes(), whole.a.bytes()) << at;
      ASSERT_EQ(cut.b.bytes(), whole.b.bytes()) << at;
    }
  }
}

TEST(EveryByte, BrokenThere) {
  for (const bool markers : {false, true}) {
    const std::size_t total = Conversation(small_fpdus(markers)).run(~std::size_t{0});
    for (std::size_t at = 1; at <= total; ++at) {
      for (const auto end : {iwarp::StreamEnd::kReset, iwarp::StreamEnd::kFin}) {
        Conversation broken(small_fpdus(markers));
        broken.stop = true;
        broken.run(at);
        for (Side* side : {&broken.pair.a, &broken.pair.b}) {
          side->endpoint.on_stream_end(end, broken.pair.now);
          side->drain();
          ASSERT_EQ(side->endpoint.state(), EndpointState::kError);
          ASSERT_EQ(side->completions.size(), side == &broken.pair.a ? 5u : 4u) << at;
          ASSERT_EQ(statuses(*side, WcStatus::kSuccess) + statuses(*side, WcStatus::kFlushError),
                    side->completions.size())
              << at;
        }
        ASSERT_TRUE(broken.a.idle() && broken.b.idle());
      }
    }
  }
}

}  // namespace
}  // namespace airdma::sim
