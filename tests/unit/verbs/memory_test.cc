// SPDX-License-Identifier: MIT
#include <sys/mman.h>

#include <cerrno>
#include <set>
#include <thread>

#include "tests/support/lone_pages.h"
#include "tests/unit/verbs/fixture.h"

namespace airdma::verbs {
namespace {

class MemoryTest : public VerbsTest {
 protected:
  /// errno of a registration, which is undone.
  int try_register(void* addr, std::size_t length, unsigned access) {
    const auto mr = reg_mr(pd_, addr, length, static_cast<int>(access));
    if (!mr) return error_of(mr);
    return error_of(dereg_mr(*mr));
  }

  alignas(4096) std::byte buffer_[8192]{};
};

/// Anonymous pages that end with the test.
struct Pages {
  explicit Pages(std::size_t size, int protection = PROT_READ | PROT_WRITE)
      : bytes(size), start(test::map_lone_pages(size, protection)) {}
  ~Pages() { ::munmap(start, bytes); }
  std::size_t bytes;
  std::byte* start;
};

TEST_F(MemoryTest, RemoteChangesNeedLocalWrite) {
  for (unsigned access = 0; access < 32; ++access) {
    const bool changes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    const bool good = !changes || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
    EXPECT_EQ(try_register(buffer_, sizeof buffer_, access), good ? 0 : EINVAL) << access;
  }
}

TEST_F(MemoryTest, OptionalBitsAreIgnoredAndUnknownOnesRefused) {
  for (unsigned bit = 20; bit <= 29; ++bit) {
    EXPECT_EQ(try_register(buffer_, 64, 1u << bit | 1), 0) << bit;
  }
  for (const unsigned bit : {8u, 15u, 19u, 30u, 31u}) {
    EXPECT_EQ(try_register(buffer_, 64, 1u << bit | 1), EINVAL) << bit;
  }
  EXPECT_EQ(try_register(buffer_, 64, IBV_ACCESS_HUGETLB | 1), 0);
}

TEST_F(MemoryTest, Fields) {
  ibv_mr* mr = *reg_mr(pd_, buffer_, 4096, 0);
  EXPECT_EQ(mr->pd, pd_);
  EXPECT_EQ(mr->context, context_);
  EXPECT_EQ(mr->addr, buffer_);
  EXPECT_EQ(mr->length, 4096u);
  EXPECT_EQ(mr->lkey, mr->rkey);
  EXPECT_NE(mr->lkey, 0u);
  EXPECT_EQ(error_of(dereg_mr(mr)), 0);
  EXPECT_EQ(error_of(dereg_mr(mr)), EINVAL);
}

TEST_F(MemoryTest, KeysAreAllDifferent) {
  std::set<std::uint32_t> keys;
  for (int i = 0; i < 500; ++i) {
    ibv_mr* mr = *reg_mr(pd_, buffer_, 64, 0);
    EXPECT_TRUE(keys.insert(mr->lkey).second);
    if (i % 2 == 0) {
      EXPECT_EQ(error_of(dereg_mr(mr)), 0);
    }
  }
}

TEST_F(MemoryTest, RangesThatAreNotThere) {
  const auto top = reinterpret_cast<void*>(~std::uintptr_t{0} - 100);
  EXPECT_EQ(try_register(top, 4096, 0), EINVAL);  // wraps
  EXPECT_EQ(try_register(buffer_, ~std::size_t{0}, 0), EINVAL);
  EXPECT_EQ(try_register(reinterpret_cast<void*>(0xffff800000000000), 64, 0), EFAULT);
  EXPECT_EQ(try_register(nullptr, 64, 0), EFAULT);
  EXPECT_EQ(try_register(buffer_, 0, 0), 0);  // nothing can be reached through it
}

TEST_F(MemoryTest, HolesAreFoundInSmallAndLargeRanges) {
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{64} << 20}) {
    Pages pages(bytes);
    EXPECT_EQ(try_register(pages.start, bytes, 1), 0) << bytes;
    ASSERT_EQ(::munmap(pages.start + bytes / 2, 4096), 0);
    EXPECT_EQ(try_register(pages.start, bytes, 1), EFAULT) << bytes;
    EXPECT_EQ(try_register(pages.start, bytes / 2, 1), 0) << bytes;
    EXPECT_EQ(try_register(pages.start + bytes / 2 + 4096, bytes / 2 - 4096, 1), 0) << bytes;
  }
}

