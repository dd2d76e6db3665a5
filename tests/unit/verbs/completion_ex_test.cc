// SPDX-License-Identifier: MIT
// Through the inline functions of <infiniband/verbs.h> where a program would use them.
#include <fcntl.h>
#include <poll.h>
#include <time.h>

#include <cerrno>
#include <thread>

#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

class CompletionExTest : public VerbsTest {
 protected:
  ibv_cq_ex* make_cq_ex(std::uint32_t cqe, std::uint64_t fields = IBV_WC_STANDARD_FLAGS,
                        std::uint32_t flags = 0) {
    ibv_cq_init_attr_ex attr = wanted_cq(cqe, fields);
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = flags;
    return *create_cq_ex(context_, &attr);
  }
  static ibv_cq_init_attr_ex wanted_cq(std::uint32_t cqe, std::uint64_t fields) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = cqe;
    attr.wc_flags = fields;
    return attr;
  }
  int create_error(const ibv_cq_init_attr_ex& attr) {
    ibv_cq_init_attr_ex copy = attr;
    return error_of(create_cq_ex(context_, &copy));
  }
  /// Receives 0, 1, ... on the queue, flushed.
  ibv_qp* flush(ibv_cq_ex* cq, std::uint64_t count) {
    ibv_qp_init_attr attr = wanted(ibv_cq_ex_to_cq(cq));
    attr.cap.max_recv_wr = static_cast<std::uint32_t>(count);
    ibv_qp* qp = *create_qp(pd_, &attr);
    EXPECT_EQ(to_init(qp), 0);
    for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(receive(qp, i), 0);
    EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
    return qp;
  }
  static std::uint64_t clock_ns(clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
  }

  ibv_poll_cq_attr no_attributes_{};
};

TEST_F(CompletionExTest, Attributes) {
  int anything = 0;
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ibv_cq_init_attr_ex attr = wanted_cq(10, IBV_WC_EX_WITH_BYTE_LEN);
  attr.cq_context = &anything;
  attr.channel = channel;
  const auto cq = create_cq_ex(context_, &attr);
  ASSERT_TRUE(cq);
  EXPECT_EQ((*cq)->cq_context, &anything);
  EXPECT_EQ((*cq)->channel, channel);
  EXPECT_EQ((*cq)->context, context_);
  EXPECT_GE((*cq)->cqe, 10);
  EXPECT_EQ(error_of(destroy_comp_channel(channel)), EBUSY);
  EXPECT_EQ(error_of(destroy_cq(ibv_cq_ex_to_cq(*cq))), 0);
  EXPECT_EQ(error_of(destroy_comp_channel(channel)), 0);
  EXPECT_EQ(error_of(create_cq_ex(context_, nullptr)), EINVAL);
  EXPECT_EQ(error_of(create_cq_ex(nullptr, &attr)), EINVAL);
}

TEST_F(CompletionExTest, SizesAndVectors) {
  const auto most = static_cast<std::uint32_t>(kMaxCompletions);
  for (const std::uint32_t size : {0u, most + 1, 1u << 31, ~0u}) {
    EXPECT_EQ(create_error(wanted_cq(size, 0)), EINVAL) << size;
  }
  EXPECT_EQ(create_error(wanted_cq(most, 0)), 0);
  ibv_cq_init_attr_ex attr = wanted_cq(1, 0);
  for (const std::uint32_t vector :
       {static_cast<std::uint32_t>(context_->num_comp_vectors), 1u << 31, ~0u}) {
    attr.comp_vector = vector;
    EXPECT_EQ(create_error(attr), EINVAL) << vector;
  }
}

TEST_F(CompletionExTest, WhatTheDeviceHasNotIsRefused) {
  for (const std::uint64_t field :
       {std::uint64_t{IBV_WC_EX_WITH_CVLAN}, std::uint64_t{IBV_WC_EX_WITH_FLOW_TAG},
        std::uint64_t{IBV_WC_EX_WITH_TM_INFO}, std::uint64_t{1} << 12, std::uint64_t{1} << 63}) {
    EXPECT_EQ(create_error(wanted_cq(1, IBV_WC_STANDARD_FLAGS | field)), EOPNOTSUPP) << field;
  }
  ibv_cq_init_attr_ex attr = wanted_cq(1, 0);
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = 1u << 2;
  EXPECT_EQ(create_error(attr), EOPNOTSUPP);
  attr.comp_mask = 0;  // then nobody looks at the flags
  EXPECT_EQ(create_error(attr), 0);
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = pd_;
  EXPECT_EQ(create_error(attr), EINVAL);
  attr.comp_mask = 1u << 2;
  EXPECT_EQ(create_error(attr), EINVAL);
}

