// SPDX-License-Identifier: MIT
// The table of keys: which accesses pass, what deregistration promises, and that neither many keys
// nor endless registering wears it out.
#include "model/memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace airdma::model {
namespace {

constexpr PdId kPd{1};
constexpr AccessMask kBoth = kAccessLocalWrite | kAccessRemoteWrite;

struct Registered {
  explicit Registered(AccessMask access = kBoth, std::uint64_t start = 0x1000)
      : memory(100), base(start) {
    region.start = memory.data();
    region.base = start;
    region.length = memory.size();
    region.pd = kPd;
    region.access = access;
  }
  std::vector<std::byte> memory;
  std::uint64_t base;
  Region region;
};

AccessFault fault(const MemoryTable& table, Stag key, PdId pd, std::uint64_t addr,
                  std::uint64_t length, AccessMask needed) {
  const auto pin = table.pin(key, pd, addr, length, needed);
  EXPECT_FALSE(pin);
  return pin ? AccessFault::kInvalidKey : pin.error();
}

TEST(MemoryTable, GivesTheBytesThatWereAskedFor) {
  MemoryTable table;
  Registered r;
  ASSERT_TRUE(table.publish(Stag{5}, r.region));
  const auto pin = table.pin(Stag{5}, kPd, r.base + 10, 90, kAccessRemoteWrite);
  ASSERT_TRUE(pin);
  EXPECT_EQ(pin->data(), r.memory.data() + 10);
}

// Many accesses under one pin, each checked like the first.
TEST(MemoryTable, KeepsARegionForAccessesInARow) {
  MemoryTable table;
  Registered r(kAccessLocalWrite);
  Registered other(kAccessLocalWrite, 0x9000);
  ASSERT_TRUE(table.publish(Stag{5}, r.region));
  ASSERT_TRUE(table.publish(Stag{6}, other.region));
  Pin held;
  {
    const PinScope scope(held);
    const auto at = [&](Stag key, std::uint64_t addr, std::uint64_t length, PdId pd = kPd,
                        AccessMask needed = kAccessLocalWrite) {
      return table.access(held, key, pd, addr, length, needed);
    };
    EXPECT_EQ(at(Stag{5}, r.base + 10, 90).value(), r.memory.data() + 10);
    EXPECT_EQ(at(Stag{5}, r.base + 20, 1).value(), r.memory.data() + 20);
    EXPECT_EQ(r.region.pins, 1u);
    EXPECT_EQ(at(Stag{5}, r.base + 20, 81).error(), AccessFault::kBounds);
    EXPECT_EQ(at(Stag{5}, r.base, 1, PdId{2}).error(), AccessFault::kOtherPd);
    EXPECT_EQ(at(Stag{5}, r.base, 1, kPd, kAccessRemoteRead).error(), AccessFault::kDenied);
    EXPECT_EQ(at(Stag{6}, other.base, 1).value(), other.memory.data());
    EXPECT_TRUE(MemoryTable::idle(r.region));
    table.retract(other.region);
    EXPECT_EQ(at(Stag{6}, other.base, 1).error(), AccessFault::kInvalidKey);
  }
  EXPECT_TRUE(MemoryTable::idle(other.region));
}

TEST(MemoryTable, RefusesInTheOrderOfTheRules) {
  MemoryTable table;
  Registered r;
  ASSERT_TRUE(table.publish(Stag{5}, r.region));
  constexpr PdId kOther{2};
  const std::uint64_t far = r.base + 1000;
  EXPECT_EQ(fault(table, Stag{6}, kOther, far, 1, kAccessRemoteRead), AccessFault::kInvalidKey);
  EXPECT_EQ(fault(table, Stag{5}, kOther, far, 1, kAccessRemoteRead), AccessFault::kOtherPd);
  EXPECT_EQ(fault(table, Stag{5}, kPd, far, 1, kAccessRemoteRead), AccessFault::kDenied);
  EXPECT_EQ(fault(table, Stag{5}, kPd, far, 1, kAccessRemoteWrite), AccessFault::kBounds);
  EXPECT_EQ(fault(table, Stag{5}, kPd, r.base, 101, 0), AccessFault::kBounds);
  EXPECT_EQ(fault(table, Stag{5}, kPd, r.base - 1, 1, 0), AccessFault::kBounds);
  EXPECT_EQ(fault(table, Stag{5}, kPd, r.base + 1, ~std::uint64_t{0}, 0), AccessFault::kBounds);
  EXPECT_TRUE(MemoryTable::idle(r.region)) << "a refused access leaves no pin";
}

TEST(MemoryTable, ARegionMayEndWithTheAddressSpace) {
  MemoryTable table;
  Registered r(kBoth, ~std::uint64_t{0} - 99);
  ASSERT_TRUE(table.publish(Stag{5}, r.region));
  EXPECT_TRUE(table.pin(Stag{5}, kPd, r.base + 99, 1, 0));
  EXPECT_EQ(fault(table, Stag{5}, kPd, r.base + 99, 2, 0), AccessFault::kBounds);
}

TEST(MemoryTable, NothingIsCheckedForNoBytes) {
  const MemoryTable table;
  const auto pin = table.pin(Stag{77}, kPd, 1, 0, kAccessRemoteRead);
  ASSERT_TRUE(pin);
  EXPECT_EQ(pin->data(), nullptr);
}

TEST(MemoryTable, AKeyIsTakenOnceAndSomeAreNone) {
  MemoryTable table;
  Registered a, b;
  EXPECT_FALSE(table.publish(Stag{0}, a.region));
  EXPECT_FALSE(table.publish(Stag{~0u}, a.region));
  EXPECT_TRUE(table.publish(Stag{5}, a.region));
  EXPECT_FALSE(table.publish(Stag{5}, b.region));
  table.retract(a.region);
  EXPECT_TRUE(table.publish(Stag{5}, b.region));
}

TEST(MemoryTable, ARegionIsBusyWhileAPinLives) {
  MemoryTable table;
  Registered r;
  ASSERT_TRUE(table.publish(Stag{5}, r.region));
  {
    auto pin = table.pin(Stag{5}, kPd, r.base, 1, 0);
    ASSERT_TRUE(pin);
    Pin moved = std::move(*pin);
    table.retract(r.region);
    EXPECT_FALSE(MemoryTable::idle(r.region));
    EXPECT_EQ(fault(table, Stag{5}, kPd, r.base, 1, 0), AccessFault::kInvalidKey);
  }
  EXPECT_TRUE(MemoryTable::idle(r.region));
}

TEST(MemoryTable, ManyKeysComeAndGo) {
  MemoryTable table;
  std::vector<std::unique_ptr<Registered>> regions;
  for (std::uint32_t key = 1; key <= 3000; ++key) {
    regions.push_back(std::make_unique<Registered>());
    ASSERT_TRUE(table.publish(Stag{key * 64}, regions.back()->region));
  }
  for (std::uint32_t key = 1; key <= 3000; key += 2) table.retract(regions[key - 1]->region);
  for (std::uint32_t key = 1; key <= 3000; ++key) {
    EXPECT_EQ(table.pin(Stag{key * 64}, kPd, 0x1000, 1, 0).has_value(), key % 2 == 0) << key;
  }
  for (std::uint32_t round = 0; round < 100000; ++round) {
    ASSERT_TRUE(table.publish(Stag{0x80000000 + round * 7}, regions[0]->region));
    table.retract(regions[0]->region);
  }
  EXPECT_TRUE(table.pin(Stag{128}, kPd, 0x1000, 1, 0));
}

// Outgrown tables stay, because a late reader may hold one: growing for tombstones alone would add
// up in a program that registers every buffer anew.
TEST(MemoryTable, RegisteringAnewForEverDoesNotGrowIt) {
  constexpr std::size_t kLive = 200;
  MemoryTable table;
  std::vector<std::unique_ptr<Registered>> regions;
  std::mt19937 random(7);  // NOLINT: the same keys in every run
  const auto publish = [&](Region& region) {
    while (!table.publish(Stag{static_cast<std::uint32_t>(random())}, region)) {
    }
  };
  for (std::size_t i = 0; i < kLive; ++i) {
    regions.push_back(std::make_unique<Registered>());
    publish(regions.back()->region);
  }
  for (int round = 0; round < 300000; ++round) {
    Region& region = regions[random() % kLive]->region;
    table.retract(region);
    publish(region);
  }
  EXPECT_LE(table.total_slots(), 32 * kLive);
}

// A reader never sees memory after its owner was told that nobody uses it.
TEST(MemoryTable, WaitingForIdleIsEnough) {
  MemoryTable table;
  Registered r;
  std::atomic<bool> stop{false};
  std::atomic<bool> valid{false};
  std::atomic<std::uint64_t> passed{0};
  std::thread reader([&] {
    while (!stop.load()) {
      const auto pin = table.pin(Stag{5}, kPd, r.base, 1, 0);
      if (!pin) continue;
      EXPECT_TRUE(valid.load());
      passed.fetch_add(1);
    }
  });
  for (int round = 0; round < 300; ++round) {
    valid.store(true);
    EXPECT_TRUE(table.publish(Stag{5}, r.region));
    const std::uint64_t before = passed.load();
    for (int i = 0; i < 1000 && passed.load() == before; ++i) std::this_thread::yield();
    table.retract(r.region);
    while (!MemoryTable::idle(r.region)) std::this_thread::yield();
    valid.store(false);
  }
  stop.store(true);
  reader.join();
}

}  // namespace
}  // namespace airdma::model
