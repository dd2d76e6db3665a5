// SPDX-License-Identifier: MIT
// What ibv_query_device promises: that many objects can be made, and one more is refused.
#include <array>
#include <cerrno>
#include <mutex>
#include <vector>

#include "tests/unit/verbs/fixture.h"

namespace airdma::verbs {
namespace {

class LimitsTest : public VerbsTest {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "one thread, and minutes of it under this sanitizer";
#endif
    VerbsTest::SetUp();
    ASSERT_TRUE(query_device(context_, &limits_));
    std::lock_guard lock(state().control);
    before_ = state().use_of(*state().contexts.find(context_));
  }

  /// Makes objects until one is refused, which must be with ENOMEM; ends them. Their number.
  template <class Make, class End>
  static int make_all(Make make, End end) {
    std::vector<std::remove_reference_t<decltype(*make())>> made;
    for (;;) {
      const auto object = make();
      if (!object) {
        EXPECT_EQ(object.error().code, ENOMEM);
        break;
      }
      made.push_back(*object);
    }
    // There is room again when one is gone.
    if (!made.empty()) {
      EXPECT_EQ(error_of(end(made.back())), 0);
      const auto again = make();
      EXPECT_TRUE(again);
      if (again) made.back() = *again;
    }
    for (auto* object : made) EXPECT_EQ(error_of(end(object)), 0);
    return static_cast<int>(made.size());
  }

  ibv_device_attr limits_{};
  DeviceUse before_;  // by the fixture, and by other tests of this process
};

TEST_F(LimitsTest, ProtectionDomains) {
  const auto make = [&] { return alloc_pd(context_); };
  EXPECT_EQ(make_all(make, dealloc_pd), limits_.max_pd - before_.pds);
}

TEST_F(LimitsTest, Regions) {
  static std::array<char, 64> memory;
  const auto make = [&] { return reg_mr(pd_, memory.data(), memory.size(), 0); };
  EXPECT_EQ(make_all(make, dereg_mr), limits_.max_mr - before_.regions);
}

TEST_F(LimitsTest, Windows) {
  const auto make = [&] { return alloc_mw(pd_, IBV_MW_TYPE_2); };
  EXPECT_EQ(make_all(make, dealloc_mw), limits_.max_mw - before_.windows);
}

TEST_F(LimitsTest, CompletionQueues) {
  const auto make = [&] { return create_cq(context_, 1, nullptr, nullptr, 0); };
  EXPECT_EQ(make_all(make, destroy_cq), limits_.max_cq - before_.cqs);
}

TEST_F(LimitsTest, SharedReceiveQueues) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
  const auto make = [&] { return create_srq(pd_, &attr); };
  EXPECT_EQ(make_all(make, destroy_srq), limits_.max_srq - before_.srqs);
}

TEST_F(LimitsTest, QueuePairs) {
  ibv_cq* cq = make_cq(1);
  const auto make = [&] {
    ibv_qp_init_attr attr = wanted(cq);
    return create_qp(pd_, &attr);
  };
  EXPECT_EQ(make_all(make, destroy_qp), limits_.max_qp - before_.qps);
}

TEST_F(LimitsTest, DevicesCountTheirOwn) {
  ibv_context* other = *open_device(device_);
  const ibv_pd* pd = *alloc_pd(other);
  const auto make = [&] { return alloc_pd(context_); };
  EXPECT_EQ(make_all(make, dealloc_pd),
            limits_.max_pd - before_.pds - 1);  // contexts of a device share
  EXPECT_NE(pd, nullptr);
  EXPECT_EQ(error_of(close_device(other)), 0);  // with the domain
  EXPECT_EQ(make_all(make, dealloc_pd), limits_.max_pd - before_.pds);
}

TEST_F(LimitsTest, SizesOfOneObject) {
  EXPECT_TRUE(create_cq(context_, limits_.max_cqe, nullptr, nullptr, 0));
  EXPECT_EQ(error_of(create_cq(context_, limits_.max_cqe + 1, nullptr, nullptr, 0)), EINVAL);
  ibv_cq* cq = make_cq(1);
  ibv_qp_init_attr attr = wanted(cq);
  attr.cap.max_send_wr = attr.cap.max_recv_wr = static_cast<std::uint32_t>(limits_.max_qp_wr);
  attr.cap.max_send_sge = attr.cap.max_recv_sge = static_cast<std::uint32_t>(limits_.max_sge);
  EXPECT_TRUE(create_qp(pd_, &attr));
  attr.cap.max_send_wr += 1;
  EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
  attr.cap.max_send_wr -= 1;
  attr.cap.max_recv_sge += 1;
  EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
  ibv_srq_init_attr shared{};
  shared.attr = {.max_wr = static_cast<std::uint32_t>(limits_.max_srq_wr),
                 .max_sge = static_cast<std::uint32_t>(limits_.max_srq_sge),
                 .srq_limit = 0};
  EXPECT_TRUE(create_srq(pd_, &shared));
  shared.attr.max_wr += 1;
  EXPECT_EQ(error_of(create_srq(pd_, &shared)), EINVAL);
}

}  // namespace
}  // namespace airdma::verbs
