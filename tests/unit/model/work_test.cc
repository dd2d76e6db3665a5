// SPDX-License-Identifier: MIT
#include "model/work.h"

#include <gtest/gtest.h>

#include <thread>

namespace airdma::model {
namespace {

TEST(WorkRing, HoldsAsMuchAsItsDepth) {
  SendQueue queue(3, 2, 8);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.free_slots(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) queue.slot(i).wr_id = i;
  EXPECT_TRUE(queue.empty()) << "nothing is published";
  queue.publish(3);
  EXPECT_EQ(queue.free_slots(), 0u);
  EXPECT_EQ(queue.at(queue.head() + 2).wr_id, 2u);
  queue.retire();
  EXPECT_EQ(queue.free_slots(), 1u);
  EXPECT_EQ(queue.head(), 1u);
}

TEST(WorkRing, DepthsThatAreNoPowerOfTwoWrapWithTheirStorage) {
  SendQueue queue(3, 1, 4);
  for (std::uint64_t i = 0; i < 20; ++i) {
    SendWqe& wqe = queue.slot(0);
    wqe.sges[0].addr = i;
    wqe.inline_data[3] = static_cast<std::byte>(i);
    queue.publish(1);
    if (i >= 2) {
      EXPECT_EQ(queue.free_slots(), 0u);
      EXPECT_EQ(queue.at(queue.head()).sges[0].addr, i - 2);
      EXPECT_EQ(queue.at(queue.head()).inline_data[3], static_cast<std::byte>(i - 2));
      queue.retire();
    }
  }
}

TEST(WorkRing, EachSlotHasItsOwnStorage) {
  SendQueue queue(4, 2, 8);
  for (std::uint32_t i = 0; i < 4; ++i) {
    SendWqe& wqe = queue.slot(i);
    wqe.sges[0].addr = wqe.sges[1].addr = i;
    for (int byte = 0; byte < 8; ++byte) wqe.inline_data[byte] = static_cast<std::byte>(i);
  }
  queue.publish(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(queue.at(i).sges[0].addr, i);
    EXPECT_EQ(queue.at(i).sges[1].addr, i);
    EXPECT_EQ(queue.at(i).inline_data[7], static_cast<std::byte>(i));
  }
}

TEST(WorkRing, ASlotStartsEmptyWheneverItIsUsed) {
  ReceiveQueue queue(1, 1, 0);
  queue.slot(0).length = 9;
  queue.publish(1);
  queue.retire();
  EXPECT_EQ(queue.slot(0).length, 0u);
  EXPECT_EQ(queue.slot(0).sge_count, 0u);
}

TEST(WorkRing, ResetForgets) {
  ReceiveQueue queue(2, 1, 0);
  queue.publish(2);
  queue.retire();
  queue.reset();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.free_slots(), 2u);
}

TEST(WorkRing, ProducerAndConsumerNeedNoLock) {
  constexpr std::uint64_t kCount = 20000;
  SendQueue queue(7, 1, 0);
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (queue.free_slots() == 0) {
        std::this_thread::yield();
        continue;
      }
      SendWqe& wqe = queue.slot(0);
      wqe.wr_id = i;
      wqe.sges[0].addr = ~i;
      queue.publish(1);
      ++i;
    }
  });
  for (std::uint64_t i = 0; i < kCount;) {
    if (queue.empty()) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(queue.at(queue.head()).wr_id, i);
    ASSERT_EQ(queue.at(queue.head()).sges[0].addr, ~i);
    queue.retire();
    ++i;
  }
  producer.join();
}

}  // namespace
}  // namespace airdma::model
