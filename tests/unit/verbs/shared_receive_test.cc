// SPDX-License-Identifier: MIT
// Shared receive queues as objects, and at the passive ends of several connections.
#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/unit/verbs/cm_fixture.h"
#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

using SharedReceiveObjectTest = VerbsTest;

ibv_srq_init_attr srq_of(std::uint32_t max_wr, std::uint32_t max_sge = 1, std::uint32_t limit = 0) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = limit};
  return attr;
}

int post(ibv_srq* srq, std::uint64_t id, ibv_sge* sge = nullptr) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  wr.sg_list = sge;
  wr.num_sge = sge != nullptr ? 1 : 0;
  ibv_recv_wr* bad = nullptr;
  return post_srq_recv(srq, &wr, &bad);
}

ibv_srq_attr attributes_of(ibv_srq* srq) {
  ibv_srq_attr attr{};
  EXPECT_EQ(error_of(query_srq(srq, &attr)), 0);
  return attr;
}

int set_limit(ibv_srq* srq, std::uint32_t limit) {
  ibv_srq_attr attr{};
  attr.srq_limit = limit;
  return error_of(modify_srq(srq, &attr, IBV_SRQ_LIMIT));
}

int set_size(ibv_srq* srq, std::uint32_t max_wr) {
  ibv_srq_attr attr{};
  attr.max_wr = max_wr;
  return error_of(modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
}

TEST_F(SharedReceiveObjectTest, SizesUpToTheLimitsAreGrantedAndOthersRefused) {
  struct Case {
    std::uint32_t max_wr, max_sge, limit;
    int error;
  };
  constexpr std::uint32_t kMost = kMaxSharedReceives;
  for (const Case& wanted : {Case{4, 1, 0, 0}, Case{4, 0, 0, 0}, Case{kMost, kMaxSges, 0, 0},
                             Case{4, 1, 4, 0}, Case{0, 1, 0, EINVAL}, Case{kMost + 1, 1, 0, EINVAL},
                             Case{4, kMaxSges + 1, 0, EINVAL}, Case{4, 1, 5, EINVAL}}) {
    ibv_srq_init_attr attr = srq_of(wanted.max_wr, wanted.max_sge, wanted.limit);
    const auto srq = create_srq(pd_, &attr);
    ASSERT_EQ(error_of(srq), wanted.error) << wanted.max_wr << ' ' << wanted.max_sge;
    if (!srq) continue;
    const ibv_srq_attr now = attributes_of(*srq);
    EXPECT_EQ(now.max_wr, wanted.max_wr);
    EXPECT_EQ(now.max_sge, wanted.max_sge);
    EXPECT_EQ(now.srq_limit, wanted.limit);
    EXPECT_EQ(error_of(destroy_srq(*srq)), 0);
  }
}

TEST_F(SharedReceiveObjectTest, IsFilledToItsSizeAndNoFurther) {
  ibv_srq_init_attr attr = srq_of(3);
  ibv_srq* srq = *create_srq(pd_, &attr);
  std::array<ibv_recv_wr, 5> list{};
  for (std::size_t i = 0; i + 1 < list.size(); ++i) list[i].next = &list[i + 1];
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(post_srq_recv(srq, list.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &list[3]);
  ibv_sge sges[2] = {};
  ibv_recv_wr wide{};
  wide.sg_list = sges;
  wide.num_sge = 2;
  EXPECT_EQ(post_srq_recv(srq, &wide, &bad), EINVAL);
  EXPECT_EQ(bad, &wide);
  EXPECT_EQ(post_srq_recv(nullptr, &wide, &bad), EINVAL);
}

TEST_F(SharedReceiveObjectTest, IsResizedWithWhatItHolds) {
  ibv_srq_init_attr attr = srq_of(2);
  ibv_srq* srq = *create_srq(pd_, &attr);
  EXPECT_EQ(post(srq, 1), 0);
  EXPECT_EQ(post(srq, 2), 0);
  EXPECT_EQ(post(srq, 3), ENOMEM);
  EXPECT_EQ(set_size(srq, 4), 0);
  EXPECT_EQ(attributes_of(srq).max_wr, 4u);
  EXPECT_EQ(post(srq, 3), 0);
  EXPECT_EQ(set_size(srq, 2), EINVAL);  // it holds three
  EXPECT_EQ(set_limit(srq, 3), 0);
  EXPECT_EQ(set_limit(srq, 5), EINVAL);
  EXPECT_EQ(attributes_of(srq).srq_limit, 3u);
  EXPECT_EQ(set_size(srq, 0), EINVAL);
  EXPECT_EQ(set_size(srq, kMaxSharedReceives + 1), EINVAL);
  ibv_srq_attr nothing{};
  EXPECT_EQ(error_of(modify_srq(srq, &nothing, 0)), 0);
  EXPECT_EQ(error_of(modify_srq(srq, &nothing, 1 << 7)), EINVAL);
  EXPECT_EQ(attributes_of(srq).max_wr, 4u);
}

TEST_F(SharedReceiveObjectTest, IsBusyWhileAQueuePairUsesItAndKeepsItsDomain) {
  ibv_srq_init_attr wanted_srq = srq_of(4);
  ibv_srq* srq = *create_srq(pd_, &wanted_srq);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EBUSY);
  ibv_cq* cq = make_cq(4);
  ibv_qp_init_attr attr = wanted(cq);
  attr.srq = srq;
  attr.cap.max_recv_wr = ~0u;  // ignored
  attr.cap.max_recv_sge = ~0u;
  ibv_qp* qp = *create_qp(pd_, &attr);
  EXPECT_EQ(attr.cap.max_recv_wr, 0u);
  EXPECT_EQ(qp->srq, srq);
  ibv_qp_attr now{};
  ibv_qp_init_attr made{};
  EXPECT_EQ(error_of(query_qp(qp, &now, 0, &made)), 0);
  EXPECT_EQ(made.srq, srq);
  EXPECT_EQ(to_init(qp), 0);
  EXPECT_EQ(receive(qp, 1), EINVAL);
  EXPECT_EQ(error_of(destroy_srq(srq)), EBUSY);
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  EXPECT_EQ(error_of(destroy_srq(srq)), 0);
  EXPECT_EQ(error_of(destroy_srq(srq)), EINVAL);
  attr.srq = srq;
  EXPECT_EQ(error_of(create_qp(pd_, &attr)), EINVAL);
}

TEST_F(SharedReceiveObjectTest, ExtendedCreationKnowsBasicOnesOnly) {
  ibv_srq_init_attr_ex attr{};
  attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(error_of(create_srq_ex(context_, &attr)), EINVAL);  // no domain
  attr.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
  attr.pd = pd_;
  attr.srq_type = IBV_SRQT_BASIC;
  const auto srq = create_srq_ex(context_, &attr);
  ASSERT_TRUE(srq);
  EXPECT_EQ((*srq)->pd, pd_);
  attr.srq_type = IBV_SRQT_XRC;
  EXPECT_EQ(error_of(create_srq_ex(context_, &attr)), EOPNOTSUPP);
  set_raw(attr.srq_type, 77);
  EXPECT_EQ(error_of(create_srq_ex(context_, &attr)), EINVAL);
  attr.comp_mask = 1u << 20;
  EXPECT_EQ(error_of(create_srq_ex(context_, &attr)), EINVAL);
}

}  // namespace
}  // namespace airdma::verbs

