// SPDX-License-Identifier: MIT
// Thread and parent domains, handles imported by a command descriptor, and the small verbs.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>

#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

class ParentDomainTest : public VerbsTest {
 protected:
  Result<ibv_pd*> make_parent(ibv_td* td = nullptr) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd_;
    attr.td = td;
    return alloc_parent_domain(context_, &attr);
  }
};

TEST_F(ParentDomainTest, KeepsWhatItIsMadeOf) {
  ibv_td_init_attr td_attr{};
  ibv_td* td = *alloc_td(context_, &td_attr);
  EXPECT_EQ(td->context, context_);
  ibv_pd* parent = *make_parent(td);
  EXPECT_EQ(parent->context, context_);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EBUSY);
  EXPECT_EQ(error_of(dealloc_td(td)), EBUSY);
  EXPECT_EQ(error_of(dealloc_pd(parent)), 0);
  EXPECT_EQ(error_of(dealloc_td(td)), 0);
  EXPECT_EQ(error_of(dealloc_td(td)), EINVAL);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), 0);
  td_attr.comp_mask = 1;
  EXPECT_EQ(error_of(alloc_td(context_, &td_attr)), EINVAL);
}

TEST_F(ParentDomainTest, IsTheDomainItExtends) {
  char buffer[64];
  ibv_pd* parent = *make_parent();
  ibv_mr* on_parent = *reg_mr(parent, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(on_parent->pd, parent);
  const Pd* base = find_object(pd_);
  EXPECT_TRUE(state().memory.pin(Stag(on_parent->lkey), base->id,
                                 reinterpret_cast<std::uint64_t>(buffer), 8, 0));
  EXPECT_EQ(error_of(dealloc_pd(parent)), EBUSY);
  EXPECT_EQ(error_of(dereg_mr(on_parent)), 0);
  EXPECT_EQ(error_of(dealloc_pd(parent)), 0);
}

TEST_F(ParentDomainTest, Refusals) {
  ibv_parent_domain_init_attr attr{};
  EXPECT_EQ(error_of(alloc_parent_domain(context_, &attr)), EINVAL);
  EXPECT_EQ(error_of(alloc_parent_domain(context_, nullptr)), EINVAL);
  attr.pd = pd_;
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;  // and none is given
  EXPECT_EQ(error_of(alloc_parent_domain(context_, &attr)), EINVAL);
  attr.comp_mask = 1u << 2;
  EXPECT_EQ(error_of(alloc_parent_domain(context_, &attr)), EINVAL);
  attr.comp_mask = 0;
  ibv_context* other = *open_device(device_);
  EXPECT_EQ(error_of(alloc_parent_domain(other, &attr)), EINVAL);
  EXPECT_EQ(error_of(close_device(other)), 0);
}

/// A program's allocator, which calls verbs as programs may.
struct Heap {
  ibv_context* context = nullptr;
  std::map<void*, std::size_t> pieces;
  int answer = 0;  // 0: memory, 1: the default, 2: none

  static void* take(ibv_pd*, void* opaque, size_t bytes, size_t alignment, uint64_t) {
    Heap& heap = *static_cast<Heap*>(opaque);
    ibv_device_attr attr{};
    EXPECT_TRUE(query_device(heap.context, &attr));
    EXPECT_TRUE(dealloc_pd(*alloc_pd(heap.context)));
    if (heap.answer == 1) return IBV_ALLOCATOR_USE_DEFAULT;
    if (heap.answer == 2) return nullptr;
    void* piece = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    heap.pieces[piece] = bytes;
    return piece;
  }
  static void give_back(ibv_pd* pd, void* opaque, void* piece, uint64_t) {
    Heap& heap = *static_cast<Heap*>(opaque);
    EXPECT_TRUE(pd != nullptr && heap.pieces.erase(piece) == 1);
    EXPECT_TRUE(dealloc_pd(*alloc_pd(heap.context)));
    std::free(piece);
  }
};

class AllocatorTest : public ParentDomainTest {
 protected:
  void SetUp() override {
    ParentDomainTest::SetUp();
    heap_.context = context_;
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd_;
    attr.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = Heap::take;
    attr.free = Heap::give_back;
    attr.pd_context = &heap_;
    parent_ = *alloc_parent_domain(context_, &attr);
  }
  Result<ibv_cq_ex*> make(std::uint64_t fields = 0) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 100;
    attr.wc_flags = fields;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = parent_;
    return create_cq_ex(context_, &attr);
  }

  Heap heap_;
  ibv_pd* parent_ = nullptr;
};

