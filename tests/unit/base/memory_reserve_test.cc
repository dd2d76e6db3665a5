// SPDX-License-Identifier: MIT
#include "base/memory_reserve.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace airdma {
namespace {

TEST(MemoryReserve, GivesPiecesThatDoNotOverlap) {
  MemoryReserve& reserve = MemoryReserve::instance();
  const std::size_t before = reserve.used();
  std::vector<void*> pieces;
  for (std::size_t bytes = 1; bytes <= 1000; bytes += 37) {
    void* piece = reserve.take(bytes);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % MemoryReserve::kGrain, 0u);
    std::memset(piece, static_cast<int>(bytes), bytes);
    pieces.push_back(piece);
  }
  std::size_t bytes = 1;
  for (void* piece : pieces) {
    const auto* data = static_cast<unsigned char*>(piece);
    EXPECT_EQ(data[0], bytes % 256);
    EXPECT_EQ(data[bytes - 1], bytes % 256);
    bytes += 37;
  }
  for (void* piece : pieces) EXPECT_TRUE(reserve.give_back(piece));
  EXPECT_EQ(reserve.used(), before);
}

TEST(MemoryReserve, IsUsedUpAndUsableAgain) {
  MemoryReserve& reserve = MemoryReserve::instance();
  EXPECT_EQ(reserve.take(MemoryReserve::kBytes), nullptr);
  std::vector<void*> pieces;
  while (void* piece = reserve.take(4096)) pieces.push_back(piece);
  EXPECT_EQ(pieces.size(), MemoryReserve::kBytes / 4096);
  EXPECT_EQ(reserve.take(1), nullptr);
  // Two neighbours make room for one of their size together.
  EXPECT_TRUE(reserve.give_back(pieces[3]));
  EXPECT_TRUE(reserve.give_back(pieces[4]));
  EXPECT_EQ(reserve.take(8193), nullptr);
  pieces[3] = reserve.take(8192);
  ASSERT_NE(pieces[3], nullptr);
  pieces.erase(pieces.begin() + 4);
  for (void* piece : pieces) EXPECT_TRUE(reserve.give_back(piece));
  EXPECT_EQ(reserve.used(), 0u);
}

TEST(MemoryReserve, KnowsItsOwnMemory) {
  int here = 0;
  EXPECT_FALSE(MemoryReserve::instance().give_back(&here));
  EXPECT_FALSE(MemoryReserve::instance().give_back(nullptr));
}

TEST(MemoryReserve, ScopesNest) {
  EXPECT_FALSE(memory_may_run_out);
  {
    const MayRunOut outer;
    EXPECT_TRUE(memory_may_run_out);
    {
      const MustNotRunOut inner;
      EXPECT_FALSE(memory_may_run_out);
    }
    EXPECT_TRUE(memory_may_run_out);
  }
  EXPECT_FALSE(memory_may_run_out);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/// No more address space for as long as it lives: what malloc() holds already is used up.
class NoMemory {
 public:
  NoMemory() {
    ::getrlimit(RLIMIT_AS, &former_);
    rlimit none = former_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_AS, &none);
    for (std::size_t bytes = std::size_t{1} << 20; bytes >= 16; bytes /= 2) {
      while (void* piece = std::malloc(bytes)) {
        *static_cast<void**>(piece) = taken_;
        taken_ = piece;
      }
    }
  }
  ~NoMemory() {
    ::setrlimit(RLIMIT_AS, &former_);
    while (taken_ != nullptr) std::free(std::exchange(taken_, *static_cast<void**>(taken_)));
  }

 private:
  rlimit former_{};
  void* taken_ = nullptr;
};

TEST(MemoryReserve, IsBehindOperatorNew) {
  int* kept = nullptr;
  int* tried = nullptr;
  int* refused = nullptr;
  bool thrown = false;
  {
    const NoMemory none;
    kept = new int(5);
    tried = new (std::nothrow) int(6);
    const MayRunOut may;
    refused = new (std::nothrow) int(7);
    try {
      ::operator delete(::operator new(8));  // a new-expression could be optimized away
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
  }
  EXPECT_GT(MemoryReserve::instance().used(), 0u);
  EXPECT_EQ(*kept, 5);
  EXPECT_EQ(*tried, 6);
  EXPECT_EQ(refused, nullptr);
  EXPECT_TRUE(thrown);
  delete kept;
  delete tried;
  EXPECT_EQ(MemoryReserve::instance().used(), 0u);
}

#endif

}  // namespace
}  // namespace airdma
