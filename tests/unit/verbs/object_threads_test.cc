// SPDX-License-Identifier: MIT
// What the man pages call thread-safe, from eight threads at a time. Under TSan these say whether
// it is true; elsewhere, whether anything is lost.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/unit/verbs/pairs_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

constexpr int kThreads = 8;

void in_threads(const std::function<void(int)>& body, int count = kThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

int to(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  attr.port_num = 1;
  int mask = IBV_QP_STATE;
  if (state == IBV_QPS_INIT) mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  const Status status = verbs::modify_qp(qp, &attr, mask);
  return status ? 0 : status.error().code;
}

/// A test that is broken must end, too.
class Limit {
 public:
  [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() > end_; }

 private:
  std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
};

using ObjectThreadsTest = PairsTest;

TEST_F(ObjectThreadsTest, PostToOneQueuePairAndPollOneQueue) {
  start_listening();
  add_pair();
  constexpr int kEach = 500;
  std::atomic<int> sent = 0;
  std::atomic<int> received = 0;
  std::atomic<int> wrong = 0;
  const Limit limit;
  in_threads([&](int thread) {
    int to_send = thread % 2 == 0 ? 2 * kEach : 0;
    int to_receive = thread % 2 == 1 ? 2 * kEach : 0;
    const int all = kThreads * kEach;
    while ((sent < all || received < all) && !limit.passed()) {
      if (to_send > 0 && send(clients_[0]->qp, 1) == 0) --to_send;
      if (to_receive > 0 && receive(passives_[0]->qp, 2) == 0) --to_receive;
      ibv_wc wc[4];
      const int got = verbs::poll_cq(cq_, 4, wc);
      for (int i = 0; i < got; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) ++wrong;
        ++(wc[i].opcode == IBV_WC_RECV ? received : sent);
      }
    }
  });
  EXPECT_EQ(sent, kThreads * kEach);
  EXPECT_EQ(received, kThreads * kEach);
  EXPECT_EQ(wrong, 0);
}

TEST_F(ObjectThreadsTest, DrawFromOneSharedReceiveQueue) {
  shared_ = true;
  start_listening("127.0.0.1", 64);
  for (int i = 0; i < kThreads; ++i) add_pair();
  constexpr int kEach = 300;
  std::atomic<int> received = 0;
  std::atomic<int> to_post = kThreads * kEach;
  std::atomic<int> wrong = 0;
  const Limit limit;
  in_threads([&](int thread) {
    int to_send = kEach;
    while (received < kThreads * kEach && !limit.passed()) {
      if (to_send > 0 && send(clients_[static_cast<std::size_t>(thread)]->qp, 1) == 0) --to_send;
      // Fewer receives than messages at any time, so that queue pairs wait in line.
      // Nobody waits for room: it may be this thread's message that makes it.
      if (--to_post < 0 || receive(srq_, 2) != 0) ++to_post;
      ibv_wc wc[4];
      const int got = verbs::poll_cq(cq_, 4, wc);
      for (int i = 0; i < got; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) ++wrong;
        if (wc[i].opcode == IBV_WC_RECV) ++received;
      }
    }
  });
  EXPECT_EQ(received, kThreads * kEach);
  EXPECT_EQ(wrong, 0);
}

TEST_F(ObjectThreadsTest, MakeAndEndObjectsOfOneContext) {
  start_listening();
  add_pair();
  ibv_context* context = clients_[0]->verbs;
  in_threads([&](int) {
    std::array<char, 64> memory{};
    for (int i = 0; i < 50; ++i) {
      ibv_pd* pd = *verbs::alloc_pd(context);
      ibv_mr* mr = *verbs::reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
      ibv_cq* cq = *verbs::create_cq(context, 4, nullptr, nullptr, 0);
      ibv_srq_init_attr srq_attr{};
      srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
      ibv_srq* srq = *verbs::create_srq(pd, &srq_attr);
      ibv_qp_init_attr attr = wanted(srq);
      attr.send_cq = cq;
      ibv_qp* qp = *verbs::create_qp(pd, &attr);
      EXPECT_EQ(to(qp, IBV_QPS_INIT), 0);
      EXPECT_EQ(receive(srq, 1), 0);
      EXPECT_EQ(to(qp, IBV_QPS_ERR), 0);
      EXPECT_TRUE(verbs::destroy_qp(qp));
      EXPECT_TRUE(verbs::destroy_srq(srq));
      EXPECT_TRUE(verbs::destroy_cq(cq));
      EXPECT_TRUE(verbs::dereg_mr(mr));
      EXPECT_TRUE(verbs::dealloc_pd(pd));
    }
  });
}

