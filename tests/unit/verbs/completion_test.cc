// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

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

TEST_F(CompletionTest, Resizing) {
  ibv_cq* cq = make_cq(2);
  ibv_qp* qp = make_loaded_qp(cq, 4);
  EXPECT_EQ(error_of(resize_cq(cq, 4)), 0);
  EXPECT_EQ(cq->cqe, 4);
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(error_of(resize_cq(cq, 3)), EINVAL);  // it holds 4
  for (const int size : {0, -1, kMaxCompletions + 1}) {
    EXPECT_EQ(error_of(resize_cq(cq, size)), EINVAL) << size;
  }
  EXPECT_EQ(cq->cqe, 4);
  EXPECT_EQ(error_of(resize_cq(cq, kMaxCompletions)), 0);
  EXPECT_EQ(cq->cqe, kMaxCompletions);
  EXPECT_EQ(drain(cq).size(), 4u);
  EXPECT_EQ(error_of(resize_cq(cq, 1)), 0);
  EXPECT_EQ(error_of(resize_cq(nullptr, 1)), EINVAL);
  EXPECT_EQ(error_of(destroy_qp(qp)), 0);
  EXPECT_EQ(error_of(destroy_cq(cq)), 0);
  EXPECT_EQ(error_of(resize_cq(cq, 1)), EINVAL);
}

TEST_F(CompletionTest, AnOverrunTakesAllQueuePairsOfTheQueueToError) {
  ibv_cq* cq = make_cq(1);
  ibv_qp* bystander = make_qp(cq);
  ASSERT_EQ(to_init(bystander), 0);
  ibv_cq* elsewhere = make_cq(4);
  ibv_qp_init_attr attr = wanted(cq);
  attr.recv_cq = elsewhere;
  ibv_qp* half = *create_qp(pd_, &attr);
  ASSERT_EQ(to_init(half), 0);
  ASSERT_EQ(receive(half, 5), 0);
  ibv_qp* qp = make_loaded_qp(cq, 3);
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  while (state_of(bystander) != IBV_QPS_ERR || state_of(half) != IBV_QPS_ERR) {
    std::this_thread::yield();
  }
  ibv_wc wc{};
  while (poll_cq(elsewhere, 1, &wc) == 0) std::this_thread::yield();
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(poll_cq(elsewhere, 1, &wc), 0);  // that queue is well
}

TEST_F(CompletionTest, QueuesOnOneChannelAreToldApart) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* cqs[3];
  ibv_qp* qps[3];
  for (int i = 0; i < 3; ++i) {
    cqs[i] = make_cq(8, channel);
    qps[i] = make_loaded_qp(cqs[i], 2);
    EXPECT_EQ(req_notify_cq(cqs[i], 0), 0);
  }
  for (const int i : {2, 0}) EXPECT_EQ(to_state(qps[i], IBV_QPS_ERR), 0);
  ibv_cq* found = nullptr;
  void* opaque = nullptr;
  for (const int i : {2, 0}) {
    EXPECT_TRUE(readable(channel->fd));
    ASSERT_EQ(error_of(get_cq_event(channel, &found, &opaque)), 0);
    EXPECT_EQ(found, cqs[i]);
  }
  EXPECT_FALSE(readable(channel->fd));
  EXPECT_EQ(error_of(get_cq_event(channel, &found, &opaque)), EAGAIN);
  ack_cq_events(cqs[2], 1);
  ack_cq_events(cqs[0], 1);
}

TEST_F(CompletionTest, SolicitedOnlyIsToldOfErrors) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ibv_cq* cq = make_cq(8, channel);
  ibv_qp* qp = make_loaded_qp(cq, 1);
  EXPECT_EQ(req_notify_cq(cq, 1), 0);
  ASSERT_TRUE(find_object(cq)->queue->push({.wr_id = 9}));
  EXPECT_FALSE(readable(channel->fd));  // neither solicited nor an error
  EXPECT_EQ(to_state(qp, IBV_QPS_ERR), 0);
  EXPECT_TRUE(readable(channel->fd));
}

TEST_F(CompletionTest, EdgesOfAChannelTellOfEachEvent) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  ASSERT_GE(epoll, 0);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  ASSERT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &event), 0);
  ibv_cq* cq = make_cq(8, channel);
  EXPECT_EQ(::epoll_wait(epoll, &event, 1, 0), 0);
  for (int i = 0; i < 2; ++i) {
    // The second edge comes although the first event has not been fetched.
    EXPECT_EQ(req_notify_cq(cq, 0), 0);
    ASSERT_TRUE(find_object(cq)->queue->push({}));
    EXPECT_EQ(::epoll_wait(epoll, &event, 1, 0), 1);
    EXPECT_EQ(::epoll_wait(epoll, &event, 1, 0), 0);
  }
  ibv_cq* found = nullptr;
  void* opaque = nullptr;
  EXPECT_EQ(error_of(get_cq_event(channel, &found, &opaque)), 0);
  EXPECT_EQ(error_of(get_cq_event(channel, &found, &opaque)), 0);
  EXPECT_EQ(error_of(get_cq_event(channel, &found, &opaque)), EAGAIN);
  ack_cq_events(cq, 2);
  ::close(epoll);
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
