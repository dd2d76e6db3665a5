// SPDX-License-Identifier: MIT
// UD queue pairs over loopback: address handles, the header in front of what is received, Q_Keys,
// multicast, the extended posting interface.
#include "tests/unit/verbs/roce_fixture.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kGrh = 40;

class RoceDatagramTest : public RoceTest {
 protected:
  void SetUp() override {
    RoceTest::SetUp();
    if (HasFatalFailure()) return;
    for (End* end : {&a_, &b_}) {
      ASSERT_NO_FATAL_FAILURE(make(*end, IBV_QPT_UD));
      ready(end->qp);
    }
    ah_ = handle_to(path(context_, gid_index_));
  }
  void ready(ibv_qp* qp) const {
    ASSERT_EQ(to_init(qp), 0);
    ASSERT_EQ(to_rtr(qp, 0), 0);
    ASSERT_EQ(to_rts(qp), 0);
  }
  ibv_ah* handle_to(ibv_ah_attr attr) { return *create_ah(pd_, &attr); }
  int datagram(std::uint64_t id, std::uint32_t bytes, std::uint32_t qkey = kTestQkey) {
    ibv_sge sge = piece(a_, 0, bytes);
    ibv_send_wr wr = request(id, IBV_WR_SEND, sge);
    wr.wr.ud = {.ah = ah_, .remote_qpn = b_.qp->qp_num, .remote_qkey = qkey};
    return post(a_.qp, wr);
  }

  ibv_ah* ah_ = nullptr;
};

TEST_F(RoceDatagramTest, ArriveBehindAHeaderAndNameTheirSender) {
  fill(a_, 1);
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 4096)), 0);
  ASSERT_EQ(datagram(1, 100), 0);
  expect(a_.cq, 1);
  const ibv_wc got = next(b_.cq);
  EXPECT_EQ(got.wr_id, 7u);
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.byte_len, kGrh + 100);
  EXPECT_EQ(got.wc_flags, unsigned{IBV_WC_GRH});
  EXPECT_EQ(got.sl, 0xa);  // UDP over IPv4
  EXPECT_EQ(got.src_qp, a_.qp->qp_num);
  EXPECT_TRUE(same(100, kGrh));
  EXPECT_EQ(b_.memory[20], 0x45);  // the IPv4 header in the header's last 20 bytes
}

TEST_F(RoceDatagramTest, AreAnsweredThroughTheirCompletion) {
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 4096)), 0);
  ibv_ah_attr to_b = path(context_, gid_index_);
  to_b.grh.traffic_class = 0x28;
  to_b.grh.hop_limit = 17;
  ah_ = handle_to(to_b);
  ASSERT_EQ(datagram(1, 8), 0);
  ibv_wc got = next(b_.cq);
  auto* grh = reinterpret_cast<ibv_grh*>(b_.memory.data());
  ibv_ah_attr back{};
  ASSERT_EQ(error_of(init_ah_from_wc(context_, 1, &got, grh, &back)), 0);
  EXPECT_EQ(back.is_global, 1);
  EXPECT_EQ(back.port_num, 1);
  EXPECT_EQ(back.grh.sgid_index, gid_index_);
  EXPECT_EQ(back.grh.traffic_class, 0x28);
  EXPECT_EQ(std::memcmp(&back.grh.dgid, &to_b.grh.dgid, sizeof back.grh.dgid), 0);
  const auto answer = create_ah_from_wc(pd_, &got, grh, 1);
  ASSERT_TRUE(answer);
  ASSERT_EQ(receive(a_.qp, 8, piece(a_, 4096, 4096)), 0);
  ibv_sge sge = piece(b_, 0, 9);
  ibv_send_wr wr = request(2, IBV_WR_SEND, sge);
  wr.wr.ud = {.ah = *answer, .remote_qpn = got.src_qp, .remote_qkey = kTestQkey};
  ASSERT_EQ(post(b_.qp, wr), 0);
  expect(b_.cq, 2);
  expect(a_.cq, 1);
  EXPECT_EQ(next(a_.cq).byte_len, kGrh + 9);
}

