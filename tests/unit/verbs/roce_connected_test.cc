// SPDX-License-Identifier: MIT
// RC and UC queue pairs over loopback.
#include "tests/unit/verbs/roce_fixture.h"

namespace airdma::verbs {
namespace {

using RoceConnectedTest = RoceTest;

TEST_F(RoceConnectedTest, SendsArriveInOrderAndWhole) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  fill(a_, 1);
  const std::uint32_t sizes[] = {0, 1, 1023, 1024, 1025, 100'000};
  for (std::uint64_t id = 0; id < std::size(sizes); ++id) {
    ASSERT_EQ(receive(b_.qp, 100 + id, piece(b_, 0, kMemory)), 0);
    ASSERT_EQ(send(id, sizes[id]), 0);
    const ibv_wc got = next(b_.cq);
    EXPECT_EQ(got.wr_id, 100 + id);
    EXPECT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_EQ(got.opcode, IBV_WC_RECV);
    EXPECT_EQ(got.byte_len, sizes[id]);
    EXPECT_EQ(got.wc_flags, 0u);
    EXPECT_EQ(got.qp_num, b_.qp->qp_num);
    EXPECT_TRUE(same(sizes[id]));
    expect(a_.cq, id);
  }
}

TEST_F(RoceConnectedTest, OneSidedOperationsMoveMemory) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  fill(a_, 1);
  ASSERT_EQ(remote(1, IBV_WR_RDMA_WRITE, 300'000, b_.mr->rkey), 0);
  expect(a_.cq, 1);
  EXPECT_TRUE(same(300'000));
  fill(b_, 9);
  ASSERT_EQ(remote(2, IBV_WR_RDMA_READ, 300'000, b_.mr->rkey), 0);
  expect(a_.cq, 2);
  EXPECT_TRUE(same(300'000));
}

TEST_F(RoceConnectedTest, AtomicsAnswerTheValueBefore) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  const std::uint64_t before = 40;
  std::memcpy(b_.memory.data(), &before, sizeof before);
  ibv_sge sge = piece(a_, 0, 8);
  ibv_send_wr wr = request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, sge);
  wr.wr.atomic = {.remote_addr = reinterpret_cast<std::uintptr_t>(b_.memory.data()),
                  .compare_add = 2,
                  .swap = 0,
                  .rkey = b_.mr->rkey};
  ASSERT_EQ(post(a_.qp, wr), 0);
  expect(a_.cq, 1);
  std::uint64_t value = 0;
  std::memcpy(&value, a_.memory.data(), sizeof value);
  EXPECT_EQ(value, 40u);
  std::memcpy(&value, b_.memory.data(), sizeof value);
  EXPECT_EQ(value, 42u);
}

TEST_F(RoceConnectedTest, ImmediatesAndInvalidationsReachTheReceiver) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 4096, 64)), 0);
  ibv_sge sge = piece(a_, 0, 16);
  ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, sge);
  wr.imm_data = 0x12345678;
  wr.wr.rdma = {.remote_addr = reinterpret_cast<std::uintptr_t>(b_.memory.data()),
                .rkey = b_.mr->rkey};
  ASSERT_EQ(post(a_.qp, wr), 0);
  const ibv_wc got = next(b_.cq);
  EXPECT_EQ(got.wr_id, 7u);
  EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(got.wc_flags, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(got.imm_data, 0x12345678u);
  expect(a_.cq, 1);
}

TEST_F(RoceConnectedTest, WhatNoMessageReachesOfAReceiveIsNotAsked) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  fill(a_, 1);
  const std::uint32_t inside = 6'000;  // several packets; the rest lies behind the region
  ibv_sge sge = piece(b_, kMemory - inside, 64'000);
  ASSERT_EQ(receive(b_.qp, 7, sge), 0);
  ASSERT_EQ(send(1, inside), 0);
  const ibv_wc got = next(b_.cq);
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.byte_len, inside);
  EXPECT_EQ(std::memcmp(a_.memory.data(), b_.memory.data() + kMemory - inside, inside), 0);
  expect(a_.cq, 1);
  ASSERT_EQ(receive(b_.qp, 8, sge), 0);
  ASSERT_EQ(send(2, inside + 1), 0);
  EXPECT_EQ(next(b_.cq).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RoceConnectedTest, WrongKeysAreRemoteAccessErrorsAndEvents) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 64)), 0);
  ASSERT_EQ(remote(1, IBV_WR_RDMA_WRITE, 8, b_.mr->rkey ^ 0x100), 0);
  ASSERT_EQ(send(2, 8), 0);
  expect(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  expect(a_.cq, 2, IBV_WC_WR_FLUSH_ERR);
  expect(b_.cq, 7, IBV_WC_WR_FLUSH_ERR);
  expect_event(IBV_EVENT_QP_ACCESS_ERR, b_.qp);
  EXPECT_EQ(state_of(a_.qp), IBV_QPS_ERR);
  EXPECT_EQ(state_of(b_.qp), IBV_QPS_ERR);
}

