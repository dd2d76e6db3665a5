// SPDX-License-Identifier: MIT
// The order in which a program with one thread for completions and one for events hears of the last
// message and of the end.
#include <atomic>
#include <thread>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

class CmEndTest : public CmTest {
 protected:
  void receive_into(rdma_cm_id* id) {
    region_ = verbs::reg_mr(id->pd, &inbox_, sizeof inbox_, IBV_ACCESS_LOCAL_WRITE).value();
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(&inbox_), sizeof inbox_, region_->lkey};
    ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_recv(id->qp, &receive, &bad), 0);
  }
  static void send_nothing(rdma_cm_id* id) {
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_send(id->qp, &send, &bad), 0);
  }
  void TearDown() override {
    if (passive_ != nullptr) destroy_qp(passive_);
    if (region_ != nullptr) {
      EXPECT_EQ(code_of(verbs::dereg_mr(region_)), 0);
    }
    CmTest::TearDown();
  }

  char inbox_ = 0;
  ibv_mr* region_ = nullptr;
};

// The completion is taken by a thread that its channel wakes. A peer that sends and leaves wakes
// both threads; a disconnection heard first would make the program throw the message away.
TEST_F(CmEndTest, LastMessageIsHeardOfBeforeTheEnd) {
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    if (listener_ == nullptr) start_listening();
    request();
    receive_into(passive_);
    ASSERT_EQ(verbs::req_notify_cq(passive_->recv_cq, 0), 0);
    ASSERT_TRUE(accept(passive_, nullptr));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    std::atomic<bool> heard = false;
    std::thread completions([&] {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      ibv_wc wc{};
      EXPECT_EQ(code_of(verbs::get_cq_event(passive_->recv_cq_channel, &cq, &context)), 0);
      EXPECT_EQ(verbs::poll_cq(cq, 1, &wc), 1);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      heard = true;
      verbs::ack_cq_events(cq, 1);
    });
    send_nothing(client_);
    ASSERT_TRUE(disconnect(client_));
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_TRUE(heard);
    completions.join();
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    destroy_qp(passive_);
    EXPECT_EQ(code_of(verbs::dereg_mr(std::exchange(region_, nullptr))), 0);
    drop(std::exchange(passive_, nullptr));
    drop(std::exchange(client_, nullptr));
  }
}

// Limit: nobody waits for ever for a program that polls no more.
TEST_F(CmEndTest, EndIsHeardOfWithoutPolling) {
  start_listening();
  request();
  receive_into(passive_);
  ASSERT_TRUE(accept(passive_, nullptr));
  ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  send_nothing(client_);
  ASSERT_TRUE(disconnect(client_));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace
}  // namespace airdma::cm
