// SPDX-License-Identifier: MIT
// Handles that are no objects: NULL, destroyed, foreign, and those of a parent process.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "tests/unit/verbs/fixture.h"

namespace airdma::verbs {
namespace {

struct Handles {
  ibv_context* context;
  ibv_pd* pd;
  ibv_mr* mr;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_qp* qp;
};

/// What every call answers.
std::vector<int> call_everything(const Handles& on) {
  ibv_device_attr device_attr{};
  ibv_port_attr port_attr{};
  ibv_gid gid{};
  ibv_gid_entry entry{};
  __be16 pkey = 0;
  ibv_async_event event{};
  ibv_device_attr_ex ex{};
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = on.cq;
  ibv_qp_attr attr{};
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  ibv_cq* found = nullptr;
  void* opaque = nullptr;
  ibv_wc wc{};
  char byte = 0;
  ack_cq_events(on.cq, 1);
  event.event_type = IBV_EVENT_QP_FATAL;
  event.element.qp = on.qp;
  ack_async_event(&event);
  return {
      error_of(query_device(on.context, &device_attr)),
      error_of(query_device_ex(on.context, nullptr, &ex, sizeof ex)),
      error_of(query_port(on.context, 1, &port_attr, sizeof port_attr)),
      error_of(query_gid(on.context, 1, 0, &gid)),
      error_of(query_gid_ex(on.context, 1, 0, &entry, 0, sizeof entry)),
      error_of(query_gid_table(on.context, &entry, 1, 0, sizeof entry)),
      error_of(query_pkey(on.context, 1, 0, &pkey)),
      error_of(get_pkey_index(on.context, 1, 0xffff)),
      error_of(get_async_event(on.context, &event)),
      error_of(alloc_pd(on.context)),
      error_of(create_comp_channel(on.context)),
      error_of(create_cq(on.context, 1, nullptr, nullptr, 0)),
      error_of(reg_mr(on.pd, &byte, 1, 0)),
      error_of(create_qp(on.pd, &init)),
      error_of(get_cq_event(on.channel, &found, &opaque)),
      -poll_cq(on.cq, 1, &wc),
      req_notify_cq(on.cq, 0),
      error_of(modify_qp(on.qp, &attr, IBV_QP_STATE)),
      error_of(query_qp(on.qp, &attr, 0, nullptr)),
      post_send(on.qp, &send, &bad_send),
      post_recv(on.qp, &receive, &bad_receive),
      error_of(destroy_qp(on.qp)),
      error_of(destroy_cq(on.cq)),
      error_of(destroy_comp_channel(on.channel)),
      error_of(dereg_mr(on.mr)),
      error_of(dealloc_pd(on.pd)),
      error_of(close_device(on.context)),
  };
}

class HandlesTest : public VerbsTest {
 protected:
  Handles make() {
    Handles made{};
    made.context = context_;
    made.pd = pd_;
    made.mr = *reg_mr(pd_, &byte_, 1, 1);
    made.channel = *create_comp_channel(context_);
    made.cq = make_cq(4, made.channel);
    made.qp = make_qp(made.cq);
    return made;
  }
  static void expect_all_invalid(const std::vector<int>& answers) {
    for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], EINVAL) << i;
  }

  char byte_ = 0;
};

TEST_F(HandlesTest, Null) { expect_all_invalid(call_everything({})); }

TEST_F(HandlesTest, Foreign) {
  verbs_context context{};
  ibv_pd pd{};
  ibv_mr mr{};
  ibv_comp_channel channel{};
  ibv_cq cq{};
  ibv_qp qp{};
  (void)make();
  expect_all_invalid(call_everything({&context.context, &pd, &mr, &channel, &cq, &qp}));
}

TEST_F(HandlesTest, Destroyed) {
  const Handles made = make();
  EXPECT_EQ(error_of(close_device(std::exchange(context_, nullptr))), 0);
  expect_all_invalid(call_everything(made));
}

TEST_F(HandlesTest, OfTheParentInAForkChild) {
  const Handles made = make();
  ASSERT_EQ(to_init(made.qp), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::vector<int> answers = call_everything(made);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const bool of_device = i < 2;  // query_device() and query_device_ex()
      if (answers[i] != (of_device ? 0 : EINVAL)) ::_exit(1);
    }
    // A context of its own works, on a device pointer that the parent got.
    const auto own = open_device(device_);
    ::_exit(own && alloc_pd(*own) && close_device(*own) ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // The parent is undisturbed.
  EXPECT_EQ(receive(made.qp, 1), 0);
  EXPECT_EQ(to_state(made.qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(drain(made.cq).size(), 1u);
  EXPECT_EQ(error_of(destroy_qp(made.qp)), 0);
  EXPECT_EQ(error_of(destroy_cq(made.cq)), 0);
}

}  // namespace
}  // namespace airdma::verbs