namespace airdma::cm {
namespace {

constexpr std::size_t kPiece = 64;  // bytes of each receive

/// Connections whose passive ends share `srq_` and `cq_`.
class SharedReceiveTest : public CmTest {
 protected:
  struct Pair {
    rdma_cm_id* client;
    rdma_cm_id* server;
  };

  void SetUp() override { start_listening("127.0.0.1", 64); }

  void connect_pairs(std::size_t count, std::uint32_t max_wr = 16) {
    for (std::size_t i = 0; i < count; ++i) {
      rdma_cm_id* client = new_client(client_channel_);
      auto wanted = param("");
      ASSERT_TRUE(connect(client, &wanted));
      const Seen seen = server_.next();
      ASSERT_EQ(seen.type, RDMA_CM_EVENT_CONNECT_REQUEST);
      if (srq_ == nullptr) make_srq(seen.id, max_wr);
      auto attr = small_qp();
      attr.srq = srq_;
      attr.send_cq = attr.recv_cq = cq_;
      ASSERT_TRUE(create_qp(seen.id, pd_, &attr));
      ASSERT_TRUE(accept(seen.id, nullptr));
      ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
      ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
      pairs_.push_back({client, seen.id});
    }
  }

  void make_srq(rdma_cm_id* id, std::uint32_t max_wr) {
    context_ = id->verbs;
    pd_ = *verbs::alloc_pd(context_);
    cq_ = *verbs::create_cq(context_, 256, nullptr, nullptr, 0);
    ibv_srq_init_attr attr = verbs::srq_of(max_wr);
    srq_ = *verbs::create_srq(pd_, &attr);
    mr_ = *verbs::reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
  }

