// SPDX-License-Identifier: MIT
#include "runtime/io_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace airdma::runtime {
namespace {

constexpr std::size_t kLongestFpdu = 65536 + 64;

void put(InputBuffer& input, std::byte value, std::size_t count) {
  const MutableBytes room = input.room();
  ASSERT_GE(room.size(), count);
  std::ranges::fill(room.first(count), value);
  (void)input.add(count);
}

TEST(InputBuffer, KeepsWhatIsNotUsedInFrontOfWhatComes) {
  InputBuffer input;
  ASSERT_TRUE(input.open());
  put(input, std::byte{1}, 100);
  input.use(60);
  put(input, std::byte{2}, 10);
  ASSERT_EQ(input.held(), 50u);
  EXPECT_EQ(input.content()[39], std::byte{1});
  EXPECT_EQ(input.content()[40], std::byte{2});
}

TEST(InputBuffer, AlwaysHasRoomForTheRestOfAnFpdu) {
  InputBuffer input;
  ASSERT_TRUE(input.open());
  for (int i = 0; i < 1000; ++i) {
    const auto value = static_cast<std::byte>(i);
    std::size_t rest = kLongestFpdu;
    while (rest != 0) {  // arrives in pieces of any size
      ASSERT_FALSE(input.room().empty());
      const std::size_t piece = std::min({rest, input.room().size(), std::size_t{40'000}});
      put(input, value, piece);
      rest -= piece;
    }
    ASSERT_EQ(input.held(), kLongestFpdu);
    EXPECT_EQ(input.content().front(), value);
    EXPECT_EQ(input.content().back(), value);
    input.use(kLongestFpdu);
  }
}

TEST(InputBuffer, RestsWithoutMemoryWhenEmpty) {
  InputBuffer input;
  ASSERT_TRUE(input.open());
  put(input, std::byte{1}, 10);
  input.use(10);
  EXPECT_TRUE(input.rest());
  EXPECT_FALSE(input.is_open());
}

TEST(InputBuffer, OnlySoManyRestWithSomethingInThem) {
  std::vector<InputBuffer> inputs(100);
  std::size_t resting = 0;
  for (InputBuffer& input : inputs) {
    ASSERT_TRUE(input.open());
    put(input, std::byte{1}, 10);
    resting += input.rest() ? 1 : 0;
  }
  EXPECT_GT(resting, 0u);
  EXPECT_LT(resting, 50u);
  inputs.clear();
  InputBuffer again;
  ASSERT_TRUE(again.open());
  put(again, std::byte{1}, 10);
  EXPECT_TRUE(again.rest());
}

}  // namespace
}  // namespace airdma::runtime