TEST_F(MemoryTest, ProtectionsAreRespected) {
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{64} << 20}) {
    Pages readable(bytes, PROT_READ);
    EXPECT_EQ(try_register(readable.start, bytes, 0), 0) << bytes;
    EXPECT_EQ(try_register(readable.start, bytes, IBV_ACCESS_LOCAL_WRITE), EFAULT) << bytes;
    Pages nothing(bytes, PROT_NONE);
    EXPECT_EQ(try_register(nothing.start, bytes, 0), EFAULT) << bytes;
    Pages mixed(bytes);
    ASSERT_EQ(::mprotect(mixed.start + bytes - 4096, 4096, PROT_READ), 0);
    EXPECT_EQ(try_register(mixed.start, bytes, IBV_ACCESS_LOCAL_WRITE), EFAULT) << bytes;
    EXPECT_EQ(try_register(mixed.start, bytes, 0), 0) << bytes;
  }
}

TEST_F(MemoryTest, LargeRangesStayUnpopulated) {
  Pages pages(std::size_t{64} << 20);
  EXPECT_EQ(try_register(pages.start, pages.bytes, 1), 0);
  unsigned char resident = 1;
  ASSERT_EQ(::mincore(pages.start + pages.bytes / 2, 4096, &resident), 0);
  EXPECT_EQ(resident & 1, 0);
}

TEST_F(MemoryTest, RegisteringDoesNotChangeTheContents) {
  std::memset(buffer_, 0x5a, sizeof buffer_);
  EXPECT_EQ(try_register(buffer_, sizeof buffer_, IBV_ACCESS_LOCAL_WRITE), 0);
  for (const std::byte byte : buffer_) ASSERT_EQ(byte, std::byte{0x5a});
}

TEST_F(MemoryTest, PeersAddressRegionsByIova) {
  const PdId pd = find_object(pd_)->id;
  ibv_mr* mr = *reg_mr_iova(pd_, buffer_, 4096, 0x10000, 1);
  EXPECT_EQ(mr->addr, buffer_);
  auto pin = state().memory.pin(Stag(mr->lkey), pd, 0x10004, 8, 0);
  ASSERT_TRUE(pin);
  EXPECT_EQ(pin->data(), buffer_ + 4);
  EXPECT_FALSE(
      state().memory.pin(Stag(mr->lkey), pd, reinterpret_cast<std::uintptr_t>(buffer_), 8, 0));
  *pin = model::Pin{};
  EXPECT_EQ(error_of(reg_mr_iova(pd_, buffer_ + 1, 64, 0x10000, 1)), EINVAL);
  ibv_mr* zero = *reg_mr(pd_, buffer_ + 8, 64, IBV_ACCESS_ZERO_BASED | 1);
  EXPECT_EQ(state().memory.pin(Stag(zero->lkey), pd, 2, 8, 0)->data(), buffer_ + 10);
  ibv_mr* optional = *reg_mr_iova2(pd_, buffer_, 64, 0, IBV_ACCESS_RELAXED_ORDERING);
  EXPECT_EQ(state().memory.pin(Stag(optional->lkey), pd, 0, 8, 0)->data(), buffer_);
}