  int post(std::uint64_t id) {
    ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(memory_.data() + id * kPiece),
                .length = kPiece,
                .lkey = mr_->lkey};
    return verbs::post(srq_, id, &sge);
  }

  /// The text lies in the request, so that nothing is registered at the client.
  static void send(rdma_cm_id* client, const std::string& text) {
    ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(text.data()),
                .length = static_cast<std::uint32_t>(text.size()),
                .lkey = 0};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = text.empty() ? 0 : 1;
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(verbs::post_send(client->qp, &wr, &bad), 0);
  }

  /// The next completion; status -1 when none came for so long that none will.
  ibv_wc next() {
    ibv_wc wc{};
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < limit) {
      if (verbs::poll_cq(cq_, 1, &wc) == 1) return wc;
    }
    verbs::set_raw(wc.status, -1);
    return wc;
  }
  bool nothing() {
    ibv_wc wc{};
    return verbs::poll_cq(cq_, 1, &wc) == 0;
  }
  ibv_async_event async_event() {
    pollfd entry{context_->async_fd, POLLIN, 0};
    ibv_async_event event{};
    verbs::set_raw(event.event_type, -1);
    if (::poll(&entry, 1, 20'000) == 1) {
      EXPECT_TRUE(verbs::get_async_event(context_, &event));
    }
    return event;
  }
  bool no_async_event() {
    pollfd entry{context_->async_fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 0;
  }

  void TearDown() override {
    for (const Pair& pair : pairs_) {
      drop(pair.client);
      drop(pair.server);
    }
    CmTest::TearDown();
    if (srq_ == nullptr) return;
    EXPECT_TRUE(verbs::destroy_srq(srq_));
    EXPECT_TRUE(verbs::destroy_cq(cq_));
    EXPECT_TRUE(verbs::dereg_mr(mr_));
    EXPECT_TRUE(verbs::dealloc_pd(pd_));
  }

  std::vector<Pair> pairs_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::array<char, 4096> memory_{};
};

TEST_F(SharedReceiveTest, MessagesOfAllConnectionsTakeReceivesInOrder) {
  connect_pairs(3);
  for (std::uint64_t id = 0; id < 6; ++id) EXPECT_EQ(post(id), 0);
  for (std::uint64_t id = 0; id < 6; ++id) {
    const Pair& pair = pairs_[id % 3];
    send(pair.client, "");
    const ibv_wc wc = next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.qp_num, pair.server->qp->qp_num);
  }
}

TEST_F(SharedReceiveTest, QueuePairsThatWaitAreServedInTheOrderOfTheirWait) {
  constexpr std::size_t kPairs = 8;
  connect_pairs(kPairs);
  // One after the other gets in line: each send is known to have arrived when the limit event of an
  // empty queue says so.
  for (const Pair& pair : pairs_) {
    ASSERT_EQ(verbs::set_limit(srq_, 1), 0);
    send(pair.client, "");
    ibv_async_event event = async_event();
    ASSERT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    verbs::ack_async_event(&event);
  }
  EXPECT_TRUE(nothing());
  for (std::uint64_t id = 0; id < kPairs; ++id) {
    EXPECT_EQ(post(id), 0);
    const ibv_wc wc = next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.qp_num, pairs_[id].server->qp->qp_num) << id;
    EXPECT_TRUE(nothing());
  }
}

