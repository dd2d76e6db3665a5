// SPDX-License-Identifier: MIT
// Work requests at the edges of what can be posted: of nothing, with empty pieces, of 2^31 bytes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "tests/sim/endpoint_pair.h"

namespace airdma::iwarp {
namespace {

using model::SendOpcode;
using model::Sge;
using model::WcOpcode;
using model::WcStatus;
using sim::Buffer;
using sim::EndpointPair;
using sim::kKey;

constexpr std::uint64_t kHere = 0x10000;
constexpr std::uint64_t kThere = 0x20000;
constexpr Stag kNoKey{0xbad};
// A piece of nothing: what it names is not looked at (RFC 5040 5.1, 5.2).
constexpr Sge kNothing{.addr = 0x123, .length = 0, .lkey = kNoKey};

struct Fixture {
  Fixture() : here(pair.a.table, kKey, kHere, 4096), there(pair.b.table, kKey, kThere, 4096) {
    sim::fill(here.bytes(), 1);
    sim::fill(there.bytes(), 2);
  }
  EndpointPair pair;
  Buffer here;
  Buffer there;
};

TEST(Nothing, IsSentWrittenAndReadWithAnyKey) {
  for (const SendOpcode opcode : {SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kWrite,
                                  SendOpcode::kWriteWithImm, SendOpcode::kRead}) {
    for (const std::vector<Sge>& sges :
         {std::vector<Sge>{}, {kNothing}, {kNothing, kNothing, kNothing}}) {
      Fixture f;
      const auto before = f.there.bytes();
      f.pair.b.post_receive(1, {kNothing});
      f.pair.a.post(
          {.opcode = opcode, .wr_id = 2, .sges = sges, .remote_addr = 0x456, .rkey = kNoKey});
      f.pair.run();
      ASSERT_EQ(f.pair.a.completions.size(), 1u);
      EXPECT_EQ(f.pair.a.completions[0].status, WcStatus::kSuccess) << int(opcode);
      const bool receives = opcode != SendOpcode::kWrite && opcode != SendOpcode::kRead;
      ASSERT_EQ(f.pair.b.completions.size(), receives ? 1u : 0u);
      if (receives) {
        EXPECT_EQ(f.pair.b.completions[0].status, WcStatus::kSuccess);
        EXPECT_EQ(f.pair.b.completions[0].byte_len, 0u);
      }
      EXPECT_EQ(f.there.bytes(), before);
      EXPECT_EQ(f.pair.b.endpoint.state(), EndpointState::kOperational);
    }
  }
}

TEST(Nothing, NeedsAReceiveAllTheSame) {
  Fixture f;
  f.pair.a.post({.wr_id = 1});
  f.pair.run();
  EXPECT_TRUE(f.pair.b.completions.empty());
  EXPECT_TRUE(f.pair.b.endpoint.wants_receives());
  f.pair.b.post_receive(2, {});
  f.pair.b.endpoint.on_receives_posted(f.pair.now);
  f.pair.run();
  ASSERT_EQ(f.pair.b.completions.size(), 1u);
  EXPECT_EQ(f.pair.b.completions[0].status, WcStatus::kSuccess);
}

const std::vector<std::vector<Sge>> kHoles = {
    {kNothing, {kHere, 3, kKey}, {kHere + 100, 5, kKey}},
    {{kHere, 3, kKey}, kNothing, kNothing, {kHere + 100, 5, kKey}},
    {{kHere, 3, kKey}, {kHere + 100, 5, kKey}, kNothing},
};

TEST(EmptyPieces, OfWhatIsSentAndReceived) {
  for (const auto& sges : kHoles) {
    for (const bool write : {false, true}) {
      Fixture f;
      f.pair.b.post_receive(1,
                            {kNothing, {kThere + 1, 4, kKey}, kNothing, {kThere + 5, 100, kKey}});
      f.pair.a.post({.opcode = write ? SendOpcode::kWriteWithImm : SendOpcode::kSend,
                     .wr_id = 2,
                     .sges = sges,
                     .remote_addr = kThere + 1});
      f.pair.run();
      ASSERT_EQ(f.pair.b.completions.size(), 1u);
      EXPECT_EQ(f.pair.b.completions[0].byte_len, 8u);
      EXPECT_EQ(std::memcmp(&f.there.bytes()[1], f.here.bytes().data(), 3), 0);
      EXPECT_EQ(std::memcmp(&f.there.bytes()[4], &f.here.bytes()[100], 5), 0);
    }
  }
}

TEST(EmptyPieces, OfWhereAReadGoes) {
  for (const auto& sges : kHoles) {
    Fixture f;
    f.pair.a.post({.opcode = SendOpcode::kRead, .wr_id = 2, .sges = sges, .remote_addr = kThere});
    f.pair.run();
    ASSERT_EQ(f.pair.a.completions.size(), 1u);
    EXPECT_EQ(f.pair.a.completions[0].status, WcStatus::kSuccess);
    EXPECT_EQ(f.pair.a.completions[0].byte_len, 8u);
    EXPECT_EQ(std::memcmp(f.here.bytes().data(), f.there.bytes().data(), 3), 0);
    EXPECT_EQ(std::memcmp(&f.here.bytes()[100], &f.there.bytes()[3], 5), 0);
  }
}

TEST(Queue, IsFilledAgainAndAgainByUnsignaledRequests) {
  Fixture f;
  for (int round = 0; round < 5; ++round) {
    std::uint64_t posted = 0;
    while (f.pair.a.sq.free_slots() != 0) {
      const bool read = posted++ % 2 != 0;
      f.pair.a.post({.opcode = read ? SendOpcode::kRead : SendOpcode::kWrite,
                     .sges = {{kHere, 8, kKey}},
                     .remote_addr = kThere,
                     .signaled = false});
    }
    EXPECT_EQ(posted, 64u);
    f.pair.run();
    EXPECT_EQ(f.pair.a.sq.free_slots(), 64u);
    EXPECT_TRUE(f.pair.a.completions.empty());
  }
}

TEST(Queue, KeepsTheInlineBytesOfEachRequestApart) {
  Fixture f;
  constexpr std::size_t kPosts = 4;
  for (std::size_t i = 0; i < kPosts; ++i) {
    f.pair.b.post_receive(i, {{kThere + i * 64, 64, kKey}});
    f.pair.a.post({.wr_id = i,
                   .inlined = true,
                   .inline_data = std::vector<std::byte>(i * 7, static_cast<std::byte>(i))});
  }
  f.pair.run();
  ASSERT_EQ(f.pair.b.completions.size(), kPosts);
  for (std::size_t i = 0; i < kPosts; ++i) {
    EXPECT_EQ(f.pair.b.completions[i].byte_len, i * 7);
    for (std::size_t at = 0; at < i * 7; ++at) {
      EXPECT_EQ(f.there.bytes()[i * 64 + at], static_cast<std::byte>(i));
    }
  }
}

/// Memory of 2^31 bytes that takes 16 MiB: every 16 MiB of it are the same.
class Huge {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 31;
  static constexpr std::size_t kPeriod = std::size_t{1} << 24;

