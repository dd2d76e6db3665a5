// SPDX-License-Identifier: MIT
// The extended posting interface, through the inline functions of <infiniband/verbs.h>.
#include <cerrno>
#include <string>
#include <thread>

#include "tests/unit/verbs/fixture.h"

namespace airdma::verbs {
namespace {

constexpr std::uint64_t kBasicOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                    IBV_QP_EX_WITH_RDMA_READ;

class PostExTest : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    cq_ = make_cq(64);
  }
  ibv_qp_init_attr_ex wanted_ex(std::uint64_t ops = kBasicOps) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq_;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = wanted(cq_).cap;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_;
    attr.send_ops_flags = ops;
    return attr;
  }
  int create_error(const ibv_qp_init_attr_ex& attr) {
    ibv_qp_init_attr_ex copy = attr;
    const auto qp = create_qp_ex(context_, &copy);
    if (qp) {
      EXPECT_EQ(error_of(destroy_qp(*qp)), 0);
    }
    return error_of(qp);
  }
  /// A queue pair in RTS without a stream, whose requests wait in its queue.
  ibv_qp_ex* make_qp_ex(std::uint64_t ops = kBasicOps) {
    ibv_qp_init_attr_ex attr = wanted_ex(ops);
    ibv_qp* qp = *create_qp_ex(context_, &attr);
    find_object(qp)->stream->set_state(runtime::QpState::kRts);
    return qp_to_qp_ex(qp);
  }
  static model::SendQueue& queue_of(ibv_qp_ex* qp) {
    return find_object(&qp->qp_base)->runtime->send_queue();
  }
  static std::uint64_t posted(ibv_qp_ex* qp) { return queue_of(qp).tail(); }
  static const model::SendWqe& last(ibv_qp_ex* qp) {
    return queue_of(qp).at(queue_of(qp).tail() - 1);
  }
  static std::string inlined(const model::SendWqe& wqe) {
    return {reinterpret_cast<const char*>(wqe.inline_data), wqe.length};
  }
  /// The outcome of a batch.
  template <class Build>
  static int batch(ibv_qp_ex* qp, Build build) {
    ibv_wr_start(qp);
    build();
    return ibv_wr_complete(qp);
  }
  static std::uint64_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

  ibv_cq* cq_ = nullptr;
  char text_[16] = "0123456789abcde";
};

TEST_F(PostExTest, CreationAttributes) {
  EXPECT_EQ(create_error(wanted_ex()), 0);
  const auto with = [&](auto change) {
    ibv_qp_init_attr_ex attr = wanted_ex();
    change(attr);
    return create_error(attr);
  };
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= 1u << 7; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.comp_mask &= ~std::uint32_t{IBV_QP_INIT_ATTR_PD}; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.pd = nullptr; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.send_cq = nullptr; }), EINVAL);
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_XRCD; }), EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE; }), EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH; }), EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS; }), 0);
  EXPECT_EQ(with([](auto& a) {
              a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
              a.create_flags = IBV_QP_CREATE_SOURCE_QPN;
              a.source_qpn = 7;
            }),
            EOPNOTSUPP);
  EXPECT_EQ(with([](auto& a) {
              a.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
              a.max_tso_header = 64;
            }),
            EOPNOTSUPP);
  for (const std::uint64_t ops :
       {std::uint64_t{IBV_QP_EX_WITH_TSO}, std::uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE},
        std::uint64_t{1} << 11, std::uint64_t{1} << 40}) {
    EXPECT_EQ(with([&](auto& a) { a.send_ops_flags |= ops; }), EOPNOTSUPP) << ops;
  }
  EXPECT_EQ(error_of(create_qp_ex(context_, nullptr)), EINVAL);
  ibv_qp_init_attr_ex attr = wanted_ex();
  EXPECT_EQ(error_of(create_qp_ex(nullptr, &attr)), EINVAL);
  attr.qp_type = IBV_QPT_UD;
  EXPECT_EQ(create_error(attr), EOPNOTSUPP);
}

TEST_F(PostExTest, OnlyQueuePairsMadeForItHaveIt) {
  ibv_qp_init_attr_ex attr = wanted_ex();
  ibv_qp* with = *create_qp_ex(context_, &attr);
  EXPECT_EQ(&qp_to_qp_ex(with)->qp_base, with);
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  EXPECT_EQ(qp_to_qp_ex(*create_qp_ex(context_, &attr)), nullptr);
  EXPECT_EQ(qp_to_qp_ex(make_qp(cq_)), nullptr);
  EXPECT_EQ(qp_to_qp_ex(nullptr), nullptr);
  EXPECT_EQ(error_of(destroy_qp(with)), 0);
  EXPECT_EQ(qp_to_qp_ex(with), nullptr);
}