TEST_F(CompletionExTest, ReadsABatchInOrder) {
  ibv_cq_ex* cq = make_cq_ex(16, IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), ENOENT);
  ibv_qp* qp = flush(cq, 3);
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cq->wr_id, i);
    EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), qp->qp_num);
    EXPECT_EQ(ibv_next_poll(cq), i < 2 ? 0 : ENOENT);
  }
  EXPECT_EQ(cq->wr_id, 2u);  // what was read last stays until the end
  EXPECT_EQ(ibv_wc_read_qp_num(cq), qp->qp_num);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_start_poll(cq, &no_attributes_), ENOENT);
}

TEST_F(CompletionExTest, EveryFieldCanBeRead) {
  ibv_cq_ex* cq = make_cq_ex(4);
  Cq* object = find_object(ibv_cq_ex_to_cq(cq));
  ASSERT_TRUE(object->queue->push({.wr_id = 7,
                                   .opcode = model::WcOpcode::kReceiveRdmaWithImm,
                                   .receive = true,
                                   .byte_len = 4096,
                                   .immediate = 0x01020304,
                                   .flags = model::kWcWithImmediate,
                                   .vendor_error = 5,
                                   .qpn = Qpn(0x123)}));
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  EXPECT_EQ(cq->wr_id, 7u);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(ibv_wc_read_vendor_err(cq), 5u);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 4096u);
  EXPECT_EQ(ibv_wc_read_imm_data(cq), 0x01020304u);
  EXPECT_EQ(ibv_wc_read_invalidated_rkey(cq), 0x01020304u);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), 0x123u);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_src_qp(cq), 0u);
  EXPECT_EQ(ibv_wc_read_slid(cq), 0u);
  EXPECT_EQ(ibv_wc_read_sl(cq), 0u);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0u);
  EXPECT_EQ(ibv_wc_read_cvlan(cq), 0u);  // not asked for: harmless
  EXPECT_EQ(ibv_wc_read_flow_tag(cq), 0u);
  EXPECT_EQ(ibv_wc_read_completion_ts(cq), 0u);
  ibv_wc_tm_info info{.tag = 1, .priv = 1};
  ibv_wc_read_tm_info(cq, &info);
  EXPECT_EQ(info.tag, 0u);
  ibv_end_poll(cq);
}

TEST_F(CompletionExTest, MisuseIsToldAndDoesNoHarm) {
  ibv_cq_ex* cq = make_cq_ex(16);
  ibv_poll_cq_attr unknown{.comp_mask = 1};
  flush(cq, 2);
  EXPECT_EQ(ibv_start_poll(cq, &unknown), EINVAL);
  EXPECT_EQ(ibv_start_poll(cq, nullptr), EINVAL);
  EXPECT_EQ(ibv_next_poll(cq), EINVAL);  // no batch is open
  ibv_end_poll(cq);
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  EXPECT_EQ(ibv_start_poll(cq, &no_attributes_), EBUSY);  // and does not wait for itself
  EXPECT_EQ(cq->wr_id, 0u);
  EXPECT_EQ(ibv_next_poll(cq), 0);
  ibv_end_poll(cq);
}

TEST_F(CompletionExTest, WhatIsBeingReadOutlivesItsQueuePair) {
  ibv_cq_ex* cq = make_cq_ex(16);
  ibv_qp* qp = flush(cq, 3);
  const std::uint32_t number = qp->qp_num;
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  EXPECT_EQ(cq->wr_id, 0u);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), number);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);  // the others went with it
  ibv_end_poll(cq);
}

TEST_F(CompletionExTest, AnotherThreadWaitsForTheEndOfABatch) {
  ibv_cq_ex* cq = make_cq_ex(16);
  flush(cq, 2);
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  std::atomic<bool> ended{false};
  std::thread other([&] {
    EXPECT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
    EXPECT_TRUE(ended);
    EXPECT_EQ(cq->wr_id, 1u);
    ibv_end_poll(cq);
  });
  EXPECT_EQ(cq->wr_id, 0u);
  ended = true;
  ibv_end_poll(cq);
  other.join();
}

