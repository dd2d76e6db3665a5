// SPDX-License-Identifier: MIT
#include "base/be.h"

#include <gtest/gtest.h>

#include <cstring>

namespace airdma {
namespace {

struct Layout {
  be8 first;
  be32 word;

  using Top = Field<&Layout::word, 0, 1>;
  using Middle = Field<&Layout::word, 8, 16>;
  using Bottom = Field<&Layout::word, 28, 4>;
  using Whole = Field<&Layout::word, 0, 32>;
};
static_assert(sizeof(Layout) == 5);
static_assert(be64(0x0102030405060708).get() == 0x0102030405060708);
static_assert(be8(0xff).get() == 0xff);

TEST(BigEndian, LiesMostSignificantByteFirst) {
  const be32 value = 0x01020304;
  unsigned char bytes[4];
  std::memcpy(bytes, &value, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bytes[i], i + 1);
}

TEST(BigEndian, IsTheSameAtCompileTimeAndAtRunTime) {
  constexpr be64 constant = 0x8899aabbccddeeff;
  volatile std::uint64_t hidden = 0x8899aabbccddeeff;
  const be64 computed = std::uint64_t{hidden};
  EXPECT_EQ(std::memcmp(&constant, &computed, 8), 0);
  EXPECT_EQ(computed.get(), hidden);
}

TEST(Field, CountsBitsFromTheMostSignificant) {
  Layout layout{};
  Layout::Top::set(layout, 1);
  EXPECT_EQ(layout.word.get(), 0x80000000u);
  Layout::Middle::set(layout, 0xabcd);
  EXPECT_EQ(layout.word.get(), 0x80abcd00u);
  Layout::Bottom::set(layout, 0xff);  // only four bits are kept
  EXPECT_EQ(layout.word.get(), 0x80abcd0fu);
  Layout::Top::set(layout, 0);
  EXPECT_EQ(layout.word.get(), 0x00abcd0fu);
  EXPECT_EQ(Layout::Middle::get(layout), 0xabcdu);
  EXPECT_EQ(Layout::Whole::get(layout), 0x00abcd0fu);
  EXPECT_EQ(layout.first.get(), 0u);
}

}  // namespace
}  // namespace airdma
