// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "model/memory.h"

namespace airdma::model {
namespace {

constexpr PdId kPd{7};
constexpr PdId kOtherPd{8};
constexpr Qpn kQp{21};
constexpr Qpn kOtherQp{22};
constexpr Stag kLkey{0x555500};
constexpr Stag kFirst{0x12345601};
constexpr Stag kKey{0x12345602};
constexpr std::uint64_t kBase = 0x10000;

class Window : public testing::Test {
 protected:
  explicit Window(RegionKind kind = RegionKind::kWindow2) {
    region_.start = bytes_.data();
    region_.base = kBase;
    region_.length = bytes_.size();
    region_.pd = kPd;
    region_.access = kAccessLocalWrite | kAccessMwBind;
    EXPECT_TRUE(table_.publish(kLkey, region_));
    window_.kind = kind;
    window_.pd = kPd;
    EXPECT_TRUE(table_.publish_window(kFirst, window_));
  }

  static WindowBind good() {
    return {.key = kKey,
            .lkey = kLkey,
            .addr = kBase + 16,
            .length = 64,
            .access = kAccessRemoteRead,
            .pd = kPd,
            .qpn = kQp};
  }
  /// A READ of one byte.
  std::expected<Pin, AccessFault> look(std::uint64_t addr, Stag key = kKey, Qpn qpn = kQp,
                                       AccessMask needed = kAccessRemoteRead) {
    return table_.pin(key, kPd, addr, 1, needed, qpn);
  }
  AccessFault fault(std::uint64_t addr, Stag key = kKey, Qpn qpn = kQp,
                    AccessMask needed = kAccessRemoteRead) {
    const auto pin = look(addr, key, qpn, needed);
    EXPECT_FALSE(pin);
    return pin ? AccessFault{} : pin.error();
  }

