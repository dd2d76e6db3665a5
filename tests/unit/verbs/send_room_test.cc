// SPDX-License-Identifier: MIT
// How long a posted request keeps its place in the send queue.
#include <cerrno>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

class SendRoomTest : public CmTest {
 protected:
  void SetUp() override {
    establish_connection();
    depth_ = static_cast<int>(small_qp().cap.max_send_wr);
  }
  int post(unsigned flags = IBV_SEND_SIGNALED) {
    ibv_send_wr send{};
    send.opcode = IBV_WR_RDMA_WRITE;
    send.send_flags = flags;
    ibv_send_wr* bad = nullptr;
    return verbs::post_send(client_->qp, &send, &bad);
  }
  /// Waits for one completion.
  ibv_wc_status take() {
    ibv_wc wc{};
    while (verbs::poll_cq(client_->send_cq, 1, &wc) == 0) {
    }
    return wc.status;
  }

  int depth_ = 0;
};

// Programs that post until the queue is full rely on it: a completion queue of the same depth is
// never overrun.
TEST_F(SendRoomTest, APlaceIsFreeWhenItsCompletionIsTaken) {
  for (int i = 0; i < depth_; ++i) ASSERT_EQ(post(), 0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(post(), ENOMEM) << i;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(take(), IBV_WC_SUCCESS) << i;
    ASSERT_EQ(post(), 0) << i;
    ASSERT_EQ(post(), ENOMEM) << i;
  }
}

TEST_F(SendRoomTest, UnsignaledRequestsNeedNoPolling) {
  for (int i = 0; i < 20 * depth_; ++i) {
    int error = ENOMEM;
    while (error == ENOMEM) error = post(0);  // the transport may be busy for a moment
    ASSERT_EQ(error, 0) << i;
  }
}

TEST_F(SendRoomTest, ResetGivesAllPlacesBack) {
  for (int i = 0; i < depth_; ++i) ASSERT_EQ(post(), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_TRUE(verbs::modify_qp(client_->qp, &attr, IBV_QP_STATE));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_TRUE(verbs::modify_qp(
      client_->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_TRUE(verbs::modify_qp(client_->qp, &attr, IBV_QP_STATE));
  for (int i = 0; i < depth_; ++i) ASSERT_EQ(post(), 0) << i;
  EXPECT_EQ(post(), ENOMEM);
  for (int i = 0; i < depth_; ++i) EXPECT_EQ(take(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(post(), 0);
}

}  // namespace
}  // namespace airdma::cm