// Also when the program posts one before anybody has looked for what came.
TEST_F(RoceDatagramTest, WithoutAReceiveVanish) {
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(datagram(1, 8), 0);
    expect(a_.cq, 1);
    ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 4096)), 0);
    ASSERT_EQ(datagram(2, 9), 0);
    expect(a_.cq, 2);
    ASSERT_EQ(next(b_.cq).byte_len, kGrh + 9) << round;
  }
}

TEST_F(RoceDatagramTest, WithAnotherKeyVanish) {
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 4096)), 0);
  ASSERT_EQ(datagram(1, 8, kTestQkey + 1), 0);
  ASSERT_EQ(datagram(2, 9), 0);
  expect(a_.cq, 1);
  expect(a_.cq, 2);
  EXPECT_EQ(next(b_.cq).byte_len, kGrh + 9);
}

TEST_F(RoceDatagramTest, LongerThanThePortCarriesAreLengthErrorsThatLeaveTheReceiverAlone) {
  ASSERT_EQ(receive(a_.qp, 7, piece(a_, 0, 64)), 0);
  ASSERT_EQ(datagram(1, 4097), 0);
  expect(a_.cq, 1, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(state_of(a_.qp), IBV_QPS_SQE);
  ASSERT_EQ(datagram(2, 8), 0);
  expect(a_.cq, 2, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_SQE;
  ASSERT_EQ(error_of(modify_qp(a_.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE)), 0);
  ASSERT_EQ(receive(b_.qp, 8, piece(b_, 0, 4096)), 0);
  ASSERT_EQ(datagram(3, 8), 0);
  expect(a_.cq, 3);
  expect(b_.cq, 8);
}

TEST_F(RoceDatagramTest, NeedAnAddressHandleOfTheirDomain) {
  ibv_ah* good = ah_;
  ah_ = nullptr;
  EXPECT_EQ(datagram(1, 8), EINVAL);
  ibv_pd* other = *alloc_pd(context_);
  ibv_ah_attr attr = path(context_, gid_index_);
  ah_ = *create_ah(other, &attr);
  EXPECT_EQ(datagram(1, 8), EINVAL);
  EXPECT_EQ(error_of(dealloc_pd(other)), EBUSY);
  EXPECT_EQ(error_of(destroy_ah(ah_)), 0);
  EXPECT_EQ(error_of(dealloc_pd(other)), 0);
  EXPECT_EQ(error_of(destroy_ah(ah_)), EINVAL);
  EXPECT_EQ(datagram(1, 8), EINVAL);
  EXPECT_EQ(error_of(destroy_ah(good)), 0);
}

TEST_F(RoceDatagramTest, AddressHandlesRefuseWhatDoesNotExist) {
  const auto with = [&](auto change) {
    ibv_ah_attr attr = path(context_, gid_index_);
    change(attr);
    return error_of(create_ah(pd_, &attr));
  };
  EXPECT_EQ(with([](auto& attr) { attr.port_num = 0; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.is_global = 0; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.grh.sgid_index = 31; }), ENODATA);
  EXPECT_EQ(with([](auto& attr) { attr.grh.dgid = {}; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.grh.dgid.raw[0] = 0x20; }), EINVAL);  // another family
  EXPECT_EQ(error_of(create_ah(nullptr, nullptr)), EINVAL);
}

TEST_F(RoceDatagramTest, HaveNoOneSidedOperations) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV,
                                     IBV_WR_BIND_MW, IBV_WR_LOCAL_INV}) {
    EXPECT_EQ(remote(1, opcode, 8, b_.mr->rkey), EINVAL) << opcode;
  }
}

