// SPDX-License-Identifier: MIT
// Queue pairs and connection attempts that end while something else still knows them.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>

#include "model/memory.h"
#include "runtime/connection.h"

namespace airdma::runtime {
namespace {

struct Side {
  explicit Side(std::uint32_t qpn) {
    QueuePairConfig config;
    config.qpn = Qpn{qpn};
    config.pd = PdId{1};
    config.max_send_wr = config.max_recv_wr = 16;
    queue_pair = StreamQueuePair::create(config, table, cq, cq, {});
    queue_pair->set_state(QpState::kInit);
  }
  ~Side() { queue_pair->destroy(); }

  void post_receive() {
    {
      std::lock_guard lock(queue_pair->receive_lock());
      queue_pair->receive_queue().slot(0).wr_id = 1;
      queue_pair->receive_queue().publish(1);
    }
    queue_pair->receives_posted();
  }

  model::MemoryTable table;
  CompletionQueue cq{64, nullptr, nullptr};
  std::shared_ptr<StreamQueuePair> queue_pair;
};

// Who still holds one, as the connection manager may, does not reach its queues with it: the
// program destroys those next.
TEST(DestroyedQueuePair, CompletesNothing) {
  Side side(1);
  side.post_receive();
  side.queue_pair->destroy();
  side.queue_pair->fail();
  model::Completion completion;
  EXPECT_EQ(side.cq.poll(1, &completion), 0);
}

TEST(FailedQueuePair, FlushesWhatIsPostedAfterwards) {
  Side side(1);
  side.queue_pair->fail();
  side.post_receive();
  model::Completion completion;
  ASSERT_EQ(side.cq.poll(1, &completion), 1);
  EXPECT_EQ(completion.status, model::WcStatus::kFlushError);
}

class Acceptor : public ListenObserver {
 public:
  explicit Acceptor(Side& side) : side_(side) {}
  void on_request(std::shared_ptr<PassiveConnection> connection) override {
    [[maybe_unused]] const auto status =
        connection->accept({}, {}, side_.queue_pair, {});  // the peer may be gone already
    answered.set_value();
  }
  void on_request_lost(PassiveConnection&) override {}

  std::promise<void> answered;

 private:
  Side& side_;
};

io::Address loopback() {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return *io::Address::from(reinterpret_cast<sockaddr*>(&raw));
}

// The attempt is given up while its reply is on the way or being read: whoever comes first, the
// other finds it done. For sanitizers, mostly.
TEST(ActiveConnection, MayBeCancelledWhenTheReplyComes) {
  for (int round = 0; round < 40; ++round) {
    Side client(1);
    Side server(2);
    const auto acceptor = std::make_shared<Acceptor>(server);
    auto listener = *Listener::start(*io::TcpSocket::bound(loopback(), {}), 16,
                                     std::chrono::seconds(10), acceptor);
    auto attempt = *ActiveConnection::start({}, listener->local_address(), {}, {},
                                            std::chrono::seconds(10), client.queue_pair, {}, {});
    acceptor->answered.get_future().wait();
    attempt->cancel();
    listener->close();
  }
}

}  // namespace
}  // namespace airdma::runtime
