// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <thread>

#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

class CompletionTest : public VerbsTest {
 protected:
  /// A queue pair in INIT with `count` receives: moving it to ERR makes that many completions.
  ibv_qp* make_loaded_qp(ibv_cq* cq, int count) {
    ibv_qp* qp = make_qp(cq);
    EXPECT_EQ(to_init(qp), 0);
    for (int i = 0; i < count; ++i) EXPECT_EQ(receive(qp, static_cast<uint64_t>(i)), 0);
    return qp;
  }
  static bool readable(int fd) {
    pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, 0) == 1;
  }
};

/// Waits until another thread has begun to destroy the object (and has not finished).
template <class Object>
bool wait_until_closing(Object* handle) {
  EventGate& gate = state().gate_of(handle);
  for (;;) {
    {
      std::lock_guard lock(gate.mutex);
      const auto* object = find_object(handle);
      if (object == nullptr) return false;
      if (object->closing) return true;
    }
    std::this_thread::yield();
  }
}

TEST_F(CompletionTest, Sizes) {
  for (const int size : {-1, 0, kMaxCompletions + 1}) {
    EXPECT_EQ(error_of(create_cq(context_, size, nullptr, nullptr, 0)), EINVAL) << size;
  }
  int anything = 0;
  for (const int size : {1, 100, kMaxCompletions}) {
    const auto cq = create_cq(context_, size, &anything, nullptr, 0);
    ASSERT_TRUE(cq) << size;
    EXPECT_GE((*cq)->cqe, size);
    EXPECT_EQ((*cq)->cq_context, &anything);
    EXPECT_EQ((*cq)->context, context_);
    EXPECT_EQ(error_of(destroy_cq(*cq)), 0);
    EXPECT_EQ(error_of(destroy_cq(*cq)), EINVAL);
  }
}

TEST_F(CompletionTest, Vectors) {
  const int vectors = context_->num_comp_vectors;
  ASSERT_GT(vectors, 0);
  EXPECT_EQ(error_of(create_cq(context_, 4, nullptr, nullptr, -1)), EINVAL);
  EXPECT_EQ(error_of(create_cq(context_, 4, nullptr, nullptr, vectors)), EINVAL);
  EXPECT_EQ(error_of(create_cq(context_, 4, nullptr, nullptr, vectors - 1)), 0);
}

TEST_F(CompletionTest, ChannelIsBusyWithAQueueAndQueueWithAQueuePair) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ibv_cq* cq = make_cq(4, channel);
  ibv_qp* qp = make_qp(cq);
  EXPECT_EQ(error_of(destroy_comp_channel(channel)), EBUSY);
  EXPECT_EQ(error_of(destroy_cq(cq)), EBUSY);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EBUSY);
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  EXPECT_EQ(error_of(destroy_cq(cq)), 0);
  EXPECT_EQ(error_of(destroy_comp_channel(channel)), 0);
  EXPECT_EQ(error_of(destroy_comp_channel(channel)), EINVAL);
}

TEST_F(CompletionTest, ChannelIsADescriptorLikeAnyOther) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* found = nullptr;
  void* opaque = nullptr;
  EXPECT_EQ(error_of(get_cq_event(channel, &found, &opaque)), EAGAIN);
  ibv_cq* cq = *create_cq(context_, 8, &opaque, channel, 0);
  ibv_qp* qp = make_loaded_qp(cq, 2);
  EXPECT_EQ(req_notify_cq(cq, 0), 0);
  EXPECT_FALSE(readable(channel->fd));
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  EXPECT_TRUE(readable(channel->fd));
  ASSERT_EQ(error_of(get_cq_event(channel, &found, &opaque)), 0);
  EXPECT_EQ(found, cq);
  EXPECT_EQ(opaque, &opaque);
  EXPECT_FALSE(readable(channel->fd));  // one notification for two completions
  ack_cq_events(cq, 1);
  EXPECT_EQ(cq->comp_events_completed, 1u);
  EXPECT_EQ(drain(cq).size(), 2u);
}

