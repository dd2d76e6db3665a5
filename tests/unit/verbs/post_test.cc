// SPDX-License-Identifier: MIT
#include <array>
#include <cerrno>

#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

class PostTest : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    cq_ = make_cq(64);
    qp_ = make_qp(cq_);
  }

  /// `count` chained SENDs of one byte each.
  template <std::size_t kCount>
  std::array<ibv_send_wr, kCount> sends() {
    std::array<ibv_send_wr, kCount> list{};
    for (std::size_t i = 0; i < kCount; ++i) {
      list[i].wr_id = i;
      list[i].sg_list = sges_;
      list[i].num_sge = 1;
      list[i].opcode = IBV_WR_SEND;
      list[i].send_flags = IBV_SEND_SIGNALED;
      list[i].next = i + 1 < kCount ? &list[i + 1] : nullptr;
    }
    return list;
  }
  template <std::size_t kCount>
  std::array<ibv_recv_wr, kCount> receives() {
    std::array<ibv_recv_wr, kCount> list{};
    for (std::size_t i = 0; i < kCount; ++i) {
      list[i].wr_id = i;
      list[i].sg_list = sges_;
      list[i].num_sge = 1;
      list[i].next = i + 1 < kCount ? &list[i + 1] : nullptr;
    }
    return list;
  }
  int post_one(ibv_send_wr wr) {
    wr.next = nullptr;
    ibv_send_wr* bad = nullptr;
    const int error = post_send(qp_, &wr, &bad);
    if (error != 0) {
      EXPECT_EQ(bad, &wr);
    }
    return error;
  }

  char byte_ = 'x';
  ibv_sge sges_[40] = {{reinterpret_cast<std::uintptr_t>(&byte_), 1, 0}};
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

TEST_F(PostTest, ResetTakesNothingAndInitOnlyReceives) {
  auto send = sends<1>();
  EXPECT_EQ(post_one(send[0]), EINVAL);
  EXPECT_EQ(receive(qp_, 1), EINVAL);
  ASSERT_EQ(to_init(qp_), 0);
  EXPECT_EQ(post_one(send[0]), EINVAL);
  EXPECT_EQ(receive(qp_, 1), 0);
}

TEST_F(PostTest, ErrorStateFlushesBothQueuesInOrder) {
  ASSERT_EQ(to_init(qp_), 0);
  EXPECT_EQ(receive(qp_, 10), 0);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  EXPECT_EQ(receive(qp_, 11), 0);
  auto list = sends<2>();
  list[1].send_flags = 0;  // errors are reported signalled or not
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(post_send(qp_, list.data(), &bad), 0);
  const auto done = drain(cq_);
  ASSERT_EQ(done.size(), 4u);
  for (const ibv_wc& wc : done) {
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.qp_num, qp_->qp_num);
  }
  EXPECT_EQ(done[0].wr_id, 10u);
  EXPECT_TRUE(done[0].opcode & IBV_WC_RECV);
  EXPECT_EQ(done[1].wr_id, 11u);
  EXPECT_EQ(done[2].wr_id, 0u);
  EXPECT_EQ(done[3].wr_id, 1u);
}

TEST_F(PostTest, SendListIsTakenUpToTheBadRequest) {
  ASSERT_EQ(to_init(qp_), 0);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  auto list = sends<3>();
  list[1].num_sge = 3;  // the queue pair has 2
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(post_send(qp_, list.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &list[1]);
  const auto done = drain(cq_);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 0u);
}

TEST_F(PostTest, ReceiveListIsTakenUpToTheBadRequest) {
  ASSERT_EQ(to_init(qp_), 0);
  auto list = receives<3>();
  list[1].num_sge = 3;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(post_recv(qp_, list.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &list[1]);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  const auto done = drain(cq_);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 0u);
}

TEST_F(PostTest, FullQueues) {
  ASSERT_EQ(to_init(qp_), 0);
  auto list = receives<6>();
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(post_recv(qp_, list.data(), &bad_receive), ENOMEM);
  EXPECT_EQ(bad_receive, &list[4]);  // max_recv_wr is 4
  EXPECT_EQ(receive(qp_, 9), ENOMEM);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  EXPECT_EQ(drain(cq_).size(), 4u);
  auto send_list = sends<6>();
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(post_send(qp_, send_list.data(), &bad_send), ENOMEM);
  EXPECT_EQ(bad_send, &send_list[4]);
  EXPECT_EQ(drain(cq_).size(), 4u);
}

TEST_F(PostTest, QueuesOfNoEntriesAreAlwaysFull) {
  ibv_qp_init_attr attr = wanted(cq_);
  attr.cap = {};
  qp_ = *create_qp(pd_, &attr);
  ASSERT_EQ(to_init(qp_), 0);
  EXPECT_EQ(receive(qp_, 1), ENOMEM);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  EXPECT_EQ(post_one(wr), ENOMEM);
}