TEST_F(CompletionExTest, IsAPlainQueueToo) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq_init_attr_ex attr = wanted_cq(4, IBV_WC_STANDARD_FLAGS);
  attr.channel = channel;
  ibv_cq_ex* cq_ex = *create_cq_ex(context_, &attr);
  ibv_cq* cq = ibv_cq_ex_to_cq(cq_ex);
  EXPECT_EQ(error_of(resize_cq(cq, 8)), 0);
  EXPECT_EQ(cq_ex->cqe, 8);
  EXPECT_EQ(req_notify_cq(cq, 0), 0);
  flush(cq_ex, 3);
  ibv_cq* found = nullptr;
  void* opaque = nullptr;
  ASSERT_EQ(error_of(get_cq_event(channel, &found, &opaque)), 0);
  EXPECT_EQ(found, cq);
  ack_cq_events(cq, 1);
  EXPECT_EQ(cq_ex->comp_events_completed, 1u);
  ASSERT_EQ(ibv_start_poll(cq_ex, &no_attributes_), 0);
  ibv_wc wc{};
  EXPECT_EQ(poll_cq(cq, 1, &wc), 1);  // takes the next one, batch or not
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_EQ(cq_ex->wr_id, 0u);
  EXPECT_EQ(ibv_next_poll(cq_ex), 0);
  EXPECT_EQ(cq_ex->wr_id, 2u);
  ibv_end_poll(cq_ex);
}

TEST_F(CompletionExTest, TimesAreOfTheDevicesClock) {
  ibv_device_attr_ex device{};
  ASSERT_EQ(error_of(query_device_ex(context_, nullptr, &device, sizeof device)), 0);
  EXPECT_EQ(device.completion_timestamp_mask, ~std::uint64_t{0});
  EXPECT_EQ(device.hca_core_clock, 1'000'000u);  // kHz: a tick is a nanosecond
  ibv_cq_ex* cq = make_cq_ex(
      4, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
  const std::uint64_t wall_before = clock_ns(CLOCK_REALTIME);
  ibv_values_ex before{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
  ASSERT_EQ(error_of(query_rt_values(context_, &before)), 0);
  EXPECT_EQ(before.comp_mask, std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK});
  flush(cq, 2);
  const std::uint64_t after = clock_ns(CLOCK_MONOTONIC);
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  const std::uint64_t first = ibv_wc_read_completion_ts(cq);
  EXPECT_GE(first, static_cast<std::uint64_t>(before.raw_clock.tv_sec) * 1'000'000'000 +
                       static_cast<std::uint64_t>(before.raw_clock.tv_nsec));
  EXPECT_GE(ibv_wc_read_completion_wallclock_ns(cq), wall_before);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_GE(ibv_wc_read_completion_ts(cq), first);
  EXPECT_LE(ibv_wc_read_completion_ts(cq), after);
  EXPECT_LE(ibv_wc_read_completion_wallclock_ns(cq), clock_ns(CLOCK_REALTIME));
  ibv_end_poll(cq);
}

TEST_F(CompletionExTest, ClockQueries) {
  ibv_values_ex values{.comp_mask = 0, .raw_clock = {.tv_sec = -1, .tv_nsec = -1}};
  EXPECT_EQ(error_of(query_rt_values(context_, &values)), 0);
  EXPECT_EQ(values.raw_clock.tv_sec, -1);  // not asked for
  values.comp_mask = IBV_VALUES_MASK_RESERVED;
  EXPECT_EQ(error_of(query_rt_values(context_, &values)), EINVAL);
  EXPECT_EQ(error_of(query_rt_values(context_, nullptr)), EINVAL);
  EXPECT_EQ(error_of(query_rt_values(nullptr, &values)), EINVAL);
}

TEST_F(CompletionExTest, AnOverrunQueueGivesWhatItHasAndThenFails) {
  ibv_cq_ex* cq = make_cq_ex(2);
  flush(cq, 3);
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  EXPECT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(ibv_next_poll(cq), EIO);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_start_poll(cq, &no_attributes_), EIO);
  EXPECT_EQ(ibv_start_poll(cq, &no_attributes_), EIO);  // and holds nothing
}

TEST_F(CompletionExTest, OverrunCanBeIgnored) {
  ibv_cq_ex* cq = make_cq_ex(2, IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
  flush(cq, 5);
  ASSERT_EQ(ibv_start_poll(cq, &no_attributes_), 0);
  EXPECT_EQ(cq->wr_id, 3u);
  EXPECT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 4u);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  pollfd events{.fd = context_->async_fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&events, 1, 0), 0);
}

TEST_F(CompletionExTest, DestroyedQueuesAreNoQueues) {
  ibv_cq_ex* cq = make_cq_ex(2);
  const auto start_poll = cq->start_poll;
  const auto next_poll = cq->next_poll;
  const auto end_poll = cq->end_poll;
  ASSERT_EQ(error_of(destroy_cq(ibv_cq_ex_to_cq(cq))), 0);
  EXPECT_EQ(start_poll(cq, &no_attributes_), EINVAL);
  EXPECT_EQ(next_poll(cq), EINVAL);
  end_poll(cq);
  EXPECT_EQ(start_poll(nullptr, &no_attributes_), EINVAL);
}

}  // namespace
}  // namespace airdma::verbs
