// SPDX-License-Identifier: MIT
// Regions that are not simply the program's memory: device memory, none, a descriptor's, memory on
// demand. What can be asked for, and traffic through each.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <thread>

#include "tests/support/lone_pages.h"
#include "tests/unit/verbs/cm_fixture.h"
#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr unsigned kDmAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;

class DeviceMemoryTest : public VerbsTest {
 protected:
  Result<ibv_dm*> alloc(std::size_t length, std::uint32_t log_align = 0, std::uint32_t mask = 0) {
    ibv_alloc_dm_attr attr{length, log_align, mask};
    return alloc_dm(context_, &attr);
  }
};

TEST_F(DeviceMemoryTest, SizesAndMasks) {
  ibv_device_attr_ex attr{};
  ASSERT_TRUE(query_device_ex(context_, nullptr, &attr, sizeof attr));
  EXPECT_EQ(attr.max_dm_size, kMaxDeviceMemory);
  EXPECT_EQ(error_of(alloc(attr.max_dm_size + 1)), ENOMEM);
  EXPECT_EQ(error_of(alloc(0)), EINVAL);
  EXPECT_EQ(error_of(alloc(64, 0, 1)), EINVAL);
  EXPECT_EQ(error_of(alloc(64, 13)), EINVAL);
  EXPECT_EQ(error_of(alloc_dm(context_, nullptr)), EINVAL);
  ibv_dm* most = *alloc(attr.max_dm_size, 12);
  EXPECT_EQ(error_of(alloc(1)), ENOMEM);
  EXPECT_EQ(error_of(free_dm(most)), 0);
  EXPECT_EQ(error_of(free_dm(most)), EINVAL);
  EXPECT_EQ(error_of(alloc(1)), 0);  // ends with the context
}

TEST_F(DeviceMemoryTest, CopiesWordsWithinBounds) {
  ibv_dm* dm = *alloc(100);
  char in[100];
  std::iota(in, in + sizeof in, char{1});
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, in, sizeof in), 0);
  char out[48] = {};
  EXPECT_EQ(ibv_memcpy_from_dm(out, dm, 52, sizeof out), 0);
  EXPECT_EQ(std::memcmp(out, in + 52, sizeof out), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 56, in, 48), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 3, in, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(out, dm, 4, 3), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(out, dm, ~std::uint64_t{3}, 8), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(nullptr, dm, 0, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(nullptr, dm, 0, 0), 0);
}

TEST_F(DeviceMemoryTest, IsKeptByItsRegions) {
  ibv_dm* dm = *alloc(100);
  EXPECT_EQ(error_of(reg_dm_mr(pd_, dm, 4, 100, kDmAccess)), EINVAL);
  EXPECT_EQ(error_of(reg_dm_mr(pd_, dm, 0, 100, IBV_ACCESS_LOCAL_WRITE)), EINVAL);
  EXPECT_EQ(error_of(reg_dm_mr(pd_, dm, 0, 100, kDmAccess | IBV_ACCESS_ON_DEMAND)), EINVAL);
  EXPECT_EQ(error_of(reg_dm_mr(pd_, nullptr, 0, 100, kDmAccess)), EINVAL);
  ibv_mr* mr = *reg_dm_mr(pd_, dm, 4, 96, kDmAccess);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 96u);
  EXPECT_EQ(error_of(free_dm(dm)), EBUSY);
  EXPECT_EQ(error_of(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1)), EINVAL);
  EXPECT_EQ(error_of(dereg_mr(mr)), 0);
  EXPECT_EQ(error_of(free_dm(dm)), 0);
}

