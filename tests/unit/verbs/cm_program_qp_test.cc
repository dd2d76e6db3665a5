// SPDX-License-Identifier: MIT
// Queue pairs that the program makes and moves itself, and names by their number: rping -q and
// frameworks that manage queue pairs without the connection manager.
#include <thread>
#include <vector>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

class CmProgramQpTest : public CmTest {
 protected:
  /// What a program makes without rdma_create_qp, moved to INIT.
  struct Made {
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
  };

  Made make_qp(rdma_cm_id* id) {
    Made made;
    made.cq = verbs::create_cq(id->verbs, 8, nullptr, nullptr, 0).value();
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = made.cq;
    made.qp = verbs::create_qp(id->pd, &attr).value();
    made_.push_back(made);
    step(id, made.qp, IBV_QPS_INIT);
    return made;
  }
  static void step(rdma_cm_id* id, ibv_qp* qp, ibv_qp_state to, int error = 0) {
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = to;
    ASSERT_TRUE(init_qp_attr(id, &attr, &mask));
    EXPECT_EQ(code_of(verbs::modify_qp(qp, &attr, mask)), error) << to;
  }
  static rdma_conn_param naming(const ibv_qp* qp) {
    rdma_conn_param result{};
    result.responder_resources = result.initiator_depth = 4;
    result.qp_num = qp->qp_num;
    return result;
  }
  /// Up to CONNECT_RESPONSE at the active side. The passive side has ESTABLISHED already.
  void answer() {
    start_listening();
    client_ = new_client(client_channel_);
    destroy_qp(client_);
    active_qp_ = make_qp(client_).qp;
    auto wanted = naming(active_qp_);
    ASSERT_TRUE(connect(client_, &wanted));
    passive_ = server_.next().id;
    passive_qp_ = make_qp(passive_).qp;
    step(passive_, passive_qp_, IBV_QPS_RTR);
    step(passive_, passive_qp_, IBV_QPS_RTS);
    auto given = naming(passive_qp_);
    ASSERT_TRUE(accept(passive_, &given));
    ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    const Seen response = client_channel_.next();
    ASSERT_EQ(response.type, RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(response.responder_resources, 4);
    EXPECT_EQ(response.initiator_depth, 4);
  }
  void TearDown() override {
    for (const Made& made : made_) {
      if (made.qp != nullptr) {
        EXPECT_EQ(code_of(verbs::destroy_qp(made.qp)), 0);
      }
      EXPECT_EQ(code_of(verbs::destroy_cq(made.cq)), 0);
    }
    CmTest::TearDown();
  }
  void forget(const ibv_qp* qp) {
    for (Made& made : made_) {
      if (made.qp == qp) made.qp = nullptr;
    }
  }
  static int state_of(ibv_qp* qp) {
    ibv_qp_attr attr{};
    EXPECT_TRUE(verbs::query_qp(qp, &attr, IBV_QP_STATE, nullptr));
    return attr.qp_state;
  }

  std::vector<Made> made_;
  ibv_qp* active_qp_ = nullptr;
  ibv_qp* passive_qp_ = nullptr;
};

TEST_F(CmProgramQpTest, ConnectInTheirOwnSteps) {
  answer();
  for (const auto state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    step(client_, active_qp_, state);
  }
  ASSERT_TRUE(establish(client_));
  EXPECT_FALSE(client_channel_.readable());
  EXPECT_EQ(state_of(active_qp_), IBV_QPS_RTS);
  EXPECT_EQ(code_of(establish(client_)), EINVAL);
  ibv_send_wr send{};
  ibv_send_wr* bad = nullptr;
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(verbs::post_recv(passive_qp_, &receive, &bad_receive), 0);
  ASSERT_EQ(verbs::post_send(active_qp_, &send, &bad), 0);
  ibv_wc wc{};
  while (verbs::poll_cq(passive_qp_->recv_cq, 1, &wc) == 0) {
  }
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  ASSERT_TRUE(disconnect(client_));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(state_of(active_qp_), IBV_QPS_ERR);
}

TEST_F(CmProgramQpTest, InitIsEnough) {
  answer();
  ASSERT_TRUE(establish(client_));
  EXPECT_EQ(state_of(active_qp_), IBV_QPS_RTS);
}

TEST_F(CmProgramQpTest, NumberOfNoQueuePairIsRefused) {
  start_listening();
  client_ = new_client(client_channel_);
  destroy_qp(client_);
  rdma_conn_param wanted{};
  wanted.qp_num = 1;  // never a queue pair of a program
  EXPECT_EQ(code_of(connect(client_, &wanted)), EINVAL);
  EXPECT_EQ(code_of(connect(client_, nullptr)), EINVAL);
  const auto made = make_qp(client_);
  wanted.qp_num = made.qp->qp_num;
  EXPECT_TRUE(connect(client_, &wanted));
  passive_ = server_.next().id;
  wanted.qp_num = 1;
  EXPECT_EQ(code_of(accept(passive_, &wanted)), EINVAL);
  EXPECT_EQ(code_of(accept(passive_, nullptr)), EINVAL);
  ASSERT_TRUE(reject(passive_, nullptr, 0));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(state_of(made.qp), IBV_QPS_INIT);  // nothing of it was touched
}

TEST_F(CmProgramQpTest, EstablishingIsForAnsweredIdsOnly) {
  establish_connection();
  for (rdma_cm_id* id : {client_, passive_, listener_}) {
    EXPECT_EQ(code_of(establish(id)), EINVAL);
  }
}

TEST_F(CmProgramQpTest, QueuePairMustBeReadyWhenEstablished) {
  answer();
  ASSERT_TRUE(verbs::destroy_qp(active_qp_));
  forget(active_qp_);
  EXPECT_EQ(code_of(establish(client_)), EINVAL);
  ASSERT_TRUE(disconnect(client_));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmProgramQpTest, AnsweredConnectionMayBeTurnedDown) {
  answer();
  ASSERT_TRUE(reject(client_, nullptr, 0));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(client_channel_.readable());
  EXPECT_EQ(code_of(establish(client_)), EINVAL);
}

TEST_F(CmProgramQpTest, AnsweredConnectionEndsWithItsId) {
  answer();
  drop(std::exchange(client_, nullptr));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmProgramQpTest, EndOfThePeerIsHeardOnceEstablished) {
  answer();
  ASSERT_TRUE(disconnect(passive_));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_TRUE(establish(client_));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmProgramQpTest, SynchronousIdReturnsWithTheResponse) {
  start_listening();
  rdma_cm_id* id = nullptr;
  ASSERT_TRUE(create_id(nullptr, &id, nullptr, RDMA_PS_TCP));
  auto peer = address("127.0.0.1", port_);
  ASSERT_TRUE(resolve_addr(id, nullptr, raw(peer), 1000));
  ASSERT_TRUE(resolve_route(id, 1000));
  auto wanted = naming(make_qp(id).qp);
  std::thread server([&] {
    passive_ = server_.next().id;
    ASSERT_TRUE(give_qp(passive_));
    ASSERT_TRUE(accept(passive_, nullptr));
  });
  EXPECT_TRUE(connect(id, &wanted));
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_TRUE(establish(id));
  server.join();
  drop(id);
}

// A path and a peer's number cannot be had: the queue pair would wait for ever.
TEST_F(CmProgramQpTest, StepsOfOtherTransportsStayRefused) {
  start_listening();
  client_ = new_client(client_channel_);
  destroy_qp(client_);
  const auto made = make_qp(client_);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = 1;
  EXPECT_EQ(code_of(verbs::modify_qp(made.qp, &attr,
                                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                         IBV_QP_MIN_RNR_TIMER)),
            EINVAL);
  EXPECT_EQ(state_of(made.qp), IBV_QPS_INIT);
  step(client_, made.qp, IBV_QPS_RTS, EINVAL);  // not from INIT
}

TEST_F(CmProgramQpTest, EceIsLocal) {
  start_listening();
  client_ = new_client(client_channel_);
  ibv_ece ece{.vendor_id = 1, .options = 2, .comp_mask = 3};
  EXPECT_EQ(code_of(set_local_ece(client_, &ece)), EINVAL);  // has a queue pair
  EXPECT_EQ(code_of(get_remote_ece(client_, &ece)), EINVAL);
  destroy_qp(client_);
  EXPECT_TRUE(set_local_ece(client_, &ece));
  EXPECT_TRUE(get_remote_ece(client_, &ece));
  EXPECT_EQ(ece.vendor_id, 0u);
  EXPECT_EQ(ece.options, 0u);
  EXPECT_EQ(code_of(set_local_ece(client_, &ece)), EINVAL);  // says nothing
  EXPECT_EQ(code_of(set_local_ece(client_, nullptr)), EINVAL);
  EXPECT_EQ(code_of(get_remote_ece(client_, nullptr)), EINVAL);
}

}  // namespace
}  // namespace airdma::cm