TEST_F(SharedReceiveTest, AQueuePairThatEndsGivesItsPlaceToTheNext) {
  connect_pairs(2);
  for (const Pair& pair : pairs_) {
    ASSERT_EQ(verbs::set_limit(srq_, 1), 0);
    send(pair.client, "");
    ibv_async_event event = async_event();
    verbs::ack_async_event(&event);
  }
  drop(pairs_[0].server);
  const std::uint32_t second = pairs_[1].server->qp->qp_num;
  pairs_[0].server = nullptr;
  EXPECT_EQ(post(1), 0);
  const ibv_wc wc = next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.qp_num, second);
}

TEST_F(SharedReceiveTest, LimitEventComesOnceWhenFewerAreLeft) {
  connect_pairs(1);
  for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(post(id), 0);
  ASSERT_EQ(verbs::set_limit(srq_, 3), 0);
  send(pairs_[0].client, "");
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(verbs::attributes_of(srq_).srq_limit, 3u);  // three are not fewer than three
  send(pairs_[0].client, "");
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  ibv_async_event event = async_event();
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq_);
  EXPECT_EQ(verbs::attributes_of(srq_).srq_limit, 0u);
  verbs::ack_async_event(&event);
  EXPECT_EQ(srq_->events_completed, 1u);
  send(pairs_[0].client, "");
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(no_async_event());
}

TEST_F(SharedReceiveTest, DestroyWaitsForTheAcknowledgement) {
  connect_pairs(1);
  ASSERT_EQ(verbs::set_limit(srq_, 1), 0);
  send(pairs_[0].client, "");
  ibv_async_event event = async_event();
  drop(pairs_[0].client);
  drop(pairs_[0].server);
  pairs_.clear();
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    EXPECT_TRUE(verbs::destroy_srq(srq_));
    destroyed = true;
  });
  std::this_thread::yield();
  EXPECT_FALSE(destroyed);
  verbs::ack_async_event(&event);
  destroyer.join();
  ibv_srq_init_attr attr = verbs::srq_of(1);
  srq_ = *verbs::create_srq(pd_, &attr);  // for TearDown
}

TEST_F(SharedReceiveTest, ErrorKeepsWhatIsSharedAndTellsOfTheLastReceive) {
  connect_pairs(2);
  EXPECT_EQ(post(1), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  EXPECT_TRUE(verbs::modify_qp(pairs_[0].server->qp, &attr, IBV_QP_STATE));
  ibv_async_event event = async_event();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, pairs_[0].server->qp);
  verbs::ack_async_event(&event);
  EXPECT_TRUE(nothing());
  EXPECT_TRUE(no_async_event());
  send(pairs_[1].client, "");
  EXPECT_EQ(next().wr_id, 1u);
}

TEST_F(SharedReceiveTest, BelongsToAnIdAsProgramsOfTheConnectionManagerWantIt) {
  client_ = new_client(client_channel_);
  auto wanted = param("");
  ASSERT_TRUE(connect(client_, &wanted));
  passive_ = server_.next().id;
  ibv_srq_init_attr attr = verbs::srq_of(100);
  ASSERT_TRUE(create_srq(passive_, nullptr, &attr));
  ASSERT_NE(passive_->srq, nullptr);
  EXPECT_EQ(passive_->srq->pd, passive_->pd);
  auto qp = small_qp();
  qp.cap.max_recv_wr = 0;
  ASSERT_TRUE(create_qp(passive_, nullptr, &qp));
  EXPECT_EQ(passive_->qp->srq, passive_->srq);
  EXPECT_GE(passive_->recv_cq->cqe, 100);  // all of the receives may complete at once
  ASSERT_TRUE(accept(passive_, nullptr));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(verbs::post(passive_->srq, 7), 0);
  send(client_, "");
  ibv_wc wc{};
  while (verbs::poll_cq(passive_->recv_cq, 1, &wc) == 0) std::this_thread::yield();
  EXPECT_EQ(wc.wr_id, 7u);
  destroy_qp(passive_);
  destroy_srq(passive_);
  EXPECT_EQ(passive_->srq, nullptr);
  ibv_srq_init_attr_ex extended{};
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  extended.srq_type = IBV_SRQT_BASIC;
  extended.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  ASSERT_TRUE(create_srq_ex(passive_, &extended));
  EXPECT_EQ(passive_->srq->pd, passive_->pd);
  destroy_srq(passive_);
}

}  // namespace
}  // namespace airdma::cm