  explicit Huge(model::MemoryTable& table) : table_(table) {
    const int fd = memfd_create("huge", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, kPeriod) != 0) std::abort();
    start_ = static_cast<std::byte*>(
        mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = 0; at < kBytes; at += kPeriod) {
      void* const mapped =
          mmap(start_ + at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
      if (mapped != start_ + at) std::abort();
    }
    close(fd);
    region_.start = start_;
    region_.base = base();
    region_.length = kBytes;
    region_.pd = sim::kPd;
    region_.access = sim::kAllRights;
    if (!table.publish(kKey, region_)) std::abort();
  }
  ~Huge() {
    table_.retract(region_);
    munmap(start_, kBytes);
  }
  Huge(const Huge&) = delete;
  Huge& operator=(const Huge&) = delete;

  [[nodiscard]] std::uint64_t base() const { return reinterpret_cast<std::uintptr_t>(start_); }
  [[nodiscard]] std::span<std::byte> period() { return {start_, kPeriod}; }
  /// All of it in pieces that end at no round place.
  [[nodiscard]] std::vector<Sge> pieces() const {
    std::vector<Sge> sges;
    std::uint64_t done = 0;
    for (const std::uint32_t length : {1u, (1u << 30) - 3u, 0u}) {
      sges.push_back({base() + done, length, kKey});
      done += length;
    }
    sges.push_back({base() + done, static_cast<std::uint32_t>(kBytes - done), kKey});
    return sges;
  }

 private:
  model::MemoryTable& table_;
  std::byte* start_ = nullptr;
  model::Region region_;
};

class TwoGigabytes : public testing::TestWithParam<SendOpcode> {};

TEST_P(TwoGigabytes, ArriveWhole) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "one thread, and minutes of it under this sanitizer";
#endif
  EndpointPair pair({.crc = false, .max_ulpdu = 64512});
  Huge here(pair.a.table);
  Huge there(pair.b.table);
  const bool read = GetParam() == SendOpcode::kRead;
  sim::fill((read ? there : here).period(), 7);
  pair.b.post_receive(1, there.pieces());
  pair.a.post(
      {.opcode = GetParam(), .wr_id = 2, .sges = here.pieces(), .remote_addr = there.base()});
  pair.run();
  ASSERT_EQ(pair.a.completions.size(), 1u);
  EXPECT_EQ(pair.a.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(pair.a.completions[0].byte_len, Huge::kBytes);
  if (!read) {
    ASSERT_EQ(pair.b.completions.size(), 1u);
    EXPECT_EQ(pair.b.completions[0].byte_len, Huge::kBytes);
    EXPECT_EQ(pair.b.endpoint.stats().payload_received, Huge::kBytes);
  } else {
    EXPECT_EQ(pair.a.endpoint.stats().payload_received, Huge::kBytes);
  }
  // Every piece of it was written 128 times with the same bytes, unless one went astray.
  EXPECT_EQ(std::memcmp(here.period().data(), there.period().data(), Huge::kPeriod), 0);
}

INSTANTIATE_TEST_SUITE_P(Operations, TwoGigabytes,
                         testing::Values(SendOpcode::kSend, SendOpcode::kWriteWithImm,
                                         SendOpcode::kRead));

}  // namespace
}  // namespace airdma::iwarp