TEST_F(ObjectThreadsTest, MoveAQueuePairToErrUnderThoseWhoUseIt) {
  start_listening();
  for (int round = 0; round < 10; ++round) {
    add_pair();
    ibv_qp* qp = clients_.back()->qp;
    std::atomic<int> posted = 0;
    std::atomic<int> completed = 0;
    std::atomic<int> posting = kThreads - 1;
    const Limit limit;
    in_threads([&](int thread) {
      if (thread == 0) {
        while (posted == 0 && !limit.passed()) std::this_thread::yield();
        EXPECT_EQ(to(qp, IBV_QPS_ERR), 0);
      } else {
        for (int i = 0; i < 40; ++i) {
          if ((thread % 2 == 0 ? send(qp, 1) : receive(qp, 1)) == 0) ++posted;
        }
        --posting;
      }
      ibv_qp_attr attr{};
      EXPECT_TRUE(verbs::query_qp(qp, &attr, 0, nullptr));
      ibv_wc wc[8];
      while ((posting != 0 || completed < posted) && !limit.passed()) {
        completed += std::max(verbs::poll_cq(cq_, 8, wc), 0);
      }
    });
    EXPECT_EQ(completed, posted);  // what was posted before and after, all of it
    EXPECT_EQ(to(qp, IBV_QPS_ERR), 0);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  }
}

TEST_F(ObjectThreadsTest, EndAQueuePairWhileItsPeerSends) {
  start_listening();
  for (int round = 0; round < 10; ++round) {
    add_pair();
    ibv_qp* sender = clients_.back()->qp;
    std::atomic<bool> sending = false;
    std::thread peer([&] {
      const Limit limit;
      bool alive = true;
      while (alive && !limit.passed()) {
        [[maybe_unused]] const int full = send(sender, 1);
        sending = true;
        ibv_wc wc[8];
        const int got = verbs::poll_cq(cq_, 8, wc);
        for (int i = 0; i < got; ++i) alive = alive && wc[i].status == IBV_WC_SUCCESS;
      }
      EXPECT_FALSE(alive);
    });
    for (int i = 0; i < 32; ++i) EXPECT_EQ(receive(passives_.back()->qp, 2), 0);
    while (!sending) std::this_thread::yield();
    drop(passives_.back());
    passives_.pop_back();
    peer.join();
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  }
}

TEST_F(ObjectThreadsTest, PauseAndResumeUnderThosePost) {
  start_listening();
  add_pair();
  ibv_qp* qp = clients_[0]->qp;
  constexpr int kEach = 100;
  std::atomic<int> received = 0;
  const Limit limit;
  in_threads([&](int thread) {
    int to_send = kEach;
    int to_receive = kEach;
    while (received < (kThreads - 1) * kEach && !limit.passed()) {
      if (thread == 0) {
        EXPECT_EQ(to(qp, IBV_QPS_SQD), 0);
        EXPECT_EQ(to(qp, IBV_QPS_RTS), 0);
        continue;
      }
      if (to_send > 0 && send(qp, 1) == 0) --to_send;
      if (to_receive > 0 && receive(passives_[0]->qp, 2) == 0) --to_receive;
      ibv_wc wc[4];
      const int got = verbs::poll_cq(cq_, 4, wc);
      for (int i = 0; i < got; ++i) received += wc[i].opcode == IBV_WC_RECV ? 1 : 0;
    }
  });
  EXPECT_EQ(received, (kThreads - 1) * kEach);
}

}  // namespace
}  // namespace airdma::cm