TEST_F(PostExTest, EveryRequestBecomesTheSameEntryAsPosted) {
  ibv_qp_ex* qp = make_qp_ex();
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_send_imm(qp, 0x0a0b0c0d);
                    ibv_wr_set_sge(qp, 0x77, 0x1000, 5);
                  }),
            0);
  EXPECT_EQ(last(qp).opcode, model::SendOpcode::kSendWithImm);
  EXPECT_EQ(last(qp).wr_id, 1u);
  EXPECT_TRUE(last(qp).signaled && last(qp).solicited && !last(qp).fence && !last(qp).inlined);
  EXPECT_EQ(last(qp).immediate, 0x0a0b0c0du);
  EXPECT_EQ(last(qp).length, 5u);
  EXPECT_EQ(last(qp).sge_count, 1);
  EXPECT_EQ(last(qp).sges[0].addr, 0x1000u);
  EXPECT_EQ(last(qp).sges[0].lkey, Stag(0x77));

  qp->wr_id = 2;
  qp->wr_flags = IBV_SEND_FENCE;
  const ibv_sge list[] = {{0x1000, 60, 1}, {0x2000, 40, 2}};
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_rdma_read(qp, 0x88, 0x3000);
                    ibv_wr_set_sge_list(qp, 2, list);
                  }),
            0);
  EXPECT_EQ(last(qp).opcode, model::SendOpcode::kRead);
  EXPECT_TRUE(last(qp).fence && !last(qp).signaled);
  EXPECT_EQ(last(qp).length, 100u);  // the sum
  EXPECT_EQ(last(qp).sge_count, 2);
  EXPECT_EQ(last(qp).rkey, Stag(0x88));
  EXPECT_EQ(last(qp).remote_addr, 0x3000u);

  EXPECT_EQ(batch(qp, [&] { ibv_wr_rdma_write_imm(qp, 0x99, 0x4000, 9); }), 0);
  EXPECT_EQ(last(qp).opcode, model::SendOpcode::kWriteWithImm);
  EXPECT_EQ(last(qp).length, 0u);  // no data was set
  EXPECT_EQ(last(qp).immediate, 9u);
  EXPECT_EQ(last(qp).rkey, Stag(0x99));
  EXPECT_EQ(posted(qp), 3u);
}

TEST_F(PostExTest, Atomics) {
  ibv_qp_ex* qp =
      make_qp_ex(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_atomic_cmp_swp(qp, 0x88, 0x3000, 5, 6);
                    ibv_wr_set_sge(qp, 0x77, 0x1000, 8);
                  }),
            0);
  EXPECT_EQ(last(qp).opcode, model::SendOpcode::kCompareSwap);
  EXPECT_EQ(last(qp).rkey, Stag(0x88));
  EXPECT_EQ(last(qp).remote_addr, 0x3000u);
  EXPECT_EQ(last(qp).compare_add, 5u);
  EXPECT_EQ(last(qp).swap, 6u);
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_atomic_fetch_add(qp, 0x89, 0x3008, 7);
                    ibv_wr_set_sge(qp, 0x77, 0x1000, 8);
                  }),
            0);
  EXPECT_EQ(last(qp).opcode, model::SendOpcode::kFetchAdd);
  EXPECT_EQ(last(qp).rkey, Stag(0x89));
  EXPECT_EQ(last(qp).remote_addr, 0x3008u);
  EXPECT_EQ(last(qp).compare_add, 7u);
  EXPECT_EQ(batch(qp, [&] { ibv_wr_atomic_fetch_add(qp, 1, 8, 1); }), EINVAL);  // to nowhere
}

TEST_F(PostExTest, InlineDataNeedsNoFlag) {
  ibv_qp_ex* qp = make_qp_ex();
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_send(qp);
                    ibv_wr_set_inline_data(qp, text_, 5);
                  }),
            0);
  EXPECT_TRUE(last(qp).inlined);
  EXPECT_EQ(inlined(last(qp)), "01234");
  // More pieces than the queue pair has scatter/gather entries, some of them empty.
  const ibv_data_buf pieces[] = {
      {text_ + 8, 2}, {nullptr, 0}, {text_, 3}, {text_ + 10, 5}, {text_, 1}};
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_rdma_write(qp, 1, 2);
                    ibv_wr_set_inline_data_list(qp, 5, pieces);
                  }),
            0);
  EXPECT_EQ(inlined(last(qp)), "89012abcde0");
  // The flag alone makes nothing inline.
  qp->wr_flags = IBV_SEND_INLINE;
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_send(qp);
                    ibv_wr_set_sge(qp, 1, 2, 65);
                  }),
            0);
  EXPECT_FALSE(last(qp).inlined);
  text_[0] = 'x';
  EXPECT_EQ(inlined(queue_of(qp).at(0)), "01234");
}