TEST_F(DeviceMemoryTest, IsThereForAChildOfItsContextsOwner) {
  ibv_dm* parents = *alloc(kMaxDeviceMemory);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto dm = alloc(kMaxDeviceMemory);
    char out[4] = {};
    const bool works = dm && ibv_memcpy_to_dm(*dm, 8, "abc", 4) == 0 &&
                       ibv_memcpy_from_dm(out, *dm, 8, 4) == 0 && std::memcmp(out, "abc", 4) == 0 &&
                       free_dm(*dm) && error_of(free_dm(parents)) == EINVAL;
    ::_exit(works ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

using OnDemandTest = VerbsTest;

TEST_F(OnDemandTest, IsReported) {
  ibv_device_attr_ex attr{};
  ASSERT_TRUE(query_device_ex(context_, nullptr, &attr, sizeof attr));
  EXPECT_EQ(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
  EXPECT_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps, 0x3fu);
}

TEST_F(OnDemandTest, NeedsNoMemoryYet) {
  std::byte* pages = test::map_lone_pages(4 * kPage);
  ::munmap(pages, 4 * kPage);
  EXPECT_EQ(error_of(reg_mr(pd_, pages, 4 * kPage, kAll)), EFAULT);
  ibv_mr* mr = *reg_mr(pd_, pages, 4 * kPage, kAll | IBV_ACCESS_ON_DEMAND);
  EXPECT_EQ(mr->addr, pages);
  EXPECT_EQ(error_of(dereg_mr(mr)), 0);
  const auto beyond = reinterpret_cast<void*>(std::uintptr_t{1} << 60);
  EXPECT_EQ(error_of(reg_mr(pd_, beyond, kPage, kAll | IBV_ACCESS_ON_DEMAND)), EFAULT);
}

TEST_F(OnDemandTest, EverythingIsAskedForInOneWay) {
  constexpr auto kOnDemand = kAll | IBV_ACCESS_ON_DEMAND;
  ibv_mr* mr = *reg_mr(pd_, nullptr, SIZE_MAX, kOnDemand);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, SIZE_MAX);
  EXPECT_EQ(error_of(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1)), EINVAL);
  EXPECT_EQ(error_of(reg_mr(pd_, nullptr, SIZE_MAX, kAll)), EFAULT);
  EXPECT_EQ(error_of(reg_mr_iova(pd_, nullptr, SIZE_MAX, kPage, kOnDemand)), EINVAL);
  EXPECT_EQ(error_of(reg_mr(pd_, nullptr, SIZE_MAX, kOnDemand | IBV_ACCESS_HUGETLB)), EINVAL);
}

/// How many of the pages are there.
std::size_t resident(std::byte* pages, std::size_t count) {
  unsigned char there[64] = {};
  EXPECT_EQ(::mincore(pages, count * kPage, there), 0);
  return static_cast<std::size_t>(
      std::count_if(there, there + count, [](unsigned char c) { return (c & 1) != 0; }));
}

class AdviceTest : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    pages_ = test::map_lone_pages(8 * kPage);
    mr_ = *reg_mr(pd_, pages_, 8 * kPage, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  }
  void TearDown() override {
    VerbsTest::TearDown();
    ::munmap(pages_, 8 * kPage);
  }
  int advise(ibv_sge sge, ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
             std::uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) {
    return error_of(advise_mr(pd_, advice, flags, &sge, 1));
  }
  /// Any number for an advice, as programs in C may give.
  [[gnu::no_sanitize("enum")]] int advise_raw(ibv_sge sge, int number) {
    ibv_advise_mr_advice advice{};
    set_raw(advice, number);
    return error_of(advise_mr(pd_, advice, 0, &sge, 1));
  }
  [[nodiscard]] ibv_sge range(std::size_t first, std::size_t count) const {
    return {reinterpret_cast<std::uint64_t>(pages_) + first * kPage,
            static_cast<std::uint32_t>(count * kPage), mr_->lkey};
  }

  std::byte* pages_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

TEST_F(AdviceTest, PrefetchMakesPagesResident) {
  EXPECT_EQ(resident(pages_, 8), 0u);
  EXPECT_EQ(advise(range(2, 3)), 0);
  EXPECT_EQ(resident(pages_, 8), 3u);
  EXPECT_EQ(advise(range(0, 8), IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT), 0);
  EXPECT_EQ(resident(pages_, 8), 3u);
  EXPECT_EQ(advise(range(0, 8), IBV_ADVISE_MR_ADVICE_PREFETCH, 0), 0);
}

TEST_F(AdviceTest, Refusals) {
  EXPECT_EQ(advise(range(0, 9)), EFAULT);
  EXPECT_EQ(advise({range(0, 1).addr, 8, mr_->lkey ^ 0x5a5a5a}), EFAULT);
  EXPECT_EQ(advise(range(0, 1), IBV_ADVISE_MR_ADVICE_PREFETCH, 2), EINVAL);
  EXPECT_EQ(advise_raw(range(0, 1), 77), ENOTSUP);
  EXPECT_EQ(error_of(advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 1)), EINVAL);
  ibv_sge sge = range(0, 1);
  EXPECT_EQ(error_of(advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0)), EINVAL);
  EXPECT_EQ(error_of(advise_mr(nullptr, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1)), EINVAL);
  ibv_pd* other = *alloc_pd(context_);
  EXPECT_EQ(error_of(advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1)), EPERM);
  ibv_mr* pinned = *reg_mr(pd_, pages_, kPage, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(advise({sge.addr, 8, pinned->lkey}), EINVAL);
  ibv_mr* constant = *reg_mr(pd_, pages_, kPage, IBV_ACCESS_ON_DEMAND);
  EXPECT_EQ(advise({sge.addr, 8, constant->lkey}), EPERM);
  EXPECT_EQ(advise({sge.addr, 8, constant->lkey}, IBV_ADVISE_MR_ADVICE_PREFETCH), 0);
  ::munmap(pages_ + kPage, kPage);
  EXPECT_EQ(advise(range(0, 3)), EFAULT);
}

