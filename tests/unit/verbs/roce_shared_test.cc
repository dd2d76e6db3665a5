// SPDX-License-Identifier: MIT
// Shared receive queues of RoCEv2 queue pairs, and XRC: domains, targets and their handles.
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/verbs/roce_fixture.h"

namespace airdma::verbs {
namespace {

class RoceSharedTest : public RoceTest {
 protected:
  ibv_srq* make_srq() {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 64, .max_sge = 2, .srq_limit = 0};
    return *create_srq(pd_, &attr);
  }
};

TEST_F(RoceSharedTest, ReceivesComeFromTheSharedQueue) {
  ibv_srq* srq = make_srq();
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC, {}, srq));
  EXPECT_EQ(receive(b_.qp, 1, piece(b_, 0, 64)), EINVAL);
  for (std::uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(receive(srq, id, piece(b_, 64 * id, 64)), 0);
  }
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(send(id, 64), 0);
  for (std::uint64_t id = 0; id < 4; ++id) {
    expect(a_.cq, id);
    expect(b_.cq, id);
  }
  ASSERT_EQ(to_state(b_.qp, IBV_QPS_ERR), 0);
  expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, b_.qp);
}

class RoceXrcTest : public RoceSharedTest {
 protected:
  void SetUp() override {
    RoceTest::SetUp();
    if (HasFatalFailure()) return;
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    const auto xrcd = open_xrcd(context_, &attr);
    ASSERT_TRUE(xrcd);
    xrcd_ = *xrcd;
  }
  Result<ibv_srq*> make_xrc_srq(ibv_cq* cq) {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = 64, .max_sge = 2, .srq_limit = 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd_;
    attr.xrcd = xrcd_;
    attr.cq = cq;
    return create_srq_ex(context_, &attr);
  }
  ibv_qp* make_target() {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd_;
    return *create_qp_ex(context_, &attr);
  }
  /// a_ sends, b_.qp is the target.
  void make_connection() {
    ASSERT_NO_FATAL_FAILURE(make(a_, IBV_QPT_XRC_SEND));
    b_.qp = make_target();
    ASSERT_NO_FATAL_FAILURE(connect(a_.qp, b_.qp));
  }
  int send_to(ibv_srq* srq, std::uint64_t id, std::uint32_t bytes) {
    std::uint32_t number = 0;
    EXPECT_EQ(error_of(get_srq_num(srq, &number)), 0);
    return send_to_number(number, id, bytes);
  }
  int send_to_number(std::uint32_t number, std::uint64_t id, std::uint32_t bytes) {
    ibv_sge sge = piece(a_, 0, bytes);
    ibv_send_wr wr = request(id, IBV_WR_SEND, sge);
    wr.qp_type.xrc.remote_srqn = number;
    return post(a_.qp, wr);
  }
  Result<ibv_qp*> open_target(std::uint32_t number) {
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = xrcd_;
    attr.qp_type = IBV_QPT_XRC_RECV;
    return open_qp(context_, &attr);
  }

  ibv_xrcd* xrcd_ = nullptr;
};

TEST_F(RoceXrcTest, EachMessageNamesItsSharedQueue) {
  ASSERT_NO_FATAL_FAILURE(make_connection());
  ibv_srq* one = *make_xrc_srq(b_.cq);
  ibv_cq* other_cq = *create_cq(context_, 16, nullptr, nullptr, 0);
  ibv_srq* other = *make_xrc_srq(other_cq);
  ASSERT_EQ(receive(one, 10, piece(b_, 0, 64)), 0);
  ASSERT_EQ(receive(other, 20, piece(b_, 64, 64)), 0);
  ASSERT_EQ(send_to(other, 1, 8), 0);
  ASSERT_EQ(send_to(one, 2, 9), 0);
  const ibv_wc got = next(other_cq);
  EXPECT_EQ(got.wr_id, 20u);
  EXPECT_EQ(got.byte_len, 8u);
  EXPECT_EQ(got.qp_num, b_.qp->qp_num);
  EXPECT_EQ(next(b_.cq).wr_id, 10u);
  expect(a_.cq, 1);
  expect(a_.cq, 2);
}