TEST_F(CompletionTest, DestroyingAQueueWaitsForItsEventsToBeAcked) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ibv_cq* cq = make_cq(8, channel);
  ibv_qp* qp = make_loaded_qp(cq, 1);
  EXPECT_EQ(req_notify_cq(cq, 0), 0);
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  ibv_cq* found = nullptr;
  void* opaque = nullptr;
  ASSERT_EQ(error_of(get_cq_event(channel, &found, &opaque)), 0);
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  std::atomic<bool> acked{false};
  bool acked_before_return = false;
  std::thread other([&] {
    EXPECT_EQ(error_of(destroy_cq(cq)), 0);
    acked_before_return = acked;
  });
  EXPECT_TRUE(wait_until_closing(cq));
  acked = true;
  ack_cq_events(cq, 1);
  other.join();
  EXPECT_TRUE(acked_before_return);
}

TEST_F(CompletionTest, UnfetchedEventsGoWithTheQueue) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* cq = make_cq(8, channel);
  ibv_qp* qp = make_loaded_qp(cq, 1);
  EXPECT_EQ(req_notify_cq(cq, 0), 0);
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  EXPECT_TRUE(readable(channel->fd));
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  EXPECT_EQ(error_of(destroy_cq(cq)), 0);
  EXPECT_FALSE(readable(channel->fd));
  ibv_cq* found = nullptr;
  void* opaque = nullptr;
  EXPECT_EQ(error_of(get_cq_event(channel, &found, &opaque)), EAGAIN);
}

TEST_F(CompletionTest, TooManyAcksDoNoHarm) {
  ibv_cq* cq = make_cq(8);
  ack_cq_events(cq, 5);
  EXPECT_EQ(error_of(destroy_cq(cq)), 0);
}

TEST_F(CompletionTest, OverrunMakesOneAsyncEventAndFailsThePoll) {
  ibv_cq* cq = make_cq(1);
  ibv_qp* qp = make_loaded_qp(cq, 3);
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  ASSERT_EQ(::fcntl(context_->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  ASSERT_EQ(error_of(get_async_event(context_, &event)), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, cq);
  ibv_async_event second{};
  EXPECT_EQ(error_of(get_async_event(context_, &second)), EAGAIN);
  ibv_wc wc{};
  EXPECT_EQ(poll_cq(cq, 1, &wc), 1);
  EXPECT_LT(poll_cq(cq, 1, &wc), 0);
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);

  std::atomic<bool> acked{false};
  bool acked_before_return = false;
  std::thread other([&] {
    EXPECT_EQ(error_of(destroy_cq(cq)), 0);
    acked_before_return = acked;
  });
  EXPECT_TRUE(wait_until_closing(cq));
  acked = true;
  ack_async_event(&event);
  other.join();
  EXPECT_TRUE(acked_before_return);
}

TEST_F(CompletionTest, UnfetchedAsyncEventsGoWithTheirObject) {
  ibv_cq* cq = make_cq(1);
  ibv_qp* qp = make_loaded_qp(cq, 3);
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  EXPECT_TRUE(readable(context_->async_fd));
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  EXPECT_EQ(error_of(destroy_cq(cq)), 0);
  EXPECT_FALSE(readable(context_->async_fd));
}

TEST_F(CompletionTest, PollsManyAtOnceInOrder) {
  ibv_cq* cq = make_cq(100);
  ibv_qp_init_attr attr = wanted(cq);
  attr.cap.max_recv_wr = 50;
  ibv_qp* qp = *create_qp(pd_, &attr);
  EXPECT_EQ(to_init(qp), 0);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(receive(qp, i), 0);
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  ibv_wc wc[64];
  ASSERT_EQ(poll_cq(cq, 40, wc), 40);
  ASSERT_EQ(poll_cq(cq, 24, wc + 40), 10);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(wc[i].wr_id, i);
  EXPECT_EQ(poll_cq(cq, 0, nullptr), 0);
  EXPECT_LT(poll_cq(cq, 1, nullptr), 0);
  EXPECT_LT(poll_cq(cq, -1, wc), 0);
}

}  // namespace
}  // namespace airdma::verbs