TEST_F(AllocatorTest, CompletionQueuesLiveInTheProgramsMemory) {
  ibv_cq* cq = ibv_cq_ex_to_cq(*make(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
  ASSERT_EQ(heap_.pieces.size(), 1u);
  EXPECT_EQ(error_of(dealloc_pd(parent_)), EBUSY);
  void* first = heap_.pieces.begin()->first;
  ibv_qp* qp = make_qp(cq);
  ASSERT_EQ(to_init(qp), 0);
  for (std::uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(receive(qp, id), 0);
  ASSERT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(error_of(resize_cq(cq, 5000)), 0);
  ASSERT_EQ(heap_.pieces.size(), 1u);
  EXPECT_NE(heap_.pieces.begin()->first, first);
  EXPECT_EQ(error_of(resize_cq(cq, 2)), EINVAL);
  ASSERT_EQ(heap_.pieces.size(), 1u);
  EXPECT_EQ(drain(cq).size(), 4u);
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  EXPECT_EQ(error_of(destroy_cq(cq)), 0);
  EXPECT_TRUE(heap_.pieces.empty());
  EXPECT_EQ(error_of(dealloc_pd(parent_)), 0);
}

TEST_F(AllocatorTest, MayLeaveItToTheLibraryOrFail) {
  heap_.answer = 1;
  EXPECT_EQ(error_of(destroy_cq(ibv_cq_ex_to_cq(*make()))), 0);
  heap_.answer = 2;
  EXPECT_EQ(error_of(make()), ENOMEM);
  heap_.answer = 0;
  ASSERT_TRUE(make());  // the context's end gives it back
  EXPECT_EQ(error_of(close_device(context_)), 0);
  context_ = nullptr;
  EXPECT_TRUE(heap_.pieces.empty());
}

class ImportTest : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    imported_ = *import_device(::dup(context_->cmd_fd));
  }
  void TearDown() override {
    if (imported_ != nullptr) {
      EXPECT_EQ(error_of(close_device(imported_)), 0);
    }
    VerbsTest::TearDown();
  }

  ibv_context* imported_ = nullptr;
  char buffer_[64] = {};
};

TEST_F(ImportTest, AContextOfTheSameDevice) {
  EXPECT_NE(imported_, context_);
  EXPECT_EQ(imported_->device, context_->device);
  EXPECT_NE(imported_->cmd_fd, context_->cmd_fd);
  const int again = ::dup(imported_->cmd_fd);
  ibv_context* third = *import_device(again);
  EXPECT_EQ(third->cmd_fd, again);
  EXPECT_TRUE(import_pd(third, pd_->handle));
  EXPECT_EQ(error_of(close_device(third)), 0);
  EXPECT_EQ(::fcntl(again, F_GETFD), -1);  // it was the context's
}

TEST_F(ImportTest, OtherDescriptors) {
  EXPECT_EQ(error_of(import_device(context_->cmd_fd)), EINVAL);  // not a duplicate
  EXPECT_EQ(error_of(import_device(-1)), EBADF);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(error_of(import_device(ends[0])), EINVAL);
  ::close(ends[0]);
  ::close(ends[1]);
  const int orphan = ::dup(context_->cmd_fd);
  EXPECT_EQ(error_of(close_device(imported_)), 0);
  imported_ = nullptr;
  EXPECT_EQ(error_of(close_device(context_)), 0);
  context_ = nullptr;
  EXPECT_EQ(error_of(import_device(orphan)), EOPNOTSUPP);
  ::close(orphan);
}

TEST_F(ImportTest, NumbersOfAnotherContext) {
  ibv_context* stranger = *open_device(device_);
  EXPECT_EQ(error_of(import_pd(stranger, pd_->handle)), EINVAL);
  EXPECT_EQ(error_of(import_pd(imported_, 0xfffffff0)), EINVAL);
  EXPECT_EQ(error_of(close_device(stranger)), 0);
}

TEST_F(ImportTest, AnyHandleEndsTheDomain) {
  ibv_pd* second = *import_pd(imported_, pd_->handle);
  EXPECT_EQ(second->handle, pd_->handle);
  ibv_mr* mr = *reg_mr(second, buffer_, sizeof buffer_, 0);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EBUSY);  // the region is on the same domain
  unimport_pd(second);                          // and in use, so it stays
  EXPECT_EQ(error_of(dereg_mr(mr)), 0);
  EXPECT_EQ(error_of(dealloc_pd(second)), 0);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EINVAL);
  unimport_pd(pd_);
}

TEST_F(ImportTest, UnimportLeavesTheObject) {
  ibv_mr* mr = *reg_mr(pd_, buffer_, sizeof buffer_, IBV_ACCESS_LOCAL_WRITE);
  ibv_pd* pd = *import_pd(imported_, pd_->handle);
  ibv_mr* second = *import_mr(pd, mr->handle);
  EXPECT_EQ(second->lkey, mr->lkey);
  EXPECT_EQ(second->length, mr->length);
  EXPECT_EQ(second->addr, nullptr);
  EXPECT_EQ(error_of(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1)), EINVAL);
  unimport_mr(second);
  EXPECT_EQ(error_of(dereg_mr(second)), EINVAL);
  unimport_pd(pd);
  EXPECT_TRUE(state().memory.pin(Stag(mr->lkey), find_object(pd_)->id,
                                 reinterpret_cast<std::uint64_t>(buffer_), 8, 0));
  unimport_mr(mr);  // the last handle stays
  EXPECT_EQ(error_of(dereg_mr(mr)), 0);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), 0);
}