  std::array<std::byte, 128> bytes_{};
  Region region_;
  Region window_;
  MemoryTable table_;
};

class Window1 : public Window {
 protected:
  Window1() : Window(RegionKind::kWindow1) {}
};

TEST_F(Window, GivesItsRangeAndRightsToItsQueuePair) {
  ASSERT_TRUE(table_.bind(good()));
  EXPECT_EQ(look(kBase + 16)->data(), bytes_.data() + 16);
  EXPECT_TRUE(look(kBase + 79));
  EXPECT_EQ(fault(kBase + 80), AccessFault::kBounds);
  EXPECT_EQ(fault(kBase + 15), AccessFault::kBounds);
  EXPECT_EQ(fault(kBase + 16, kKey, kQp, kAccessRemoteWrite), AccessFault::kDenied);
  EXPECT_EQ(fault(kBase + 16, kKey, kOtherQp), AccessFault::kOtherPd);
  EXPECT_EQ(fault(kBase + 16, kKey, Qpn{}), AccessFault::kOtherPd);
  EXPECT_EQ(fault(kBase + 16, kFirst), AccessFault::kInvalidKey);
  EXPECT_FALSE(table_.pin(kKey, kOtherPd, kBase + 16, 1, kAccessRemoteRead, kQp));
}

TEST_F(Window, IsNoLocalBuffer) {
  ASSERT_TRUE(table_.bind(good()));
  EXPECT_EQ(fault(kBase + 16, kKey, kQp, kAccessLocalRead), AccessFault::kInvalidKey);
  EXPECT_EQ(fault(kBase + 16, kKey, kQp, kAccessLocalWrite), AccessFault::kInvalidKey);
}

TEST_F(Window, ZeroBased) {
  WindowBind wanted = good();
  wanted.access |= kAccessZeroBased;
  ASSERT_TRUE(table_.bind(wanted));
  EXPECT_EQ(look(63)->data(), bytes_.data() + 79);
  EXPECT_EQ(fault(64), AccessFault::kBounds);
}

TEST_F(Window, RefusesWhatTheRulesForbid) {
  const auto refused = [&](auto change) {
    WindowBind wanted = good();
    change(wanted);
    return !table_.bind(wanted) && fault(kBase + 16) == AccessFault::kInvalidKey &&
           region_.windows == 0;
  };
  EXPECT_TRUE(refused([](WindowBind& w) { w.key = Stag{0x99999902}; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.key = kLkey; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.key = kFirst; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.lkey = kFirst; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.pd = kOtherPd; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.length = 113; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.addr = kBase - 1; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.length = 0; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.access = kAccessLocalWrite; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.access = kAccessMwBind; }));
  region_.access = kAccessMwBind;
  EXPECT_TRUE(refused([](WindowBind& w) { w.access = kAccessRemoteWrite; }));
  EXPECT_TRUE(refused([](WindowBind& w) { w.access = kAccessRemoteAtomic; }));
  region_.access = kAccessLocalWrite;
  EXPECT_TRUE(refused([](WindowBind&) {}));
}

TEST_F(Window, OfType2IsBoundOnceUntilInvalidated) {
  ASSERT_TRUE(table_.bind(good()));
  EXPECT_EQ(region_.windows, 1u);
  WindowBind again = good();
  again.key = Stag{0x12345603};
  EXPECT_FALSE(table_.bind(again));
  EXPECT_FALSE(table_.invalidate(kKey, kPd, kOtherQp));
  EXPECT_FALSE(table_.invalidate(kKey, kOtherPd, kQp));
  EXPECT_FALSE(table_.invalidate(kFirst, kPd, kQp));
  EXPECT_FALSE(table_.invalidate(kLkey, kPd, kQp)) << "a region";
  EXPECT_TRUE(look(kBase + 16));
  EXPECT_TRUE(table_.invalidate(kKey, kPd, kQp));
  EXPECT_FALSE(table_.invalidate(kKey, kPd, kQp));
  EXPECT_EQ(fault(kBase + 16), AccessFault::kInvalidKey);
  EXPECT_EQ(region_.windows, 0u);
  EXPECT_FALSE(table_.bind(good())) << "the same key again";
  EXPECT_TRUE(table_.bind(again));
  EXPECT_TRUE(look(kBase + 16, again.key));
}

TEST_F(Window, LosesItsBindingWithItsQueuePair) {
  ASSERT_TRUE(table_.bind(good()));
  table_.unbind_from(window_, kOtherQp);
  EXPECT_TRUE(look(kBase + 16));
  table_.unbind_from(window_, kQp);
  EXPECT_EQ(fault(kBase + 16), AccessFault::kInvalidKey);
  EXPECT_EQ(region_.windows, 0u);
}

TEST_F(Window, IsGoneWhenRetracted) {
  ASSERT_TRUE(table_.bind(good()));
  table_.retract_window(window_);
  EXPECT_EQ(region_.windows, 0u);
  EXPECT_EQ(fault(kBase + 16), AccessFault::kInvalidKey);
  EXPECT_FALSE(table_.bind(good()));
  Region next;
  next.kind = RegionKind::kWindow2;
  next.pd = kPd;
  EXPECT_TRUE(table_.publish_window(kFirst, next));
  table_.retract_window(next);
}

TEST_F(Window, SharesNoKeyWithARegion) {
  Region other;
  EXPECT_FALSE(table_.publish(Stag{0x12345677}, other));
  EXPECT_FALSE(table_.publish_window(Stag{0x555599}, other));
  EXPECT_TRUE(table_.publish(Stag{0x12345577}, other));
  table_.retract(other);
}

TEST_F(Window1, IsOpenToTheProtectionDomainAndBoundAnew) {
  ASSERT_TRUE(table_.bind(good()));
  EXPECT_TRUE(look(kBase + 16, kKey, kOtherQp));
  EXPECT_FALSE(table_.invalidate(kKey, kPd, kQp));
  WindowBind again = good();
  again.key = Stag{0x12345603};
  again.addr = kBase;
  ASSERT_TRUE(table_.bind(again));
  EXPECT_EQ(region_.windows, 1u);
  EXPECT_EQ(fault(kBase + 16), AccessFault::kInvalidKey);
  EXPECT_EQ(look(kBase, again.key)->data(), bytes_.data());
}

// The access in progress may be that of a thread which waits for this one's processor.
std::optional<Pin> in_progress;

TEST(WindowInUse, WaitsByPausing) {
  MemoryTable table([] { in_progress.reset(); });
  std::array<std::byte, 64> bytes{};
  Region region;
  region.start = bytes.data();
  region.length = bytes.size();
  region.pd = kPd;
  region.access = kAccessMwBind;
  Region window;
  window.kind = RegionKind::kWindow2;
  window.pd = kPd;
  ASSERT_TRUE(table.publish(kLkey, region));
  ASSERT_TRUE(table.publish_window(kFirst, window));
  ASSERT_TRUE(table.bind({.key = kKey,
                          .lkey = kLkey,
                          .length = bytes.size(),
                          .access = kAccessRemoteRead,
                          .pd = kPd,
                          .qpn = kQp}));
  auto pin = table.pin(kKey, kPd, 0, 1, kAccessRemoteRead, kQp);
  ASSERT_TRUE(pin);
  in_progress.emplace(std::move(*pin));
  EXPECT_TRUE(table.invalidate(kKey, kPd, kQp));
  EXPECT_FALSE(in_progress);
}

TEST_F(Window1, IsUnboundByALengthOfZero) {
  ASSERT_TRUE(table_.bind(good()));
  EXPECT_TRUE(table_.bind({.key = Stag{0x12345603}, .lkey = {}, .pd = kPd, .qpn = kQp}));
  EXPECT_EQ(region_.windows, 0u);
  EXPECT_EQ(fault(kBase + 16), AccessFault::kInvalidKey);
  EXPECT_EQ(fault(kBase + 16, Stag{0x12345603}), AccessFault::kInvalidKey);
}

}  // namespace
}  // namespace airdma::model