TEST_F(PostExTest, ABatchIsPostedAsAWholeAndAtItsEnd) {
  ibv_qp_ex* qp = make_qp_ex();
  ibv_wr_start(qp);
  for (std::uint64_t id = 0; id < 4; ++id) {
    qp->wr_id = id;
    qp->wr_flags = id % 2 == 0 ? unsigned{IBV_SEND_SIGNALED} : 0u;
    ibv_wr_send(qp);  // those without data are complete when the next begins
    if (id % 2 == 0) ibv_wr_set_inline_data(qp, text_, id);
    EXPECT_EQ(posted(qp), 0u);
  }
  EXPECT_EQ(ibv_wr_complete(qp), 0);
  ASSERT_EQ(posted(qp), 4u);
  for (std::uint64_t id = 0; id < 4; ++id) {
    EXPECT_EQ(queue_of(qp).at(id).wr_id, id);
    EXPECT_EQ(queue_of(qp).at(id).signaled, id % 2 == 0);
    EXPECT_EQ(queue_of(qp).at(id).length, id % 2 == 0 ? id : 0u);
  }
}

TEST_F(PostExTest, AnEmptyBatchIsFine) {
  ibv_qp_ex* qp = make_qp_ex();
  EXPECT_EQ(batch(qp, [] {}), 0);
  EXPECT_EQ(posted(qp), 0u);
}

TEST_F(PostExTest, AbortForgetsEverything) {
  ibv_qp_ex* qp = make_qp_ex();
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_sge(qp, 1, 2, 3);
  ibv_wr_abort(qp);
  EXPECT_EQ(posted(qp), 0u);
  EXPECT_EQ(batch(qp, [&] { ibv_wr_send(qp); }), 0);
  EXPECT_EQ(posted(qp), 1u);
}

TEST_F(PostExTest, TheFirstErrorEndsTheBatch) {
  ibv_qp_ex* qp = make_qp_ex(kBasicOps & ~std::uint64_t{IBV_QP_EX_WITH_RDMA_READ});
  const ibv_sge list[3] = {};
  char big[65] = {};
  const ibv_data_buf wraps[] = {{big, 60}, {big, ~std::size_t{0} - 3}};
  const auto fails = [&](auto build) {
    const int error = batch(qp, [&] {
      ibv_wr_send(qp);
      build();
      ibv_wr_send(qp);  // good, and too late
    });
    EXPECT_EQ(posted(qp), 0u);
    return error;
  };
  EXPECT_EQ(fails([&] { ibv_wr_rdma_read(qp, 1, 2); }), EINVAL);  // not among its operations
  EXPECT_EQ(fails([&] { ibv_wr_local_inv(qp, 1); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_atomic_cmp_swp(qp, 1, 2, 3, 4); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_bind_mw(qp, nullptr, 1, nullptr); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_send_tso(qp, big, 1, 1); }), EOPNOTSUPP);
  EXPECT_EQ(fails([&] { ibv_wr_atomic_write(qp, 1, 2, big); }), EOPNOTSUPP);
  EXPECT_EQ(fails([&] { ibv_wr_set_ud_addr(qp, nullptr, 1, 1); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_set_xrc_srqn(qp, 1); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_set_sge_list(qp, 3, list); }), EINVAL);  // it has 2
  EXPECT_EQ(fails([&] { ibv_wr_set_sge_list(qp, std::size_t{1} << 32, list); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_set_sge_list(qp, 1, nullptr); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_set_inline_data(qp, big, 65); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_set_inline_data(qp, big, std::size_t{1} << 32); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_set_inline_data_list(qp, 2, wraps); }), EINVAL);
  EXPECT_EQ(fails([&] { ibv_wr_set_inline_data_list(qp, 1, nullptr); }), EINVAL);
  EXPECT_EQ(fails([&] {
              ibv_wr_set_sge(qp, 1, 2, 3);
              ibv_wr_set_sge(qp, 1, 2, 3);  // once is all
            }),
            EINVAL);
  EXPECT_EQ(fails([&] {
              qp->wr_flags = 1u << 20;
              ibv_wr_send(qp);
              qp->wr_flags = 0;
            }),
            EINVAL);
  EXPECT_EQ(batch(qp, [&] { ibv_wr_set_sge(qp, 1, 2, 3); }), EINVAL);  // of what?
  EXPECT_EQ(batch(qp, [&] { ibv_wr_send(qp); }), 0);  // nothing is left of all that
  EXPECT_EQ(posted(qp), 1u);
}