TEST_F(RoceConnectedTest, RightsOfTheQueuePairCount) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC, {.access = IBV_ACCESS_LOCAL_WRITE}));
  ASSERT_EQ(remote(1, IBV_WR_RDMA_READ, 8, b_.mr->rkey), 0);
  EXPECT_NE(next(a_.cq).status, IBV_WC_SUCCESS);
}

TEST_F(RoceConnectedTest, TooLongAMessageIsALengthErrorOfTheReceiver) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 63)), 0);
  ASSERT_EQ(send(1, 64), 0);
  expect(a_.cq, 1, IBV_WC_REM_INV_REQ_ERR);
  expect(b_.cq, 7, IBV_WC_LOC_LEN_ERR);
}

TEST_F(RoceConnectedTest, WaitsForAReceiveAsLongAsItMay) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  ASSERT_EQ(send(1, 64), 0);
  ibv_wc wc{};
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < limit) EXPECT_EQ(poll_cq(a_.cq, 1, &wc), 0);
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 64)), 0);
  expect(a_.cq, 1);
  expect(b_.cq, 7);
}

TEST_F(RoceConnectedTest, GivesUpWhenNoReceiveIsPosted) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC, {.rnr_retry = 1}));
  ASSERT_EQ(send(1, 64), 0);
  expect(a_.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(RoceConnectedTest, GivesUpWhenThePeerIsGone) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC, {.timeout = 8, .retry_count = 1}));
  ASSERT_EQ(error_of(destroy_qp(b_.qp)), 0);
  ASSERT_EQ(send(1, 64), 0);
  expect(a_.cq, 1, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(RoceConnectedTest, ErrFlushesInOrderAndWhatComesAfter) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(receive(a_.qp, id, piece(a_, 0, 8)), 0);
  ASSERT_EQ(to_state(a_.qp, IBV_QPS_ERR), 0);
  for (std::uint64_t id = 0; id < 3; ++id) expect(a_.cq, id, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(receive(a_.qp, 8, piece(a_, 0, 8)), 0);
  expect(a_.cq, 8, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(send(9, 8), 0);
  expect(a_.cq, 9, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(RoceConnectedTest, LivesAgainAfterReset) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  ASSERT_EQ(receive(b_.qp, 1, piece(b_, 0, 64)), 0);
  for (ibv_qp* qp : {a_.qp, b_.qp}) ASSERT_EQ(to_state(qp, IBV_QPS_RESET), 0);
  ibv_wc wc{};
  EXPECT_EQ(poll_cq(b_.cq, 1, &wc), 0);
  ASSERT_NO_FATAL_FAILURE(connect(a_.qp, b_.qp));
  ASSERT_EQ(receive(b_.qp, 2, piece(b_, 0, 64)), 0);
  ASSERT_EQ(send(3, 64), 0);
  expect(a_.cq, 3);
  expect(b_.cq, 2);
}

TEST_F(RoceConnectedTest, SqdHoldsSendsUntilRts) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC));
  ASSERT_EQ(receive(b_.qp, 2, piece(b_, 0, 64)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(error_of(modify_qp(a_.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY)), 0);
  expect_event(IBV_EVENT_SQ_DRAINED, a_.qp);
  ASSERT_EQ(send(1, 64), 0);
  ibv_wc wc{};
  EXPECT_EQ(poll_cq(b_.cq, 1, &wc), 0);
  ASSERT_EQ(to_state(a_.qp, IBV_QPS_RTS), 0);
  expect(a_.cq, 1);
  expect(b_.cq, 2);
}

TEST_F(RoceConnectedTest, QueryTellsWhatWasSet) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_RC, {.reads = 3, .timeout = 15}));
  ASSERT_EQ(remote(1, IBV_WR_RDMA_WRITE, 10 * 1024, b_.mr->rkey), 0);
  expect(a_.cq, 1);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(error_of(query_qp(a_.qp, &attr, 0, &init)), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.sq_psn, 4u);  // 0xfffffa and ten packets
  EXPECT_EQ(attr.dest_qp_num, b_.qp->qp_num);
  EXPECT_EQ(attr.timeout, 15);
  EXPECT_EQ(attr.max_rd_atomic, 3);
  EXPECT_EQ(attr.ah_attr.port_num, 1);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
}