TEST_F(RoceXrcTest, AQueueThatIsNoneIsAnInvalidRequest) {
  ASSERT_NO_FATAL_FAILURE(make_connection());
  ASSERT_EQ(send_to_number(0x123456, 1, 8), 0);
  EXPECT_EQ(next(a_.cq).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(RoceXrcTest, OneSidedOperationsUseTheSharedQueuesDomain) {
  ASSERT_NO_FATAL_FAILURE(make_connection());
  ibv_srq* srq = *make_xrc_srq(b_.cq);
  std::uint32_t number = 0;
  ASSERT_EQ(error_of(get_srq_num(srq, &number)), 0);
  fill(a_, 1);
  ibv_sge sge = piece(a_, 0, 5000);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, sge);
  wr.wr.rdma = {.remote_addr = reinterpret_cast<std::uintptr_t>(b_.memory.data()),
                .rkey = b_.mr->rkey};
  wr.qp_type.xrc.remote_srqn = number;
  ASSERT_EQ(post(a_.qp, wr), 0);
  expect(a_.cq, 1);
  EXPECT_TRUE(same(5000));
}

TEST_F(RoceXrcTest, TargetsLiveAsLongAsOneOfTheirHandles) {
  ASSERT_NO_FATAL_FAILURE(make_connection());
  ibv_srq* srq = *make_xrc_srq(b_.cq);
  const auto second = open_target(b_.qp->qp_num);
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)->qp_num, b_.qp->qp_num);
  EXPECT_EQ(state_of(*second), IBV_QPS_RTS);
  ASSERT_EQ(error_of(destroy_qp(b_.qp)), 0);
  ASSERT_EQ(receive(srq, 10, piece(b_, 0, 64)), 0);
  ASSERT_EQ(send_to(srq, 1, 8), 0);
  expect(a_.cq, 1);
  expect(b_.cq, 10);
  const std::uint32_t number = (*second)->qp_num;
  ASSERT_EQ(error_of(destroy_qp(*second)), 0);
  EXPECT_EQ(error_of(open_target(number)), EINVAL);
}

TEST_F(RoceXrcTest, EachHandleOfATargetHearsOfItsEvents) {
  ASSERT_NO_FATAL_FAILURE(make_connection());
  ibv_srq* srq = *make_xrc_srq(b_.cq);
  const auto second = open_target(b_.qp->qp_num);
  const auto third = open_target(b_.qp->qp_num);
  ASSERT_TRUE(second && third);
  ASSERT_EQ(error_of(destroy_qp(*third)), 0);
  ASSERT_EQ(receive(srq, 10, piece(b_, 0, 8)), 0);
  ASSERT_EQ(send_to(srq, 1, 64), 0);  // longer than the receive
  EXPECT_EQ(next(a_.cq).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(next(b_.cq).status, IBV_WC_LOC_LEN_ERR);
  expect_event(IBV_EVENT_QP_REQ_ERR, b_.qp);
  expect_event(IBV_EVENT_QP_REQ_ERR, *second);
}

TEST_F(RoceXrcTest, DomainsAreHeldByWhatIsInThem) {
  ibv_srq* srq = *make_xrc_srq(b_.cq);
  EXPECT_EQ(error_of(close_xrcd(xrcd_)), EBUSY);
  EXPECT_EQ(error_of(destroy_cq(b_.cq)), EBUSY);
  EXPECT_EQ(error_of(destroy_srq(srq)), 0);
  ibv_qp* target = make_target();
  EXPECT_EQ(error_of(close_xrcd(xrcd_)), EBUSY);
  EXPECT_EQ(error_of(destroy_qp(target)), 0);
  EXPECT_EQ(error_of(close_xrcd(xrcd_)), 0);
  EXPECT_EQ(error_of(close_xrcd(xrcd_)), EINVAL);
}

TEST_F(RoceXrcTest, TheSameFileIsTheSameDomain) {
  const int file = ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = file;
  EXPECT_EQ(error_of(open_xrcd(context_, &attr)), ENOENT);
  attr.oflags = O_CREAT;
  xrcd_ = *open_xrcd(context_, &attr);
  ibv_qp* target = make_target();
  attr.oflags = 0;
  xrcd_ = *open_xrcd(context_, &attr);
  EXPECT_EQ(error_of(open_target(target->qp_num)), 0);
  attr.oflags = O_CREAT | O_EXCL;
  EXPECT_EQ(error_of(open_xrcd(context_, &attr)), EINVAL);
  ::close(file);
}

TEST_F(RoceXrcTest, OnlyItsOwnKindOfQueueHasANumber) {
  std::uint32_t number = 0;
  EXPECT_EQ(error_of(get_srq_num(make_srq(), &number)), EINVAL);
  ibv_srq* srq = *make_xrc_srq(b_.cq);
  ibv_qp_init_attr attr = wanted(IBV_QPT_RC, a_, srq);
  EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
}

}  // namespace
}  // namespace airdma::verbs