TEST_F(PostTest, RequestsThatCannotBe) {
  ASSERT_EQ(to_init(qp_), 0);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  const ibv_send_wr good = sends<1>()[0];
  const auto with = [&](auto change) {
    ibv_send_wr wr = good;
    change(wr);
    return post_one(wr);
  };
  EXPECT_EQ(with([](auto& wr) { wr.num_sge = -1; }), EINVAL);
  EXPECT_EQ(with([](auto& wr) { wr.sg_list = nullptr; }), EINVAL);
  EXPECT_EQ(with([](auto& wr) { wr.send_flags |= 1u << 20; }), EINVAL);
  EXPECT_EQ(with([](auto& wr) { wr.send_flags |= IBV_SEND_IP_CSUM; }), EINVAL);
  EXPECT_EQ(with([](auto& wr) { set_raw(wr.opcode, 99); }), EINVAL);
  EXPECT_EQ(with([](auto& wr) { set_raw(wr.opcode, -1); }), EINVAL);
  for (const ibv_wr_opcode opcode : {IBV_WR_TSO, IBV_WR_DRIVER1}) {
    EXPECT_EQ(with([&](auto& wr) { wr.opcode = opcode; }), EOPNOTSUPP) << opcode;
  }
  EXPECT_TRUE(drain(cq_).empty());
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ}) {
    EXPECT_EQ(with([&](auto& wr) { wr.opcode = opcode; }), 0) << opcode;
    EXPECT_EQ(drain(cq_).size(), 1u);  // makes room for the next
  }
}

TEST_F(PostTest, AtomicsAreOfEightBytes) {
  ASSERT_EQ(to_init(qp_), 0);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    ibv_send_wr wr = sends<1>()[0];
    wr.opcode = opcode;
    for (const std::uint32_t length : {0u, 4u, 9u}) {
      sges_[0].length = length;
      EXPECT_EQ(post_one(wr), EINVAL) << length;
    }
    sges_[0].length = 8;
    EXPECT_EQ(post_one(wr), 0);
    ASSERT_EQ(drain(cq_).size(), 1u);
    wr.send_flags |= IBV_SEND_INLINE;
    EXPECT_EQ(post_one(wr), EINVAL);
    wr.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);
    sges_[0].length = 3;
    sges_[1].length = 5;
    wr.num_sge = 2;
    EXPECT_EQ(post_one(wr), 0);
    ASSERT_EQ(drain(cq_).size(), 1u);
    wr.num_sge = 0;
    EXPECT_EQ(post_one(wr), EINVAL);
  }
}

TEST_F(PostTest, InlineLengthIsLimited) {
  ASSERT_EQ(to_init(qp_), 0);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  char data[65] = {};
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(data), 64, 0xbad};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(post_one(wr), 0);
  sge.length = 65;
  EXPECT_EQ(post_one(wr), EINVAL);
  sge.length = 8;
  wr.opcode = IBV_WR_RDMA_READ;
  EXPECT_EQ(post_one(wr), EINVAL);
}

TEST_F(PostTest, MessagesOfTwoGigabytesAtMost) {
  ASSERT_EQ(to_init(qp_), 0);
  ASSERT_EQ(to_state(qp_, IBV_QPS_ERR), 0);
  ibv_send_wr wr = sends<1>()[0];
  sges_[0].length = 1u << 31;
  EXPECT_EQ(post_one(wr), 0);
  sges_[1].length = 1;
  wr.num_sge = 2;
  EXPECT_EQ(post_one(wr), EINVAL);
}

TEST_F(PostTest, SlotContents) {
  ASSERT_EQ(to_init(qp_), 0);
  auto list = receives<1>();
  sges_[0] = {0x1000, 7, 0xaa};
  sges_[1] = {0x2000, 5, 0xbb};
  list[0].num_sge = 2;
  list[0].wr_id = 77;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(post_recv(qp_, list.data(), &bad), 0);
  model::ReceiveQueue& queue = find_object(qp_)->runtime->receive_queue();
  ASSERT_EQ(queue.tail() - queue.head(), 1u);
  const model::ReceiveWqe& wqe = queue.at(queue.head());
  EXPECT_EQ(wqe.wr_id, 77u);
  EXPECT_EQ(wqe.length, 12u);
  EXPECT_EQ(wqe.sge_count, 2);
  EXPECT_EQ(wqe.sges[1].addr, 0x2000u);
  EXPECT_EQ(wqe.sges[1].lkey, Stag(0xbb));
}

}  // namespace
}  // namespace airdma::verbs