TEST_F(ImportTest, EitherHandleEndsTheRegion) {
  ibv_mr* mr = *reg_mr(pd_, buffer_, sizeof buffer_, IBV_ACCESS_LOCAL_WRITE);
  const std::uint32_t key = mr->lkey;
  ibv_pd* pd = *import_pd(imported_, pd_->handle);
  ibv_mr* second = *import_mr(pd, mr->handle);
  EXPECT_EQ(error_of(dereg_mr(second)), 0);
  EXPECT_EQ(error_of(dereg_mr(mr)), EINVAL);
  EXPECT_FALSE(state().memory.pin(Stag(key), find_object(pd_)->id,
                                  reinterpret_cast<std::uint64_t>(buffer_), 8, 0));
  EXPECT_EQ(error_of(dealloc_pd(pd)), 0);
}

TEST_F(ImportTest, AContextThatIsClosedLeavesTheOthersHandles) {
  ibv_mr* mr = *reg_mr(pd_, buffer_, sizeof buffer_, IBV_ACCESS_LOCAL_WRITE);
  ibv_pd* pd = *import_pd(imported_, pd_->handle);
  ibv_mr* second = *import_mr(pd, mr->handle);
  EXPECT_EQ(error_of(close_device(context_)), 0);
  context_ = nullptr;
  EXPECT_TRUE(state().memory.pin(Stag(second->lkey), find_object(pd)->id,
                                 reinterpret_cast<std::uint64_t>(buffer_), 8, 0));
  EXPECT_EQ(error_of(dereg_mr(second)), 0);
  EXPECT_EQ(error_of(dealloc_pd(pd)), 0);
}

TEST_F(ImportTest, DeviceMemory) {
  ibv_alloc_dm_attr attr{kMaxDeviceMemory / 2 + 4, 0, 0};
  ibv_dm* dm = *alloc_dm(context_, &attr);
  ibv_dm* second = *import_dm(imported_, dm->handle);
  char out[8] = {};
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 8, "abcdefg", 8), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(out, second, 8, 8), 0);
  EXPECT_STREQ(out, "abcdefg");
  attr.length = kMaxDeviceMemory / 2 - 4;  // counted once
  EXPECT_EQ(error_of(alloc_dm(context_, &attr)), 0);
  unimport_dm(second);
  EXPECT_EQ(ibv_memcpy_from_dm(out, dm, 8, 8), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(out, second, 8, 8), EINVAL);
  EXPECT_EQ(error_of(free_dm(dm)), 0);
}

using SmallVerbsTest = VerbsTest;

TEST_F(SmallVerbsTest, CountersHaveNothingToCount) {
  ibv_counters_init_attr attr{};
  ibv_counters* counters = *create_counters(context_, &attr);
  ibv_counter_attach_attr place{};
  place.counter_desc = IBV_COUNTER_BYTES;
  EXPECT_EQ(error_of(attach_counters_point_flow(counters, &place, nullptr)), ENOTSUP);
  place.comp_mask = 1;
  EXPECT_EQ(error_of(attach_counters_point_flow(counters, &place, nullptr)), EINVAL);
  std::uint64_t values[3] = {7, 7, 7};
  EXPECT_EQ(error_of(read_counters(counters, values, 2, 0)), 0);
  EXPECT_EQ(values[0] + values[1], 0u);
  EXPECT_EQ(values[2], 7u);
  EXPECT_EQ(error_of(read_counters(counters, values, 2, 2)), EINVAL);
  EXPECT_EQ(error_of(read_counters(counters, nullptr, 2, 0)), EINVAL);
  EXPECT_EQ(error_of(destroy_counters(counters)), 0);
  EXPECT_EQ(error_of(destroy_counters(counters)), EINVAL);
  attr.comp_mask = 1;
  EXPECT_EQ(error_of(create_counters(context_, &attr)), EINVAL);
}

TEST_F(SmallVerbsTest, NoOptionsOfAnotherMakerAreAccepted) {
  ibv_qp* qp = make_qp(make_cq(4));
  ibv_ece ece{.vendor_id = 0x15b3, .options = 0xff, .comp_mask = 0};
  EXPECT_EQ(error_of(set_ece(qp, &ece)), 0);
  EXPECT_EQ(ece.options, 0u);
  ece = {.vendor_id = 1, .options = 1, .comp_mask = 1};
  EXPECT_EQ(error_of(query_ece(qp, &ece)), 0);
  EXPECT_EQ(ece.options, 1u);
  EXPECT_EQ(ece.comp_mask, 0u);
  EXPECT_EQ(ece.vendor_id, kVendorId);
  ece.options = 7;
  EXPECT_EQ(error_of(set_ece(qp, &ece)), 0);
  EXPECT_EQ(ece.options, 1u);
  ece.comp_mask = 1;
  EXPECT_EQ(error_of(set_ece(qp, &ece)), EINVAL);
  EXPECT_EQ(error_of(set_ece(nullptr, &ece)), EINVAL);
  EXPECT_FALSE(query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0));
}

}  // namespace
}  // namespace airdma::verbs