TEST_F(RoceDatagramTest, ReachTheMembersOfAGroup) {
  ibv_gid group{.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
  ASSERT_EQ(error_of(attach_mcast(b_.qp, &group, 0)), 0);
  EXPECT_EQ(error_of(attach_mcast(b_.qp, &group, 0)), 0);
  EXPECT_EQ(error_of(destroy_qp(b_.qp)), EBUSY);
  ibv_ah_attr to_group = path(context_, gid_index_);
  to_group.grh.dgid = group;
  ah_ = handle_to(to_group);
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 4096)), 0);
  ibv_sge sge = piece(a_, 0, 8);
  ibv_send_wr wr = request(1, IBV_WR_SEND, sge);
  wr.wr.ud = {.ah = ah_, .remote_qpn = 0xffffff, .remote_qkey = kTestQkey};
  ASSERT_EQ(post(a_.qp, wr), 0);
  expect(a_.cq, 1);
  expect(b_.cq, 7);
  EXPECT_EQ(error_of(detach_mcast(b_.qp, &group, 0xc000)), EINVAL);
  EXPECT_EQ(error_of(detach_mcast(b_.qp, &group, 0)), 0);
  EXPECT_EQ(error_of(detach_mcast(b_.qp, &group, 0)), EINVAL);
  ibv_gid host = path(context_, gid_index_).grh.dgid;
  EXPECT_EQ(error_of(attach_mcast(b_.qp, &host, 0)), EINVAL);
}

// As the kernel counts them, whatever the device makes of a LID.
TEST_F(RoceDatagramTest, AreMembersOfAGroupOnceForEachLid) {
  const ibv_gid group{.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 4}};
  ASSERT_EQ(error_of(attach_mcast(b_.qp, &group, 0)), 0);
  ASSERT_EQ(error_of(attach_mcast(b_.qp, &group, 0xc001)), 0);
  EXPECT_EQ(error_of(detach_mcast(b_.qp, &group, 0)), 0);
  EXPECT_EQ(error_of(destroy_qp(b_.qp)), EBUSY);
  EXPECT_EQ(error_of(detach_mcast(b_.qp, &group, 0)), EINVAL);
  EXPECT_EQ(error_of(detach_mcast(b_.qp, &group, 0xc001)), 0);
}

class RoceExtendedPostTest : public RoceDatagramTest {
 protected:
  void SetUp() override {
    RoceDatagramTest::SetUp();
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = a_.cq;
    attr.qp_type = IBV_QPT_UD;
    attr.cap = wanted(IBV_QPT_UD, a_).cap;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    attr.pd = pd_;
    const auto qp = create_qp_ex(context_, &attr);
    ASSERT_TRUE(qp);
    ready(*qp);
    qp_ = qp_to_qp_ex(*qp);
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    EXPECT_EQ(error_of(create_qp_ex(context_, &attr)), EOPNOTSUPP);
  }
  void begin(std::uint64_t id) {
    qp_->wr_id = id;
    qp_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp_);
  }
  void set_peer() { ibv_wr_set_ud_addr(qp_, ah_, b_.qp->qp_num, kTestQkey); }
  void set_data(std::uint32_t bytes) {
    ibv_wr_set_sge(qp_, a_.mr->lkey, reinterpret_cast<std::uintptr_t>(a_.memory.data()), bytes);
  }

  ibv_qp_ex* qp_ = nullptr;
};

TEST_F(RoceExtendedPostTest, ThePeerIsSetBeforeTheDataOrAfter) {
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(receive(b_.qp, id, piece(b_, 0, 4096)), 0);
  ibv_wr_start(qp_);
  begin(1);
  set_peer();
  set_data(10);
  begin(2);
  set_data(20);
  set_peer();
  begin(3);
  set_peer();
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) expect(a_.cq, id);
  for (const std::uint32_t bytes : {10u, 20u, 0u}) EXPECT_EQ(next(b_.cq).byte_len, kGrh + bytes);
}

TEST_F(RoceExtendedPostTest, WithoutAPeerNothingIsPosted) {
  ibv_wr_start(qp_);
  begin(1);
  set_data(10);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  ibv_wr_start(qp_);
  begin(1);
  set_data(10);
  begin(2);
  set_peer();
  set_data(10);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  ibv_wr_start(qp_);
  begin(1);
  ibv_wr_set_xrc_srqn(qp_, 1);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  ibv_wc wc{};
  EXPECT_EQ(poll_cq(a_.cq, 1, &wc), 0);
}

}  // namespace
}  // namespace airdma::verbs
