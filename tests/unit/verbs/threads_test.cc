// SPDX-License-Identifier: MIT
// Many threads on one queue pair and one completion queue, by both posting and both polling
// interfaces. What this finds it finds with the thread sanitizer.
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

constexpr std::uint64_t kThreads = 8;  // that post, and as many that poll
constexpr std::uint64_t kEach = 200;
constexpr std::uint64_t kAll = kThreads * kEach;

class ThreadsTest : public CmTest {
 protected:
  void SetUp() override {
    start_listening();
    client_ = new_id(client_channel_);
    auto peer = address("127.0.0.1", port_);
    ASSERT_EQ(code_of(resolve_addr(client_, nullptr, raw(peer), 1000)), 0);
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_TRUE(resolve_route(client_, 1000));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_extended_qp();
    auto wanted = param("");
    ASSERT_TRUE(connect(client_, &wanted));
    const Seen seen = server_.next();
    ASSERT_EQ(seen.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    passive_ = seen.id;
    ASSERT_TRUE(give_qp(passive_));
    ASSERT_TRUE(accept(passive_, nullptr));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  }
  void TearDown() override {
    destroy_qp(client_);
    EXPECT_TRUE(verbs::destroy_cq(ibv_cq_ex_to_cq(cq_)));
    CmTest::TearDown();
  }

  void give_extended_qp() {
    ibv_cq_init_attr_ex queue{};
    queue.cqe = 64;
    queue.wc_flags = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    cq_ = verbs::create_cq_ex(client_->verbs, &queue).value();
    const ibv_qp_init_attr small = small_qp();
    ibv_qp_init_attr_ex attr{};
    attr.cap = small.cap;
    attr.cap.max_send_wr = 32;
    attr.cap.max_inline_data = 16;
    attr.qp_type = small.qp_type;
    attr.send_cq = ibv_cq_ex_to_cq(cq_);
    attr.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    ASSERT_EQ(code_of(create_qp_ex(client_, &attr)), 0);
    qp_ = verbs::qp_to_qp_ex(client_->qp);
    ASSERT_NE(qp_, nullptr);
  }

  // A WRITE of nothing needs no key.
  int post_plain(std::uint64_t id) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return verbs::post_send(client_->qp, &wr, &bad);
  }
  int post_extended(std::uint64_t id) {
    ibv_wr_start(qp_);
    qp_->wr_id = id;
    qp_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp_, 0, 0);
    ibv_wr_set_inline_data(qp_, nullptr, 0);
    return ibv_wr_complete(qp_);
  }
  void post_all(std::uint64_t thread) {
    for (std::uint64_t id = thread * kEach; id < (thread + 1) * kEach; ++id) {
      for (;;) {
        const int error = thread % 2 == 0 ? post_plain(id) : post_extended(id);
        if (error == 0) break;
        ASSERT_EQ(error, ENOMEM);  // until others have polled
        std::this_thread::yield();
      }
    }
  }

  void note(std::uint64_t id, ibv_wc_status status) {
    EXPECT_EQ(status, IBV_WC_SUCCESS);
    ASSERT_LT(id, kAll);
    EXPECT_EQ(times_seen_[id].fetch_add(1), 0);
    ++seen_;
  }
  void poll_plain() {
    ibv_wc wc[4];
    const int got = verbs::poll_cq(ibv_cq_ex_to_cq(cq_), 4, wc);
    ASSERT_GE(got, 0);
    for (int i = 0; i < got; ++i) note(wc[i].wr_id, wc[i].status);
  }
  void poll_extended() {
    ibv_poll_cq_attr none{};
    const int error = ibv_start_poll(cq_, &none);
    if (error == ENOENT) return;
    ASSERT_EQ(error, 0);
    do {
      EXPECT_NE(ibv_wc_read_completion_ts(cq_), 0u);
      EXPECT_EQ(ibv_wc_read_qp_num(cq_), client_->qp->qp_num);
      note(cq_->wr_id, cq_->status);
    } while (ibv_next_poll(cq_) == 0);
    ibv_end_poll(cq_);
  }
  void poll_all(std::uint64_t thread) {
    while (seen_ < kAll && !HasFatalFailure()) {
      thread % 2 == 0 ? poll_plain() : poll_extended();
      std::this_thread::yield();
    }
  }

  ibv_cq_ex* cq_ = nullptr;
  ibv_qp_ex* qp_ = nullptr;
  std::atomic<int> times_seen_[kAll] = {};
  std::atomic<std::uint64_t> seen_{0};
};

TEST_F(ThreadsTest, PostToOneQueuePairAndPollOneQueue) {
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i] { post_all(i); });
    threads.emplace_back([this, i] { poll_all(i); });
  }
  // And the queue changes its size meanwhile.
  for (int turn = 0; seen_ < kAll && !HasFatalFailure(); ++turn) {
    EXPECT_TRUE(verbs::resize_cq(ibv_cq_ex_to_cq(cq_), turn % 2 == 0 ? 200 : 40));
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen_, kAll);
}

}  // namespace
}  // namespace airdma::cm