using DmabufTest = VerbsTest;

TEST_F(DmabufTest, WhatCannotBe) {
  const int file = ::memfd_create("buffer", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, 2 * kPage), 0);
  EXPECT_EQ(error_of(reg_dmabuf_mr(pd_, 0, 2 * kPage + 1, 0, file, kAll)), EINVAL);
  EXPECT_EQ(error_of(reg_dmabuf_mr(pd_, 8, 16, 16, file, kAll)), EINVAL);
  EXPECT_EQ(error_of(reg_dmabuf_mr(pd_, 0, 0, 0, file, kAll)), EINVAL);
  EXPECT_EQ(error_of(reg_dmabuf_mr(pd_, 0, 16, 0, file, kAll | IBV_ACCESS_MW_BIND)), EINVAL);
  EXPECT_EQ(error_of(reg_dmabuf_mr(pd_, 0, 16, 0, -1, kAll)), EBADF);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(error_of(reg_dmabuf_mr(pd_, 0, 16, 0, ends[0], IBV_ACCESS_REMOTE_READ)), EOPNOTSUPP);
  ibv_mr* mr = *reg_dmabuf_mr(pd_, kPage + 8, 16, 8, file, kAll | IBV_ACCESS_RELAXED_ORDERING);
  EXPECT_EQ(mr->length, 16u);
  EXPECT_EQ(error_of(dereg_mr(mr)), 0);
  for (const int fd : {file, ends[0], ends[1]}) ::close(fd);
}

}  // namespace
}  // namespace airdma::verbs

namespace airdma::cm {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

/// The client has plain memory; the passive side's is what the test makes.
class SpecialTraffic : public CmTest {
 protected:
  void SetUp() override {
    establish_connection();
    for (std::size_t i = 0; i < sizeof here_; ++i) here_[i] = static_cast<char>(i * 7 + 1);
    local_ = verbs::reg_mr(client_->pd, here_, sizeof here_, kAll).value();
  }
  void TearDown() override {
    EXPECT_TRUE(verbs::dereg_mr(local_));
    CmTest::TearDown();
  }

  static ibv_wc take(ibv_cq* cq) {
    ibv_wc wc{};
    while (verbs::poll_cq(cq, 1, &wc) == 0) std::this_thread::yield();
    return wc;
  }
  [[nodiscard]] ibv_sge here(std::size_t offset, std::uint32_t bytes) const {
    return {reinterpret_cast<std::uint64_t>(here_) + offset, bytes, local_->lkey};
  }
  ibv_wc_status run(ibv_qp* qp, ibv_cq* cq, ibv_wr_opcode opcode, ibv_sge sge, std::uint64_t remote,
                    std::uint32_t rkey) {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {remote, rkey};
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(verbs::post_send(qp, &wr, &bad), 0);
    return take(cq).status;
  }
  /// WRITE of the first half into the other's memory, then READ of it into the second.
  void there_and_back(std::uint64_t remote, std::uint32_t rkey, std::uint32_t bytes) {
    ibv_qp* qp = client_->qp;
    ibv_cq* cq = client_->send_cq;
    ASSERT_EQ(run(qp, cq, IBV_WR_RDMA_WRITE, here(0, bytes), remote, rkey), IBV_WC_SUCCESS);
    ASSERT_EQ(run(qp, cq, IBV_WR_RDMA_READ, here(sizeof here_ / 2, bytes), remote, rkey),
              IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(here_, here_ + sizeof here_ / 2, bytes), 0);
  }
  void receive(ibv_qp* qp, ibv_sge sge) {
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_recv(qp, &wr, &bad), 0);
  }

  alignas(4096) char here_[16 * kPage];
  ibv_mr* local_ = nullptr;
};

TEST_F(SpecialTraffic, DeviceMemoryByOffset) {
  ibv_alloc_dm_attr attr{kPage, 6, 0};
  ibv_dm* dm = verbs::alloc_dm(passive_->verbs, &attr).value();
  ibv_mr* mr = verbs::reg_dm_mr(passive_->pd, dm, 64, 1024, kAll | IBV_ACCESS_ZERO_BASED).value();
  there_and_back(512, mr->rkey, 256);
  char seen[256];
  EXPECT_EQ(ibv_memcpy_from_dm(seen, dm, 64 + 512, sizeof seen), 0);
  EXPECT_EQ(std::memcmp(seen, here_, sizeof seen), 0);
  EXPECT_TRUE(verbs::dereg_mr(mr));
  EXPECT_TRUE(verbs::free_dm(dm));
}

