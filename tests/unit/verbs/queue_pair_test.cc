// SPDX-License-Identifier: MIT
#include <array>
#include <cerrno>
#include <set>

#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

using QueuePairTest = VerbsTest;

TEST_F(QueuePairTest, CapacitiesUpToTheLimitsAreGrantedAndReported) {
  ibv_cq* cq = make_cq(4);
  const ibv_qp_cap good[] = {
      {1, 1, 1, 1, 0},
      {0, 0, 0, 0, 0},
      {4, 0, 1, 0, 0},
      {0, 4, 0, 1, 0},
      {5, 6, 3, 2, 33},
      {kMaxWorkRequests, 1, 1, 1, 0},
      {1, kMaxWorkRequests, 1, 1, 0},
      {1, 1, kMaxSges, kMaxSges, kMaxInlineBytes},
  };
  for (const ibv_qp_cap& cap : good) {
    ibv_qp_init_attr attr = wanted(cq);
    attr.cap = cap;
    const auto qp = create_qp(pd_, &attr);
    ASSERT_TRUE(qp);
    EXPECT_GE(attr.cap.max_send_wr, cap.max_send_wr);
    ibv_qp_attr got{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(error_of(query_qp(*qp, &got, IBV_QP_CAP, &init)), 0);
    EXPECT_EQ(std::memcmp(&got.cap, &attr.cap, sizeof got.cap), 0);
    EXPECT_EQ(std::memcmp(&init.cap, &attr.cap, sizeof init.cap), 0);
    EXPECT_EQ(error_of(destroy_qp(*qp)), 0);
  }
}

TEST_F(QueuePairTest, EachPieceBringsRoomForInlineData) {
  ibv_cq* cq = make_cq(4);
  for (const auto& [pieces, asked, granted] :
       {std::array{1u, 0u, 16u}, {3u, 0u, 48u}, {3u, 49u, 49u}, {0u, 0u, 0u}}) {
    ibv_qp_init_attr attr = wanted(cq);
    attr.cap.max_send_sge = pieces;
    attr.cap.max_inline_data = asked;
    ASSERT_TRUE(create_qp(pd_, &attr));
    EXPECT_EQ(attr.cap.max_inline_data, granted);
  }
}

TEST_F(QueuePairTest, CapacitiesAboveTheLimitsAreRefused) {
  ibv_cq* cq = make_cq(4);
  const ibv_qp_cap bad[] = {
      {kMaxWorkRequests + 1, 1, 1, 1, 0},
      {1, kMaxWorkRequests + 1, 1, 1, 0},
      {1, 1, kMaxSges + 1, 1, 0},
      {1, 1, 1, kMaxSges + 1, 0},
      {1, 1, 1, 1, 1u << 20},
      {~0u, 1, 1, 1, 0},
  };
  for (const ibv_qp_cap& cap : bad) {
    ibv_qp_init_attr attr = wanted(cq);
    attr.cap = cap;
    EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
  }
  EXPECT_EQ(error_of(destroy_cq(cq)), 0);  // a refusal leaves no reference
}

TEST_F(QueuePairTest, RefusesWrongParts) {
  ibv_cq* cq = make_cq(4);
  ibv_qp_init_attr attr = wanted(nullptr);
  EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
  attr = wanted(cq);
  attr.recv_cq = nullptr;
  EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
  attr = wanted(cq);
  EXPECT_EQ(error_of(create_qp(nullptr, &attr)), EINVAL);
  EXPECT_EQ(error_of(create_qp(pd_, nullptr)), EINVAL);
  ibv_context* other = *open_device(device_);
  attr = wanted(*create_cq(other, 4, nullptr, nullptr, 0));
  EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
  EXPECT_EQ(error_of(close_device(other)), 0);
}

TEST_F(QueuePairTest, Types) {
  ibv_cq* cq = make_cq(4);
  ibv_qp_init_attr attr = wanted(cq);
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND}) {
    attr.qp_type = type;
    EXPECT_EQ(error_of(create_qp(pd_, &attr)), EOPNOTSUPP) << type;
  }
  for (const int type : {0, 1, 77}) {
    set_raw(attr.qp_type, type);
    EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL) << type;
  }
}

TEST_F(QueuePairTest, NumbersAreUniqueAndOf24Bits) {
  ibv_cq* cq = make_cq(4);
  std::set<std::uint32_t> numbers;
  for (int i = 0; i < 200; ++i) {
    const ibv_qp* qp = make_qp(cq);
    EXPECT_LT(qp->qp_num, 1u << 24);
    EXPECT_GT(qp->qp_num, 1u);
    EXPECT_TRUE(numbers.insert(qp->qp_num).second);
  }
}