TEST_F(RoceConnectedTest, RefusesValuesThatDoNotExist) {
  ASSERT_NO_FATAL_FAILURE(make(a_, IBV_QPT_RC));
  ASSERT_EQ(to_init(a_.qp), 0);
  const auto with = [&](auto change) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = path(context_, 0);
    attr.path_mtu = IBV_MTU_1024;
    attr.max_dest_rd_atomic = 1;
    change(attr);
    return error_of(modify_qp(a_.qp, &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                  IBV_QP_MIN_RNR_TIMER));
  };
  EXPECT_EQ(with([](auto& attr) { attr.ah_attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.ah_attr.is_global = 0; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.ah_attr.grh.sgid_index = 31; }), ENODATA);
  EXPECT_EQ(with([](auto& attr) { attr.ah_attr.grh.sgid_index = 200; }), ENODATA);
  EXPECT_EQ(with([](auto& attr) { attr.ah_attr.grh.dgid = {}; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { set_raw(attr.path_mtu, 0); }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { set_raw(attr.path_mtu, 6); }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.dest_qp_num = 1 << 24; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.rq_psn = 1 << 24; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.max_dest_rd_atomic = 255; }), EINVAL);
  EXPECT_EQ(with([](auto& attr) { attr.min_rnr_timer = 32; }), EINVAL);
  EXPECT_EQ(state_of(a_.qp), IBV_QPS_INIT);
  EXPECT_EQ(with([](auto&) {}), 0);
}

// --- UC ---

TEST_F(RoceConnectedTest, UnreliableConnectionsCarrySendsAndWrites) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_UC));
  fill(a_, 1);
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, kMemory)), 0);
  ASSERT_EQ(send(1, 5000), 0);
  expect(a_.cq, 1);
  EXPECT_EQ(next(b_.cq).byte_len, 5000u);
  EXPECT_TRUE(same(5000));
  ASSERT_EQ(receive(b_.qp, 8, piece(b_, 0, kMemory)), 0);
  fill(b_, 9);
  ASSERT_EQ(remote(2, IBV_WR_RDMA_WRITE, 3000, b_.mr->rkey), 0);
  expect(a_.cq, 2);
  ASSERT_EQ(send(3, 0), 0);
  expect(a_.cq, 3);
  expect(b_.cq, 8);
  EXPECT_TRUE(same(3000));
}

TEST_F(RoceConnectedTest, UnreliableConnectionsHaveNoReads) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_UC));
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV}) {
    EXPECT_EQ(remote(1, opcode, 8, b_.mr->rkey), EINVAL) << opcode;
  }
}

TEST_F(RoceConnectedTest, UnreliableConnectionsDropWhatTheyMayNotWrite) {
  ASSERT_NO_FATAL_FAILURE(make_pair(IBV_QPT_UC));
  ASSERT_EQ(receive(b_.qp, 7, piece(b_, 0, 64)), 0);
  ASSERT_EQ(remote(1, IBV_WR_RDMA_WRITE, 8, b_.mr->rkey ^ 0x100), 0);
  ASSERT_EQ(send(2, 8), 0);
  expect(a_.cq, 1);
  expect(a_.cq, 2);
  expect(b_.cq, 7);
  EXPECT_EQ(state_of(b_.qp), IBV_QPS_RTS);
}

}  // namespace
}  // namespace airdma::verbs