TEST_F(MemoryTest, DeregistrationWaitsForAccessesInProgress) {
  ibv_mr* mr = *reg_mr(pd_, buffer_, 4096, 1);
  model::Region* region = find_object(mr)->region;
  const PdId pd = find_object(pd_)->id;
  const auto addr = reinterpret_cast<std::uintptr_t>(buffer_);
  const Stag key(mr->lkey);
  auto pin = state().memory.pin(key, pd, addr, 8, 0);
  ASSERT_TRUE(pin);
  std::atomic<bool> released{false};
  bool released_before_return = false;
  std::thread other([&] {
    EXPECT_EQ(error_of(dereg_mr(mr)), 0);
    released_before_return = released;
  });
  while (region->key.load() != 0) std::this_thread::yield();
  EXPECT_FALSE(state().memory.pin(key, pd, addr, 8, 0));
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EBUSY);
  released = true;
  *pin = model::Pin{};
  other.join();
  EXPECT_TRUE(released_before_return);
}

TEST_F(MemoryTest, ReregistrationChangesWhatItIsAskedTo) {
  const auto addr = reinterpret_cast<std::uintptr_t>(buffer_);
  ibv_mr* mr = *reg_mr(pd_, buffer_, 64, 0);
  const Stag key(mr->lkey);
  const auto may = [&](ibv_pd* pd, std::size_t offset, model::AccessMask access) {
    return state().memory.pin(key, find_object(pd)->id, addr + offset, 1, access).has_value();
  };
  EXPECT_FALSE(may(pd_, 64, 0));
  ASSERT_EQ(error_of(rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer_, 128, 0)), 0);
  EXPECT_EQ(mr->length, 128u);
  EXPECT_TRUE(may(pd_, 127, 0));
  EXPECT_FALSE(may(pd_, 0, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_EQ(error_of(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                              IBV_ACCESS_LOCAL_WRITE)),
            0);
  EXPECT_TRUE(may(pd_, 127, IBV_ACCESS_LOCAL_WRITE));
  ibv_pd* other = *alloc_pd(context_);
  ASSERT_EQ(error_of(rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0)), 0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_TRUE(may(other, 0, 0));
  EXPECT_FALSE(may(pd_, 0, 0));
  EXPECT_EQ(error_of(dealloc_pd(other)), EBUSY);
  constexpr int kAll =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  ASSERT_EQ(error_of(rereg_mr(mr, kAll, pd_, buffer_ + 64, 64, IBV_ACCESS_REMOTE_READ)), 0);
  EXPECT_TRUE(may(pd_, 64, IBV_ACCESS_REMOTE_READ));
  EXPECT_FALSE(may(pd_, 63, 0));
  EXPECT_EQ(error_of(dealloc_pd(other)), 0);
}

TEST_F(MemoryTest, RefusedReregistrationChangesNothing) {
  ibv_mr* mr = *reg_mr(pd_, buffer_, 64, IBV_ACCESS_REMOTE_READ);
  const auto refused = [&](int flags, ibv_pd* pd, void* addr, std::size_t length, int access) {
    return error_of(rereg_mr(mr, flags, pd, addr, length, access));
  };
  Pages nothing(4096, PROT_NONE);
  EXPECT_EQ(refused(0, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(refused(1 << 6, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer_, 0, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 64, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nothing.start, 64, 0), EFAULT);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer_, 64, 1), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1 << 15), EINVAL);
  EXPECT_EQ(mr->length, 64u);
  EXPECT_TRUE(state().memory.pin(Stag(mr->lkey), find_object(pd_)->id,
                                 reinterpret_cast<std::uintptr_t>(buffer_), 64,
                                 IBV_ACCESS_REMOTE_READ));
}

TEST_F(MemoryTest, PdIsBusyWithARegion) {
  ibv_mr* mr = *reg_mr(pd_, buffer_, 64, 0);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EBUSY);
  EXPECT_EQ(error_of(dereg_mr(mr)), 0);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), 0);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EINVAL);
  EXPECT_EQ(error_of(reg_mr(pd_, buffer_, 64, 0)), EINVAL);
}

}  // namespace
}  // namespace airdma::verbs