TEST_F(QueuePairTest, MovesFromResetWithTheStateAlone) {
  ibv_qp* qp = make_qp(make_cq(4));
  EXPECT_EQ(to_state(qp, IBV_QPS_RESET), 0);
  for (const ibv_qp_state state :
       {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR}) {
    EXPECT_EQ(to_state(qp, state), EINVAL) << state;
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
  }
}

TEST_F(QueuePairTest, EachInitAttributeIsRequired) {
  ibv_qp* qp = make_qp(make_cq(4));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  const int all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  for (const int left_out : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS}) {
    EXPECT_EQ(error_of(modify_qp(qp, &attr, all & ~left_out)), EINVAL) << left_out;
  }
  EXPECT_EQ(error_of(modify_qp(qp, &attr, all | IBV_QP_QKEY)), EINVAL);
  EXPECT_EQ(error_of(modify_qp(qp, &attr, all | 1 << 30)), EINVAL);
  EXPECT_EQ(error_of(modify_qp(qp, &attr, all)), 0);
}

TEST_F(QueuePairTest, BadValuesChangeNothing) {
  ibv_qp* qp = make_qp(make_cq(4));
  const auto try_init = [&](auto change) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    change(attr);
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    const int error = error_of(modify_qp(qp, &attr, mask));
    if (error != 0) {
      EXPECT_EQ(qp->state, IBV_QPS_RESET);
    }
    return error;
  };
  EXPECT_EQ(try_init([](auto& attr) { attr.port_num = 0; }), EINVAL);
  EXPECT_EQ(try_init([](auto& attr) { attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(try_init([](auto& attr) { attr.pkey_index = 999; }), EINVAL);
  EXPECT_EQ(try_init([](auto& attr) { attr.qp_access_flags = 1u << 30; }), EINVAL);
  EXPECT_EQ(try_init([](auto& attr) { set_raw(attr.qp_state, 7); }), EINVAL);
  EXPECT_EQ(try_init([](auto&) {}), 0);
}

TEST_F(QueuePairTest, EntersReadyStatesThroughTheConnectionManagerOnly) {
  ibv_qp* qp = make_qp(make_cq(4));
  ASSERT_EQ(to_init(qp), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(error_of(modify_qp(qp, &attr, mask)), EINVAL);
  EXPECT_EQ(state_of(qp), IBV_QPS_INIT);
}

TEST_F(QueuePairTest, CurrentStateMustBeTheCurrentState) {
  ibv_qp* qp = make_qp(make_cq(4));
  ibv_qp_attr attr{};
  attr.cur_qp_state = IBV_QPS_RTS;
  EXPECT_EQ(error_of(modify_qp(qp, &attr, IBV_QP_CUR_STATE)), EINVAL);
}

TEST_F(QueuePairTest, IsIdleWhenMade) {
  ibv_qp* qp = make_qp(make_cq(4));
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  ibv_qp_attr got{};
  ASSERT_EQ(error_of(query_qp(qp, &got, IBV_QP_STATE, nullptr)), 0);
  EXPECT_EQ(got.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  ASSERT_EQ(to_state(qp, IBV_QPS_RESET), 0);
  ASSERT_EQ(error_of(query_qp(qp, &got, IBV_QP_STATE, nullptr)), 0);
  EXPECT_EQ(got.qp_state, IBV_QPS_RESET);
}

TEST_F(QueuePairTest, AttributesAreKeptUntilReset) {
  ibv_qp* qp = make_qp(make_cq(4));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = 7;
  ASSERT_EQ(error_of(modify_qp(
                qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)),
            0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  ibv_qp_attr got{};
  ASSERT_EQ(error_of(query_qp(qp, &got, 0, nullptr)), 0);
  EXPECT_EQ(got.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(got.cur_qp_state, IBV_QPS_INIT);
  EXPECT_EQ(got.qp_access_flags, 7u);
  EXPECT_EQ(got.port_num, 1);
  ASSERT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(state_of(qp), IBV_QPS_ERR);
  ASSERT_EQ(to_state(qp, IBV_QPS_RESET), 0);
  ASSERT_EQ(error_of(query_qp(qp, &got, 0, nullptr)), 0);
  EXPECT_EQ(got.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(got.qp_access_flags, 0u);
  EXPECT_EQ(got.port_num, 0);
  EXPECT_EQ(to_init(qp), 0);
}

}  // namespace
}  // namespace airdma::verbs
