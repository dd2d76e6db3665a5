// SPDX-License-Identifier: MIT
// Any number of connections over loopback with one completion queue, and short ways to post.
#pragma once

#include <vector>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {

inline int send(ibv_qp* qp, std::uint64_t id) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return verbs::post_send(qp, &wr, &bad);
}

inline int receive(ibv_qp* qp, std::uint64_t id) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  ibv_recv_wr* bad = nullptr;
  return verbs::post_recv(qp, &wr, &bad);
}

inline int receive(ibv_srq* srq, std::uint64_t id) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  ibv_recv_wr* bad = nullptr;
  return verbs::post_srq_recv(srq, &wr, &bad);
}

class PairsTest : public CmTest {
 protected:
  /// A connected pair whose queue pairs have deep queues on `cq_`; the passive end draws from
  /// `srq_` when there is one.
  void add_pair() {
    rdma_cm_id* client = new_id(client_channel_);
    auto peer = address("127.0.0.1", port_);
    ASSERT_TRUE(resolve_addr(client, nullptr, raw(peer), 1000));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_TRUE(resolve_route(client, 1000));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (cq_ == nullptr) make_queues(client->verbs);
    ASSERT_TRUE(create_qp(client, pd_, &(attr_ = wanted(nullptr))));
    auto parameters = param("");
    ASSERT_TRUE(connect(client, &parameters));
    rdma_cm_id* passive = server_.next().id;
    ASSERT_TRUE(create_qp(passive, pd_, &(attr_ = wanted(srq_))));
    ASSERT_TRUE(accept(passive, nullptr));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    clients_.push_back(client);
    passives_.push_back(passive);
  }
  virtual void make_queues(ibv_context* context) {
    pd_ = *verbs::alloc_pd(context);
    cq_ = *verbs::create_cq(context, 4096, nullptr, nullptr, 0);
    if (!shared_) return;
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
    srq_ = *verbs::create_srq(pd_, &attr);
  }
  [[nodiscard]] ibv_qp_init_attr wanted(ibv_srq* srq) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_;
    attr.srq = srq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    return attr;
  }
  void TearDown() override {
    for (rdma_cm_id* id : clients_) drop(id);
    for (rdma_cm_id* id : passives_) drop(id);
    CmTest::TearDown();
    if (srq_ != nullptr) {
      EXPECT_TRUE(verbs::destroy_srq(srq_));
    }
    if (cq_ != nullptr) {
      EXPECT_TRUE(verbs::destroy_cq(cq_));
    }
    if (pd_ != nullptr) {
      EXPECT_TRUE(verbs::dealloc_pd(pd_));
    }
  }

  bool shared_ = false;  // before the first pair: with a shared receive queue
  std::vector<rdma_cm_id*> clients_;
  std::vector<rdma_cm_id*> passives_;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_qp_init_attr attr_{};
};

}  // namespace airdma::cm