TEST_F(PostExTest, InlineDataIsForWhatSendsIt) {
  ibv_qp_ex* qp = make_qp_ex();
  EXPECT_EQ(batch(qp,
                  [&] {
                    ibv_wr_rdma_read(qp, 1, 2);
                    ibv_wr_set_inline_data(qp, text_, 1);
                  }),
            EINVAL);
}

TEST_F(PostExTest, AFullQueueTakesNothingOfTheBatch) {
  ibv_qp_ex* qp = make_qp_ex();
  const auto send = [&](int count) {
    return batch(qp, [&] {
      for (int i = 0; i < count; ++i) ibv_wr_send(qp);
    });
  };
  EXPECT_EQ(send(5), ENOMEM);  // it has 4
  EXPECT_EQ(posted(qp), 0u);
  EXPECT_EQ(send(3), 0);
  EXPECT_EQ(send(2), ENOMEM);
  EXPECT_EQ(send(1), 0);
  EXPECT_EQ(posted(qp), 4u);
}

TEST_F(PostExTest, StatesAreThoseOfPosting) {
  ibv_qp_init_attr_ex attr = wanted_ex();
  ibv_qp* qp = *create_qp_ex(context_, &attr);
  ibv_qp_ex* ex = qp_to_qp_ex(qp);
  EXPECT_EQ(batch(ex, [&] { ibv_wr_send(ex); }), EINVAL);
  ASSERT_EQ(to_init(qp), 0);
  EXPECT_EQ(batch(ex, [&] { ibv_wr_send(ex); }), EINVAL);
  ASSERT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  ex->wr_id = 5;
  EXPECT_EQ(batch(ex, [&] { ibv_wr_send(ex); }), 0);
  const auto done = drain(cq_);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wr_id, 5u);
  EXPECT_EQ(done[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(PostExTest, CallsOutsideOfABatchChangeNothing) {
  ibv_qp_ex* qp = make_qp_ex();
  ibv_wr_send(qp);
  ibv_wr_set_sge(qp, 1, 2, 3);
  ibv_wr_abort(qp);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ibv_wr_start(qp);
  ibv_wr_start(qp);  // within one: an error, and no wait for itself
  ibv_wr_send(qp);
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(post_send(&qp->qp_base, &wr, &bad), EINVAL);
  EXPECT_EQ(to_state(&qp->qp_base, IBV_QPS_RESET), EINVAL);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  EXPECT_EQ(posted(qp), 0u);
  EXPECT_EQ(batch(qp, [&] { ibv_wr_send(qp); }), 0);
}

TEST_F(PostExTest, DestroyedQueuePairsTakeNothing) {
  ibv_qp_ex* qp = make_qp_ex();
  const ibv_qp_ex functions = *qp;
  ibv_wr_start(qp);
  ASSERT_EQ(error_of(destroy_qp(&qp->qp_base)), 0);  // in the middle of a batch
  functions.wr_send(qp);
  functions.wr_set_sge(qp, 1, 2, 3);
  EXPECT_EQ(functions.wr_complete(qp), EINVAL);
  functions.wr_start(qp);
  functions.wr_abort(qp);
  functions.wr_start(nullptr);
  EXPECT_EQ(functions.wr_complete(nullptr), EINVAL);
}

TEST_F(PostExTest, OthersWaitForTheEndOfABatch) {
  ibv_qp_ex* qp = make_qp_ex();
  ibv_wr_start(qp);
  std::thread plain([&] {
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(post_send(&qp->qp_base, &wr, &bad), 0);
  });
  qp->wr_id = 1;
  ibv_wr_send(qp);
  EXPECT_EQ(posted(qp), 0u);
  EXPECT_EQ(ibv_wr_complete(qp), 0);
  plain.join();
  ASSERT_EQ(posted(qp), 2u);
  EXPECT_EQ(queue_of(qp).at(0).wr_id, 1u);
  EXPECT_EQ(queue_of(qp).at(1).wr_id, 2u);
}

}  // namespace
}  // namespace airdma::verbs
