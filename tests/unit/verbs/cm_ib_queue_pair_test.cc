// SPDX-License-Identifier: MIT
// Queue pairs that a program makes or destroys itself, under connections over RoCE devices.
#include "tests/unit/verbs/cm_ib_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

using CmIbQueuePairTest = CmIbFixture;

/// A queue pair that the program makes itself, and moves by what the id knows.
class OwnQueuePair {
 public:
  explicit OwnQueuePair(rdma_cm_id* id)
      : id_(id), cq_(*verbs::create_cq(id->verbs, 16, nullptr, nullptr, 0)) {
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = cq_;
    qp_ = *verbs::create_qp(id->pd, &attr);
  }
  ~OwnQueuePair() {
    EXPECT_TRUE(verbs::destroy_qp(qp_));
    EXPECT_TRUE(verbs::destroy_cq(cq_));
  }
  OwnQueuePair(const OwnQueuePair&) = delete;
  OwnQueuePair& operator=(const OwnQueuePair&) = delete;

  void move(ibv_qp_state to) {
    ibv_qp_attr next{};
    int mask = 0;
    next.qp_state = to;
    EXPECT_EQ(code_of(init_qp_attr(id_, &next, &mask)), 0) << to;
    EXPECT_EQ(code_of(verbs::modify_qp(qp_, &next, mask)), 0) << to;
  }
  [[nodiscard]] ibv_qp* get() const { return qp_; }
  [[nodiscard]] rdma_conn_param named() const {
    rdma_conn_param wanted{};
    wanted.qp_num = qp_->qp_num;
    return wanted;
  }

 private:
  rdma_cm_id* id_;
  ibv_cq* cq_;
  ibv_qp* qp_ = nullptr;
};

TEST_F(CmIbQueuePairTest, AProgramsOwnQueuePairMovesByTheIdsAttributes) {
  start_listening();
  client_ = new_client(client_channel_);
  destroy_qp(client_);
  {
    OwnQueuePair own(client_);
    auto wanted = own.named();
    own.move(IBV_QPS_INIT);
    ASSERT_EQ(code_of(connect(client_, &wanted)), 0);
    passive_ = server_.next().id;
    ASSERT_TRUE(give_qp(passive_));
    ASSERT_TRUE(accept(passive_, nullptr));
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
    own.move(IBV_QPS_RTR);
    own.move(IBV_QPS_RTS);
    ASSERT_EQ(code_of(establish(client_)), 0);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(attributes(own.get()).dest_qp_num, passive_->qp->qp_num);
    drop(std::exchange(client_, nullptr));
  }
}

// A server's is ready before it accepts.
TEST_F(CmIbQueuePairTest, AServersOwnQueuePairExpectsWhatItsAnswerSays) {
  start_listening();
  client_ = new_client(client_channel_);
  ASSERT_EQ(code_of(connect(client_, nullptr)), 0);
  passive_ = server_.next().id;
  {
    OwnQueuePair own(passive_);
    auto answer = own.named();
    own.move(IBV_QPS_INIT);
    own.move(IBV_QPS_RTR);
    own.move(IBV_QPS_RTS);
    ASSERT_EQ(code_of(accept(passive_, &answer)), 0);
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(attributes(own.get()).rq_psn, attributes(client_->qp).sq_psn);
    EXPECT_EQ(attributes(own.get()).sq_psn, attributes(client_->qp).rq_psn);
    drop(std::exchange(passive_, nullptr));
  }
}

// The kernel's RDMA CM knows queue pairs by their numbers alone.
TEST_F(CmIbQueuePairTest, AConnectionOutlivesItsQueuePair) {
  establish_connection();
  destroy_qp(client_);
  EXPECT_EQ(client_->qp, nullptr);
  EXPECT_FALSE(client_channel_.readable());
  ASSERT_EQ(code_of(disconnect(client_)), 0);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(code_of(disconnect(passive_)), 0);  // which answers
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(client_channel_.readable());
}

TEST_F(CmIbQueuePairTest, AConnectionWithoutItsQueuePairEndsWithItsId) {
  establish_connection();
  destroy_qp(client_);
  ASSERT_TRUE(destroy_id(std::exchange(client_, nullptr)));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(server_.readable());
}

TEST_F(CmIbQueuePairTest, AnAnswerThatFindsNoQueuePairIsTheProgramsToUse) {
  start_listening();
  request();
  destroy_qp(client_);
  EXPECT_FALSE(client_channel_.readable());
  ASSERT_TRUE(accept(passive_, nullptr));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  destroy_qp(passive_);
  ASSERT_EQ(code_of(establish(client_)), 0);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace
}  // namespace airdma::cm
