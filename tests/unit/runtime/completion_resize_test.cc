// SPDX-License-Identifier: MIT
// Sizes of completion queues: what fits, what is kept, and who may be at work meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <span>
#include <thread>
#include <vector>

#include "runtime/completion_queue.h"

namespace airdma::runtime {
namespace {

class CompletionResizeTest : public testing::Test {
 protected:
  static void complete(CompletionQueue& queue, std::uint64_t id, Qpn qpn = Qpn(1)) {
    ASSERT_TRUE(queue.push({.wr_id = id, .qpn = qpn})) << id;
  }
  static std::vector<std::uint64_t> take_all(CompletionQueue& queue) {
    std::vector<std::uint64_t> ids;
    model::Completion one;
    while (queue.poll(1, &one) == 1) ids.push_back(one.wr_id);
    return ids;
  }
  static int resize(CompletionQueue& queue, std::uint32_t capacity) {
    const Status status = queue.resize(capacity);
    return status ? 0 : status.error().code;
  }
  using Ids = std::vector<std::uint64_t>;
};

TEST_F(CompletionResizeTest, HoldsAsManyAsWereAskedForAndNoMore) {
  for (const std::uint32_t capacity : {1u, 3u, 4u, 5u}) {
    CompletionQueue queue(capacity, nullptr, nullptr);
    for (std::uint32_t i = 0; i < capacity; ++i) complete(queue, i);
    EXPECT_FALSE(queue.push({}));
  }
}

TEST_F(CompletionResizeTest, GrowingAndShrinkingKeepsWhatIsQueued) {
  CompletionQueue queue(3, nullptr, nullptr);
  complete(queue, 0);
  EXPECT_EQ(take_all(queue), Ids({0}));  // so that the entries wrap
  for (std::uint64_t i = 1; i <= 3; ++i) complete(queue, i);
  EXPECT_EQ(resize(queue, 6), 0);
  EXPECT_EQ(queue.capacity(), 6u);
  for (std::uint64_t i = 4; i <= 6; ++i) complete(queue, i);
  EXPECT_EQ(resize(queue, 5), EINVAL);  // it holds 6
  EXPECT_EQ(queue.capacity(), 6u);
  model::Completion out[2];
  EXPECT_EQ(queue.poll(2, out), 2);
  EXPECT_EQ(resize(queue, 4), 0);
  EXPECT_EQ(take_all(queue), Ids({3, 4, 5, 6}));
  EXPECT_EQ(resize(queue, 1), 0);
  complete(queue, 7);
  EXPECT_FALSE(queue.push({}));
}

TEST_F(CompletionResizeTest, PositionsStayWhatTheyWere) {
  CompletionQueue queue(2, nullptr, nullptr);
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  ASSERT_TRUE(queue.push({}, &first));
  ASSERT_TRUE(queue.push({}, &second));
  EXPECT_EQ(resize(queue, 9), 0);
  model::Completion one;
  EXPECT_EQ(queue.poll(1, &one), 1);
  EXPECT_TRUE(queue.seen(first));
  EXPECT_FALSE(queue.seen(second));
}

TEST_F(CompletionResizeTest, TimesMoveWithTheirCompletions) {
  CompletionQueue queue(4, nullptr, nullptr, {.timed = true});
  complete(queue, 0, Qpn(1));
  complete(queue, 1, Qpn(2));
  complete(queue, 2, Qpn(1));
  EXPECT_EQ(resize(queue, 8), 0);
  queue.discard(Qpn(2));
  complete(queue, 3, Qpn(1));
  std::uint64_t last = 0;
  for (const std::uint64_t id : {0u, 2u, 3u}) {
    model::Completion one;
    CompletionTime time;
    ASSERT_EQ(queue.poll(1, &one, &time), 1);
    EXPECT_EQ(one.wr_id, id);
    EXPECT_GE(time.device_ns, last);
    EXPECT_NE(time.wallclock_ns, 0u);
    last = time.device_ns;
  }
  EXPECT_NE(last, 0u);
}

TEST_F(CompletionResizeTest, IgnoredOverrunsGivePlacesBack) {
  CompletionQueue queue(2, nullptr, nullptr, {.ignores_overrun = true});
  std::atomic<std::uint64_t> released{0};
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(queue.push({.wr_id = i}, nullptr, &released));
  }
  EXPECT_EQ(released, 3u);
  EXPECT_EQ(take_all(queue), Ids({3, 4}));
  EXPECT_EQ(released, 5u);
}

TEST_F(CompletionResizeTest, SeveralAtOnceAreTakenAsFarAsThereIsRoom) {
  CompletionQueue queue(3, nullptr, nullptr);
  const model::Completion four[4] = {{.wr_id = 0}, {.wr_id = 1}, {.wr_id = 2}, {.wr_id = 3}};
  std::atomic<std::uint64_t> one{0};
  std::atomic<std::uint64_t> other{0};
  std::uint64_t position = 0;
  EXPECT_EQ(queue.push(std::span(four).first(2), &position, &one), 2u);
  EXPECT_EQ(position, 2u);
  EXPECT_EQ(queue.push(std::span(four).last(2), &position, &other), 1u);
  EXPECT_EQ(position, 3u);
  EXPECT_EQ(take_all(queue), Ids({0, 1, 2}));
  EXPECT_EQ(one, 2u);
  EXPECT_EQ(other, 1u);
}

// Nothing is lost and nothing changes places while the size goes up and down under load.
TEST_F(CompletionResizeTest, WhileOthersPushAndPoll) {
  constexpr std::uint64_t kCount = 20'000;
  CompletionQueue queue(64, nullptr, nullptr);
  std::atomic<std::uint64_t> taken{0};
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kCount; ++i) {
      while (i - taken.load() >= 32) std::this_thread::yield();
      ASSERT_TRUE(queue.push({.wr_id = i}));
    }
  });
  std::thread consumer([&] {
    model::Completion out[8];
    while (taken < kCount) {
      const int got = queue.poll(8, out);
      ASSERT_GE(got, 0);
      for (int i = 0; i < got; ++i) ASSERT_EQ(out[i].wr_id, taken++);
      if (got == 0) std::this_thread::yield();
    }
  });
  for (std::uint32_t turn = 0; taken < kCount; ++turn) {
    EXPECT_EQ(resize(queue, turn % 2 == 0 ? 200 : 33), 0);
  }
  producer.join();
  consumer.join();
}

}  // namespace
}  // namespace airdma::runtime
