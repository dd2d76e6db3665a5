// SPDX-License-Identifier: MIT
#include "runtime/backlog.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "io/fault_handler.h"
#include "tests/support/lone_pages.h"

namespace airdma::runtime {
namespace {

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return made;
}

/// Takes everything out, `step` bytes at a time.
std::vector<std::byte> drain(Backlog& backlog, std::size_t step) {
  std::vector<std::byte> out;
  while (!backlog.empty()) {
    const Bytes piece = backlog.front().first(std::min(step, backlog.front().size()));
    out.insert(out.end(), piece.begin(), piece.end());
    backlog.use(piece.size());
  }
  return out;
}

TEST(Backlog, GivesBackWhatWasAppendedInOrder) {
  const auto first = pattern(100, 1);
  const auto second = pattern(IoBuffer::kSize * 2, 2);
  auto both = first;
  both.insert(both.end(), second.begin(), second.end());
  for (const std::size_t step : {std::size_t{65521}, IoBuffer::kSize, both.size()}) {
    Backlog backlog;
    ASSERT_TRUE(backlog.append(first));
    ASSERT_TRUE(backlog.append(second));
    EXPECT_EQ(drain(backlog, step), both);
    EXPECT_TRUE(backlog.empty());
  }
}

TEST(Backlog, MovesWithWhatIsLeft) {
  const auto bytes = pattern(IoBuffer::kSize + 5, 3);
  Backlog backlog;
  ASSERT_TRUE(backlog.append(bytes));
  backlog.use(7);
  Backlog other(std::move(backlog));
  EXPECT_TRUE(backlog.empty());  // NOLINT(bugprone-use-after-move): it says so
  EXPECT_EQ(drain(other, 1000), std::vector(bytes.begin() + 7, bytes.end()));
}

TEST(Backlog, AdoptsABuffer) {
  IoBuffer buffer = IoBuffer::borrow();
  ASSERT_TRUE(buffer);
  buffer.bytes()[10] = std::byte{42};
  Backlog backlog;
  backlog.adopt(std::move(buffer), 10, 11);
  EXPECT_EQ(drain(backlog, 1), std::vector(1, std::byte{42}));
}

TEST(Backlog, HoldsNoMoreThanItsBuffers) {
  Backlog backlog;
  const auto bytes = pattern(IoBuffer::kSize, 4);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(backlog.append(bytes));
  EXPECT_FALSE(backlog.append(Bytes(bytes).first(1)));
  backlog.clear();
  EXPECT_TRUE(backlog.append(bytes));
}

TEST(Backlog, SaysWhenTheMemoryIsGone) {
  io::watch_faults();
  constexpr std::size_t kPage = 4096;
  std::byte* const pages = test::map_lone_pages(2 * kPage, PROT_READ);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::munmap(pages + kPage, kPage), 0);
  Backlog backlog;
  EXPECT_TRUE(backlog.append({pages, kPage}));
  EXPECT_FALSE(backlog.append({pages, 2 * kPage}));
  ::munmap(pages, kPage);
}

}  // namespace
}  // namespace airdma::runtime
