// SPDX-License-Identifier: MIT
// What ibv_modify_qp does to a queue pair that is connected: SQD, rights, errors, another life.
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/verbs/pairs_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

class ConnectedQueuePairTest : public CmTest {
 protected:
  void SetUp() override {
    establish_connection();
    mr_ = *verbs::reg_mr(passive_->pd, memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }
  void TearDown() override {
    EXPECT_TRUE(verbs::dereg_mr(mr_));
    CmTest::TearDown();
  }

  static int modify(ibv_qp* qp, ibv_qp_attr attr, int mask) {
    const Status status = verbs::modify_qp(qp, &attr, mask);
    return status ? 0 : status.error().code;
  }
  static int to(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return modify(qp, attr, IBV_QP_STATE);
  }
  static int to_init(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    return modify(qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }
  static ibv_qp_attr query(ibv_qp* qp) {
    ibv_qp_attr attr{};
    EXPECT_TRUE(verbs::query_qp(qp, &attr, 0, nullptr));
    EXPECT_EQ(attr.cur_qp_state, attr.qp_state);
    EXPECT_EQ(qp->state, attr.qp_state);
    return attr;
  }
  /// Of no bytes unless `sge` is given.
  int write(ibv_qp* qp, ibv_sge* sge) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.sg_list = sge;
    wr.num_sge = sge != nullptr ? 1 : 0;
    wr.wr.rdma = {.remote_addr = reinterpret_cast<std::uintptr_t>(memory_.data()),
                  .rkey = mr_->rkey};
    ibv_send_wr* bad = nullptr;
    return verbs::post_send(qp, &wr, &bad);
  }
  /// The next completion; a GENERAL_ERR when none comes.
  static ibv_wc next(ibv_cq* cq) {
    ibv_wc wc{};
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < limit) {
      if (verbs::poll_cq(cq, 1, &wc) == 1) return wc;
    }
    wc.wr_id = ~std::uint64_t{0};
    wc.status = IBV_WC_GENERAL_ERR;
    return wc;
  }
  static bool nothing(ibv_cq* cq) {
    ibv_wc wc{};
    return verbs::poll_cq(cq, 1, &wc) == 0;
  }
  static void expect_event(ibv_qp* qp, ibv_event_type type) {
    pollfd entry{qp->context->async_fd, POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 20'000), 1);
    ibv_async_event event{};
    ASSERT_TRUE(verbs::get_async_event(qp->context, &event));
    EXPECT_EQ(event.event_type, type);
    EXPECT_EQ(event.element.qp, qp);
    verbs::ack_async_event(&event);
  }
  static int drain(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    return modify(qp, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
  }

  std::array<char, 64> memory_{};
  ibv_mr* mr_ = nullptr;
};

TEST_F(ConnectedQueuePairTest, SqdHoldsSendsUntilRts) {
  ibv_qp* qp = client_->qp;
  ASSERT_EQ(drain(qp), 0);
  expect_event(qp, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(query(qp).qp_state, IBV_QPS_SQD);
  EXPECT_EQ(query(qp).sq_draining, 0);
  EXPECT_EQ(receive(passive_->qp, 7), 0);
  EXPECT_EQ(send(qp, 1), 0);
  EXPECT_EQ(send(qp, 2), 0);
  // The other direction goes on. Nothing else may have come before what it carries.
  EXPECT_EQ(receive(qp, 8), 0);
  EXPECT_EQ(send(passive_->qp, 3), 0);
  EXPECT_EQ(next(client_->recv_cq).wr_id, 8u);
  EXPECT_TRUE(nothing(client_->send_cq));
  EXPECT_TRUE(nothing(passive_->recv_cq));
  EXPECT_EQ(to(qp, IBV_QPS_RTS), 0);
  EXPECT_EQ(query(qp).qp_state, IBV_QPS_RTS);
  EXPECT_EQ(next(client_->send_cq).wr_id, 1u);
  EXPECT_EQ(next(passive_->recv_cq).wr_id, 7u);
  EXPECT_EQ(next(client_->send_cq).wr_id, 2u);
}

TEST_F(ConnectedQueuePairTest, SqdTakesTheAttributesOfItsTable) {
  ibv_qp* qp = client_->qp;
  ASSERT_EQ(to(qp, IBV_QPS_SQD), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.timeout = 14;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  EXPECT_EQ(modify(qp, attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_ACCESS_FLAGS), 0);
  EXPECT_EQ(query(qp).timeout, 14);
  attr.timeout = 32;
  EXPECT_EQ(modify(qp, attr, IBV_QP_STATE | IBV_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(modify(qp, attr, IBV_QP_STATE | IBV_QP_QKEY), EINVAL);
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_RTS;
  EXPECT_EQ(modify(qp, attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
  attr.cur_qp_state = IBV_QPS_SQD;
  EXPECT_EQ(modify(qp, attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
}

TEST_F(ConnectedQueuePairTest, OnlyTheMovesOfTheTableExist) {
  ibv_qp* qp = client_->qp;
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQE}) {
    EXPECT_EQ(to(qp, state), EINVAL) << state;
    EXPECT_EQ(query(qp).qp_state, IBV_QPS_RTS);
  }
  EXPECT_EQ(to(qp, IBV_QPS_RTS), 0);
  ASSERT_EQ(to(qp, IBV_QPS_SQD), 0);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQE}) {
    EXPECT_EQ(to(qp, state), EINVAL) << state;
    EXPECT_EQ(query(qp).qp_state, IBV_QPS_SQD);
  }
  EXPECT_EQ(to(qp, IBV_QPS_ERR), 0);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD}) {
    EXPECT_EQ(to(qp, state), EINVAL) << state;
  }
  EXPECT_EQ(to(qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(to(qp, IBV_QPS_RESET), 0);
}

TEST_F(ConnectedQueuePairTest, WhatSqdHeldIsFlushedInErr) {
  ibv_qp* qp = client_->qp;
  ASSERT_EQ(to(qp, IBV_QPS_SQD), 0);
  EXPECT_EQ(receive(qp, 5), 0);
  EXPECT_EQ(send(qp, 1), 0);
  ASSERT_EQ(to(qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(send(qp, 2), 0);
  EXPECT_EQ(receive(qp, 6), 0);
  for (const std::uint64_t id : {1, 2}) {
    const ibv_wc wc = next(client_->send_cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  }
  for (const std::uint64_t id : {5, 6}) {
    const ibv_wc wc = next(client_->recv_cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  }
}

TEST_F(ConnectedQueuePairTest, RightsChangeWhileItIsConnected) {
  ibv_mr* source = *verbs::reg_mr(client_->pd, memory_.data(), memory_.size(), 0);
  ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(memory_.data() + 32),
              .length = 8,
              .lkey = source->lkey};
  memory_[32] = 'x';
  EXPECT_EQ(receive(passive_->qp, 1), 0);
  EXPECT_EQ(write(client_->qp, &sge), 0);
  EXPECT_EQ(send(client_->qp, 2), 0);
  EXPECT_EQ(next(passive_->recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(memory_[0], 'x');

  ibv_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(modify(passive_->qp, attr, IBV_QP_ACCESS_FLAGS), 0);
  memory_[0] = 'y';
  EXPECT_EQ(receive(passive_->qp, 3), 0);
  EXPECT_EQ(write(client_->qp, &sge), 0);
  EXPECT_EQ(next(passive_->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(memory_[0], 'y');
  expect_event(passive_->qp, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_TRUE(verbs::dereg_mr(source));
}

TEST_F(ConnectedQueuePairTest, QueryTellsWhatConnectionSetupAgreedOn) {
  const ibv_qp_attr attr = query(client_->qp);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_GE(attr.path_mtu, IBV_MTU_256);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.sq_draining, 0);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.max_dest_rd_atomic, 4);
}

TEST_F(ConnectedQueuePairTest, IsConnectedAgainAfterReset) {
  // What was posted and completed before is gone.
  EXPECT_EQ(receive(client_->qp, 90), 0);
  ASSERT_EQ(to(client_->qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  for (rdma_cm_id** id : {&client_, &passive_}) {
    ASSERT_EQ(to((*id)->qp, IBV_QPS_RESET), 0);
    ASSERT_EQ(to_init((*id)->qp), 0);
  }
  EXPECT_TRUE(nothing(client_->recv_cq));
  rdma_cm_id* const old_client = client_;
  rdma_cm_id* const old_passive = passive_;
  client_ = new_id(client_channel_);
  auto peer = address("127.0.0.1", port_);
  ASSERT_TRUE(resolve_addr(client_, nullptr, raw(peer), 1000));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_TRUE(resolve_route(client_, 1000));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
  client_->qp = old_client->qp;
  auto wanted = param("");
  ASSERT_TRUE(connect(client_, &wanted));
  passive_ = server_.next().id;
  passive_->qp = old_passive->qp;
  ASSERT_TRUE(accept(passive_, nullptr));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  for (std::uint64_t round = 1; round <= 10; ++round) {
    EXPECT_EQ(receive(old_passive->qp, round), 0);
    EXPECT_EQ(send(old_client->qp, 100 + round), 0);
    EXPECT_EQ(next(old_client->send_cq).wr_id, 100 + round);
    const ibv_wc wc = next(old_passive->recv_cq);
    EXPECT_EQ(wc.wr_id, round);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  client_->qp = passive_->qp = nullptr;
  drop(old_client);
  drop(old_passive);
}

}  // namespace
}  // namespace airdma::cm
