// SPDX-License-Identifier: MIT
// A thread that waits for a completion event looks for it itself while messages come fast.
#include <future>

#include "runtime/progress.h"
#include "tests/unit/verbs/pairs_fixture.h"

namespace airdma::cm {
namespace {

class EventWatchTest : public PairsTest {
 protected:
  void SetUp() override {
    PairsTest::SetUp();
    ASSERT_NO_FATAL_FAILURE(start_listening());
    ASSERT_NO_FATAL_FAILURE(add_pair());
  }
  void make_queues(ibv_context* context) override {
    pd_ = *verbs::alloc_pd(context);
    channel_ = *verbs::create_comp_channel(context);
    cq_ = *verbs::create_cq(context, 4096, nullptr, channel_, 0);
  }
  void TearDown() override {
    PairsTest::TearDown();
    EXPECT_TRUE(verbs::destroy_comp_channel(channel_));
  }
  /// Only the receive completes with an entry.
  void send_silently() {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_send(clients_[0]->qp, &wr, &bad), 0);
  }
  void exchange() {
    ASSERT_EQ(receive(passives_[0]->qp, 1), 0);
    ASSERT_EQ(verbs::req_notify_cq(cq_, 0), 0);
    ASSERT_NO_FATAL_FAILURE(send_silently());
    verbs::req_notify_cq(cq_, 0);  // sends what the post held back
    ibv_cq* found = nullptr;
    void* context = nullptr;
    ASSERT_TRUE(verbs::get_cq_event(channel_, &found, &context));
    verbs::ack_cq_events(found, 1);
    ibv_wc wc{};
    ASSERT_EQ(verbs::poll_cq(cq_, 1, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }

  ibv_comp_channel* channel_ = nullptr;
};

// Nobody else can: the library's own thread is kept from it. Without the look this never ends.
TEST_F(EventWatchTest, FindsWhatTheProgressThreadDoesNot) {
  ASSERT_NO_FATAL_FAILURE(exchange());
  std::promise<void> held;
  std::promise<void> release;
  (*runtime::Progress::start())->defer([&held, gate = release.get_future().share()] {
    held.set_value();
    gate.wait();
  });
  held.get_future().wait();
  exchange();
  release.set_value();
}

}  // namespace
}  // namespace airdma::cm
