// SPDX-License-Identifier: MIT
// What a lost packet costs a connection: round trips, and no timer, as long as others follow it.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>

#include "tests/sim/packet_pair.h"
#include "tests/sim/random.h"

namespace airdma::sim {
namespace {

using model::SendOpcode;
using model::WcStatus;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using wire::RocePacket;

constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint32_t kMtu = 1024;
constexpr Duration kOneWay = microseconds(50);

/// A pair with a network between that keeps the order and takes its time. What arrives at one
/// moment is received together. `tamper` sees every packet: false loses it.
class DistantPair {
 public:
  explicit DistantPair(std::size_t bytes)
      : a(1), b(2), source(a.table, kKey, kBase, bytes), target(b.table, kKey, kBase, bytes) {
    fill(source.bytes(), 1);
    fill(target.bytes(), 2);
    rocev2::QpAttributes attributes = usual_attributes();
    attributes.path_mtu = kMtu;
    attributes.sq_psn = attributes.rq_psn = Psn{0};
    a.connect(attributes, 2, now);
    b.connect(attributes, 1, now);
  }

  void post(SendOpcode opcode, std::size_t bytes, std::size_t offset = 0) {
    a.post({.opcode = opcode,
            .sges = {{.addr = kBase + offset,
                      .length = static_cast<std::uint32_t>(bytes),
                      .lkey = kKey}},
            .remote_addr = kBase + offset});
  }
  void run_until_idle() {
    do {
      move(a, b);
      move(b, a);
    } while (pass());
  }
  [[nodiscard]] bool same(std::size_t bytes) {
    return std::memcmp(source.bytes().data(), target.bytes().data(), bytes) == 0;
  }

  Time now{};
  PacketSide a;
  PacketSide b;
  Buffer source;
  Buffer target;
  std::function<bool(const RocePacket&, bool from_a)> tamper;

 private:
  struct Flying {
    Time at{};
    PacketSide* from = nullptr;
    PacketSide* to = nullptr;
    PacketBytes bytes;
  };

  void move(PacketSide& from, PacketSide& to) {
    for (PacketBytes& bytes : from.transmit(now)) {
      if (tamper && !tamper(readable(bytes), &from == &a)) continue;
      flying_.push_back({now + kOneWay, &from, &to, std::move(bytes)});
    }
  }
  /// To the next thing that happens; false when nothing will.
  bool pass() {
    std::optional<Time> next;
    if (!flying_.empty()) next = flying_.front().at;
    for (PacketSide* side : {&a, &b}) {
      const auto deadline = side->endpoint.next_deadline();
      if (deadline && (!next || *deadline < *next)) next = deadline;
    }
    if (!next) return false;
    now = std::max(now, *next);
    for (; !flying_.empty() && flying_.front().at <= now; flying_.pop_front()) {
      const Flying& packet = flying_.front();
      packet.to->receive(packet.bytes, packet.from->number, now);
    }
    for (PacketSide* side : {&a, &b}) {
      side->endpoint.on_deadline(now);
      side->drain();
    }
    return true;
  }

  std::deque<Flying> flying_;
};

constexpr std::size_t kPackets = 40;
constexpr std::size_t kBytes = kPackets * kMtu;

class LostOften : public testing::TestWithParam<int> {};

/// Whichever packet of a WRITE is lost so many times in a row, that takes as many round trips.
TEST_P(LostOften, PacketOfAWrite) {
  for (std::uint32_t victim = 0; victim + 1 < kPackets; ++victim) {
    DistantPair pair(kBytes);
    int losses = 0;
    pair.tamper = [&](const RocePacket& packet, bool from_a) {
      return !from_a || packet.psn != Psn{victim} || losses++ >= GetParam();
    };
    pair.post(SendOpcode::kWrite, kBytes);
    pair.run_until_idle();
    ASSERT_EQ(pair.a.completions.size(), 1u);
    EXPECT_TRUE(pair.same(kBytes));
    EXPECT_EQ(pair.now, Time{} + 2 * kOneWay * (1 + GetParam())) << "packet " << victim;
    EXPECT_EQ(pair.a.endpoint.stats().probes, 0u);
  }
}

/// The same of a READ's response.
TEST_P(LostOften, PacketOfAResponse) {
  for (std::uint32_t victim = 0; victim + 1 < kPackets; ++victim) {
    DistantPair pair(kBytes);
    int losses = 0;
    pair.tamper = [&](const RocePacket& packet, bool from_a) {
      return from_a || packet.psn != Psn{victim} || losses++ >= GetParam();
    };
    pair.post(SendOpcode::kRead, kBytes);
    pair.run_until_idle();
    ASSERT_EQ(pair.a.completions.size(), 1u);
    EXPECT_TRUE(pair.same(kBytes));
    EXPECT_EQ(pair.now, Time{} + 2 * kOneWay * (1 + GetParam())) << "packet " << victim;
    EXPECT_EQ(pair.a.endpoint.stats().probes, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Times, LostOften, testing::Values(1, 2, 3, 5));

/// One in a hundred is lost, in both directions, and a stream goes on. A timer is needed for what
/// nothing follows, and where the answer was lost too.
TEST(Loss, ATimerIsRarelyNeeded) {
  constexpr std::size_t kStream = std::size_t{32} << 20;
  std::uint64_t lost = 0;
  std::uint64_t probes = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    DistantPair pair(kStream);
    Random random(seed);
    pair.tamper = [&](const RocePacket&, bool from_a) {
      const bool loses = random.one_in(100);
      lost += loses && from_a ? 1 : 0;
      return !loses;
    };
    for (std::size_t at = 0; at < kStream; at += kStream / 32) {
      pair.post(SendOpcode::kWrite, kStream / 32, at);
    }
    pair.run_until_idle();
    ASSERT_EQ(pair.a.completions.size(), 32u);
    EXPECT_TRUE(pair.same(kStream));
    EXPECT_EQ(pair.a.endpoint.stats().timeouts, 0u);
    probes += pair.a.endpoint.stats().probes;
  }
  RecordProperty("lost", static_cast<int>(lost));
  RecordProperty("probes", static_cast<int>(probes));
  EXPECT_GT(lost, 1000u);
  EXPECT_LT(probes * 40, lost);
}

}  // namespace
}  // namespace airdma::sim