TEST_F(SpecialTraffic, ReceivesIntoNothing) {
  ibv_mr* null = verbs::alloc_null_mr(passive_->pd).value();
  EXPECT_EQ(null->rkey, 0u);
  EXPECT_EQ(null->addr, nullptr);
  EXPECT_EQ(null->length, SIZE_MAX);
  receive(passive_->qp, {0x123456789abcdefu, 8 * kPage, null->lkey});
  EXPECT_EQ(run(client_->qp, client_->send_cq, IBV_WR_SEND, here(0, 8 * kPage), 0, 0),
            IBV_WC_SUCCESS);
  const ibv_wc wc = take(passive_->recv_cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 8 * kPage);
  EXPECT_TRUE(verbs::dereg_mr(null));
}

TEST_F(SpecialTraffic, SendsZeroesFromNothing) {
  ibv_mr* null = verbs::alloc_null_mr(passive_->pd).value();
  receive(client_->qp, here(0, 4 * kPage));
  EXPECT_EQ(run(passive_->qp, passive_->send_cq, IBV_WR_SEND,
                {~std::uint64_t{0} - 8 * kPage, 4 * kPage, null->lkey}, 0, 0),
            IBV_WC_SUCCESS);
  EXPECT_EQ(take(client_->recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(std::all_of(here_, here_ + 4 * kPage, [](char c) { return c == 0; }));
  EXPECT_NE(here_[4 * kPage], 0);
  EXPECT_TRUE(verbs::dereg_mr(null));
}

TEST_F(SpecialTraffic, PeersDoNotReachNothing) {
  ibv_mr* null = verbs::alloc_null_mr(passive_->pd).value();
  EXPECT_EQ(run(client_->qp, client_->send_cq, IBV_WR_RDMA_READ, here(0, 8), 0, null->lkey),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(verbs::dereg_mr(null));
}

TEST_F(SpecialTraffic, MemoryMadeAfterItsRegistration) {
  void* pages = ::mmap(nullptr, 8 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = verbs::reg_mr(passive_->pd, pages, 8 * kPage, kAll | IBV_ACCESS_ON_DEMAND).value();
  ASSERT_EQ(::mprotect(pages, 8 * kPage, PROT_READ | PROT_WRITE), 0);
  there_and_back(reinterpret_cast<std::uint64_t>(pages), mr->rkey, 8 * kPage);
  EXPECT_TRUE(verbs::dereg_mr(mr));
  ::munmap(pages, 8 * kPage);
}

TEST_F(SpecialTraffic, AnyMemoryOnDemand) {
  ibv_mr* mr = verbs::reg_mr(passive_->pd, nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND).value();
  std::vector<char> heap(3 * kPage);
  there_and_back(reinterpret_cast<std::uint64_t>(heap.data()), mr->rkey, 3 * kPage);
  EXPECT_EQ(std::memcmp(heap.data(), here_, heap.size()), 0);
  EXPECT_TRUE(verbs::dereg_mr(mr));
}

TEST_F(SpecialTraffic, NoMemoryOnDemand) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "its handler of faults is in the way";
#endif
  ibv_mr* mr = verbs::reg_mr(passive_->pd, nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND).value();
  void* pages = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(run(client_->qp, client_->send_cq, IBV_WR_RDMA_READ, here(0, 64),
                reinterpret_cast<std::uint64_t>(pages), mr->rkey),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(verbs::dereg_mr(mr));
  ::munmap(pages, kPage);
}

TEST_F(SpecialTraffic, NoMemoryWhereNoneCanBe) {
  ibv_mr* mr = verbs::reg_mr(passive_->pd, nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND).value();
  EXPECT_EQ(run(client_->qp, client_->send_cq, IBV_WR_RDMA_READ, here(0, 64),
                std::uint64_t{0xdead} << 48, mr->rkey),
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(verbs::dereg_mr(mr));
}

TEST_F(SpecialTraffic, MemoryOfADescriptor) {
  const int file = ::memfd_create("buffer", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, 4 * kPage), 0);
  ibv_mr* mr = verbs::reg_dmabuf_mr(passive_->pd, kPage + 256, 2 * kPage, 256, file, kAll).value();
  there_and_back(256 + 512, mr->rkey, kPage);
  char seen[kPage];
  ASSERT_EQ(::pread(file, seen, sizeof seen, kPage + 256 + 512), static_cast<ssize_t>(kPage));
  EXPECT_EQ(std::memcmp(seen, here_, sizeof seen), 0);
  EXPECT_TRUE(verbs::dereg_mr(mr));
  ::close(file);
}

}  // namespace
}  // namespace airdma::cm
