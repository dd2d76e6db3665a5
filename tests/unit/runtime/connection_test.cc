// SPDX-License-Identifier: MIT
// Connection setup and the life of a stream over real loopback sockets.
#include "runtime/connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>
#include <string_view>

#include "model/memory.h"

namespace airdma::runtime {
namespace {

constexpr PdId kPd{1};
constexpr Stag kKey{0x1234};
constexpr mpa::Offer kOffer{.ird = 4, .ord = 4};  // READs each way

io::Address loopback(std::uint16_t port = 0) {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_port = htons(port);
  raw.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return *io::Address::from(reinterpret_cast<sockaddr*>(&raw));
}

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One side: memory, a completion queue, a queue pair, and what its observers heard.
struct Side : ConnectObserver, StreamObserver {
  explicit Side(std::uint32_t qpn, std::size_t bytes = 4096) : memory(bytes) {
    region.start = memory.data();
    region.base = reinterpret_cast<std::uint64_t>(memory.data());
    region.length = memory.size();
    region.pd = kPd;
    region.access = model::kAccessLocalWrite | model::kAccessRemoteWrite | model::kAccessRemoteRead;
    EXPECT_TRUE(table.publish(kKey, region));
    QueuePairConfig config;
    config.qpn = Qpn{qpn};
    config.pd = kPd;
    config.max_send_wr = config.max_recv_wr = 16;
    queue_pair = StreamQueuePair::create(config, table, cq, cq, {});
    queue_pair->set_state(QpState::kInit);
  }
  ~Side() { queue_pair->destroy(); }

  void on_connected(const mpa::Agreement&, Bytes data) override {
    outcome.set_value("connected " + text_of(data));
  }
  void on_rejected(Bytes data) override { outcome.set_value("rejected " + text_of(data)); }
  void on_connect_failed(int error) override {
    outcome.set_value("failed " + std::to_string(error));
  }
  void on_stream_closed() override { closed.set_value(); }

  void post_receive(std::uint64_t wr_id) {
    {
      std::lock_guard lock(queue_pair->receive_lock());
      model::ReceiveWqe& wqe = queue_pair->receive_queue().slot(0);
      wqe.wr_id = wr_id;
      wqe.length = static_cast<std::uint32_t>(memory.size());
      wqe.sge_count = 1;
      wqe.sges[0] = {region.base, wqe.length, kKey};
      queue_pair->receive_queue().publish(1);
    }
    queue_pair->receives_posted();
  }
  void post_send(std::uint64_t wr_id, std::uint32_t length) { post(wr_id, length, nullptr); }
  /// The first bytes of the other side's memory into the last of this one's.
  void post_read(std::uint64_t wr_id, std::uint32_t length, const Side& other) {
    post(wr_id, length, &other);
  }
  void post(std::uint64_t wr_id, std::uint32_t length, const Side* read_from) {
    {
      std::lock_guard lock(queue_pair->send_lock());
      model::SendWqe& wqe = queue_pair->send_queue().slot(0);
      wqe.wr_id = wr_id;
      wqe.signaled = true;
      wqe.length = length;
      wqe.sge_count = 1;
      wqe.sges[0] = {region.base, length, kKey};
      if (read_from != nullptr) {
        wqe.opcode = model::SendOpcode::kRead;
        wqe.rkey = kKey;
        wqe.remote_addr = read_from->region.base;
        wqe.sges[0].addr += memory.size() - length;
      }
      queue_pair->send_queue().publish(1);
    }
    queue_pair->sends_posted(1, 0);
  }
  model::Completion next_completion() {
    model::Completion completion;
    while (cq.poll(1, &completion) == 0) {
    }
    return completion;
  }

  std::vector<std::byte> memory;
  model::Region region;
  model::MemoryTable table;
  CompletionQueue cq{64, nullptr, nullptr};
  std::shared_ptr<StreamQueuePair> queue_pair;
  std::promise<std::string> outcome;
  std::promise<void> closed;
};

class Requests : public ListenObserver {
 public:
  void on_request(std::shared_ptr<PassiveConnection> connection) override {
    std::lock_guard lock(mutex_);
    requests_.push_back(std::move(connection));
    changed_.notify_all();
  }
  void on_request_lost(PassiveConnection&) override {
    std::lock_guard lock(mutex_);
    ++lost_;
    changed_.notify_all();
  }
  std::shared_ptr<PassiveConnection> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !requests_.empty(); });
    auto request = requests_.front();
    requests_.erase(requests_.begin());
    return request;
  }
  void await_lost(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return lost_ >= count; });
  }
  std::size_t waiting() {
    std::lock_guard lock(mutex_);
    return requests_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<PassiveConnection>> requests_;
  int lost_ = 0;
};

class ConnectionTest : public testing::Test {
 protected:
  void SetUp() override { listen(std::chrono::seconds(10)); }
  void TearDown() override {
    if (listener) listener->close();
  }
  void listen(Duration setup_timeout) {
    if (listener) listener->close();
    auto socket = io::TcpSocket::bound(loopback(), {});
    ASSERT_TRUE(socket);
    listener = *Listener::start(std::move(*socket), 16, setup_timeout, requests);
    address = listener->local_address();
  }
  std::shared_ptr<ActiveConnection> connect(const std::shared_ptr<Side>& side,
                                            Duration timeout = std::chrono::seconds(10)) {
    auto result = ActiveConnection::start({}, address, kOffer, bytes_of("hello"), timeout,
                                          side->queue_pair, side, side);
    EXPECT_TRUE(result);
    return result ? *result : nullptr;
  }
  void establish() {
    const auto attempt = connect(client);
    const auto request = requests->next();
    EXPECT_EQ(text_of(request->request().private_data), "hello");
    ASSERT_TRUE(request->accept(kOffer, bytes_of("welcome"), server->queue_pair, server));
    EXPECT_EQ(client->outcome.get_future().get(), "connected welcome");
  }
  /// A TCP client that speaks as it likes.
  io::TcpSocket raw_client() {
    auto socket = *io::TcpSocket::bound(loopback(), {});
    EXPECT_TRUE(socket.connect(address));
    return socket;
  }
  static int end_of(io::TcpSocket& socket) {
    std::byte buffer[256];
    for (;;) {
      const auto got = socket.receive(buffer);
      if (!got) return got.error().code;
    }
  }

  std::shared_ptr<Requests> requests = std::make_shared<Requests>();
  std::shared_ptr<Listener> listener;
  io::Address address;
  std::shared_ptr<Side> client = std::make_shared<Side>(1u);
  std::shared_ptr<Side> server = std::make_shared<Side>(2u);
};

TEST_F(ConnectionTest, CarriesMessagesBothWays) {
  establish();
  EXPECT_EQ(client->queue_pair->state(), QpState::kRts);
  server->post_receive(10);
  client->memory[0] = std::byte{42};
  client->post_send(11, 100);
  EXPECT_EQ(server->next_completion().byte_len, 100u);
  EXPECT_EQ(server->memory[0], std::byte{42});
  EXPECT_EQ(client->next_completion().wr_id, 11u);
  client->post_receive(12);
  server->post_send(13, 4096);
  EXPECT_EQ(client->next_completion().wr_id, 12u);
}

TEST_F(ConnectionTest, HoldsMessagesBackUntilAReceiveIsPosted) {
  establish();
  client->post_send(1, 64);
  EXPECT_EQ(client->next_completion().status, model::WcStatus::kSuccess);
  model::Completion none;
  EXPECT_EQ(server->cq.poll(1, &none), 0);
  server->post_receive(2);
  EXPECT_EQ(server->next_completion().wr_id, 2u);
}

// The socket fills up, and what it does not take of a large message must not wait in the program's
// memory: deregistration would wait with it.
TEST_F(ConnectionTest, PinsNothingWhileThePeerTakesNothing) {
  constexpr std::uint32_t kLarge = 6u << 20;  // more than a socket's buffers and the lot together
  constexpr int kMessages = 16;
  client = std::make_shared<Side>(1u, kLarge);
  server = std::make_shared<Side>(2u, kLarge);
  establish();
  for (std::uint32_t i = 0; i < kLarge; ++i) client->memory[i] = static_cast<std::byte>(i >> 3);
  for (int i = 0; i < kMessages; ++i) client->post_send(1, kLarge);
  while (!model::MemoryTable::idle(client->region)) {  // the progress thread may be at it
  }
  int sent = 0;
  model::Completion completion;
  for (int i = 0; i < 1000; ++i) sent += client->cq.poll(1, &completion);
  EXPECT_LT(sent, kMessages);
  EXPECT_TRUE(model::MemoryTable::idle(client->region));
  for (int i = 0; i < kMessages; ++i) {
    server->post_receive(2);
    for (bool received = false; !received;) {
      sent += client->cq.poll(1, &completion);
      received = server->cq.poll(1, &completion) == 1;
    }
    EXPECT_EQ(completion.status, model::WcStatus::kSuccess);
    EXPECT_EQ(completion.byte_len, kLarge);
    EXPECT_EQ(client->memory, server->memory);
    std::ranges::fill(server->memory, std::byte{});
  }
}

// Both wait for their READ before they post receives.
TEST_F(ConnectionTest, ReadsPassMessagesThatWait) {
  establish();
  client->memory[0] = std::byte{1};
  server->memory[0] = std::byte{2};
  for (const auto& [one, other] : {std::pair{client, server}, std::pair{server, client}}) {
    one->post_send(1, 64);
    one->post_read(2, 10, *other);
  }
  for (const auto& side : {client, server}) {
    EXPECT_EQ(side->next_completion().wr_id, 1u);
    const model::Completion read = side->next_completion();
    EXPECT_EQ(read.wr_id, 2u);
    EXPECT_EQ(read.status, model::WcStatus::kSuccess);
    EXPECT_EQ(side->memory[4086], side == client ? std::byte{2} : std::byte{1});
  }
  for (const auto& side : {client, server}) {
    side->post_receive(3);
    EXPECT_EQ(side->next_completion().wr_id, 3u);
    EXPECT_EQ(side->memory[0], side == client ? std::byte{2} : std::byte{1});
  }
}

TEST_F(ConnectionTest, DisconnectEndsBothSidesAndFlushes) {
  establish();
  server->post_receive(5);
  client->queue_pair->disconnect();
  client->closed.get_future().wait();
  server->closed.get_future().wait();
  EXPECT_EQ(server->next_completion().status, model::WcStatus::kFlushError);
  EXPECT_EQ(client->queue_pair->state(), QpState::kError);
  EXPECT_EQ(server->queue_pair->state(), QpState::kError);
  server->post_receive(6);  // posted in ERR: flushed at once
  EXPECT_EQ(server->next_completion().status, model::WcStatus::kFlushError);
}

// A program that is done posts no receives and waits for the end, which would stay for minutes
// behind all that TCP holds for it.
TEST_F(ConnectionTest, TheEndReachesAPeerThatTakesNothing) {
  establish();
  constexpr std::uint64_t kMost = 16 * 1024;  // 64 MiB, more than sockets hold
  std::uint64_t posted = 0;
  for (int idle = 0; idle < 20'000 && posted < kMost;) {
    model::Completion completion;
    idle = client->cq.poll(1, &completion) == 0 ? idle + 1 : 0;
    bool room = false;
    {
      std::lock_guard lock(client->queue_pair->send_lock());
      room = client->queue_pair->send_room() != 0;
    }
    if (room) client->post_send(posted++, 4096);
  }
  client->queue_pair->disconnect();
  server->closed.get_future().wait();
  EXPECT_EQ(server->queue_pair->state(), QpState::kError);
}

// As by a program that moves its queue pair itself while its connection comes and goes.
TEST_F(ConnectionTest, AStepUndoesNothingThatTheConnectionDid) {
  EXPECT_TRUE(client->queue_pair->step(QpState::kInit, QpState::kRtr));
  EXPECT_EQ(client->queue_pair->state(), QpState::kRtr);
  establish();
  EXPECT_TRUE(client->queue_pair->step(QpState::kInit, QpState::kRtr));
  EXPECT_EQ(client->queue_pair->state(), QpState::kRts);
  client->queue_pair->disconnect();
  EXPECT_FALSE(client->queue_pair->step(QpState::kRtr, QpState::kRts));
  EXPECT_EQ(client->queue_pair->state(), QpState::kError);
}

TEST_F(ConnectionTest, WhatWasSentArrivesThoughTheSenderIsDestroyed) {
  establish();
  for (std::uint64_t i = 0; i < 8; ++i) client->post_send(i, 4096);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(client->next_completion().wr_id, i);
  client->queue_pair->destroy();
  for (std::uint64_t i = 0; i < 8; ++i) {
    server->post_receive(i);
    EXPECT_EQ(server->next_completion().status, model::WcStatus::kSuccess) << i;
  }
  server->closed.get_future().wait();
}

TEST_F(ConnectionTest, RejectCarriesPrivateData) {
  const auto attempt = connect(client);
  requests->next()->reject(bytes_of("no"));
  EXPECT_EQ(client->outcome.get_future().get(), "rejected no");
  EXPECT_EQ(client->queue_pair->state(), QpState::kInit);
}

TEST_F(ConnectionTest, RequestClosedWithoutAnswerFailsTheClient) {
  const auto attempt = connect(client);
  requests->next()->cancel();
  EXPECT_EQ(client->outcome.get_future().get(), "failed " + std::to_string(ECONNRESET));
}

TEST_F(ConnectionTest, ClosedPortIsRefused) {
  // Bound and never listening: no other process's listener can be there.
  const auto owner = *io::TcpSocket::bound(loopback(), {});
  address = owner.local_address();
  const auto attempt = connect(client);
  EXPECT_EQ(client->outcome.get_future().get(), "failed " + std::to_string(ECONNREFUSED));
}

TEST_F(ConnectionTest, ServerThatListensALittleLateIsReached) {
  auto socket = *io::TcpSocket::bound(loopback(), {});
  address = socket.local_address();
  const auto attempt = connect(client);  // the first attempt is refused: nobody listens yet
  const auto late = *Listener::start(std::move(socket), 16, std::chrono::seconds(10), requests);
  const auto request = requests->next();
  ASSERT_TRUE(request->accept({}, {}, server->queue_pair, server));
  EXPECT_EQ(client->outcome.get_future().get(), "connected ");
  late->close();
}

TEST_F(ConnectionTest, SilentServerTimesOut) {
  auto silent = *io::TcpSocket::bound(loopback(), {});
  ASSERT_TRUE(silent.listen(4));
  address = silent.local_address();
  const auto attempt = connect(client, std::chrono::milliseconds(20));
  EXPECT_EQ(client->outcome.get_future().get(), "failed " + std::to_string(ETIMEDOUT));
}

TEST_F(ConnectionTest, NonsenseIsDroppedAndOthersAreServed) {
  auto garbage = raw_client();
  while (!garbage.send(bytes_of("GET / HTTP/1.0\r\n\r\n and more than a header"))) {
  }
  EXPECT_NE(end_of(garbage), 0);
  auto half = raw_client();
  while (!half.send(bytes_of("MPA ID Req"))) {
  }
  auto nothing = raw_client();
  establish();
  EXPECT_EQ(requests->waiting(), 0u);
}

TEST_F(ConnectionTest, HalfARequestIsDroppedWhenItsTimeIsUp) {
  listen(std::chrono::milliseconds(10));
  auto half = raw_client();
  while (!half.send(bytes_of("MPA ID Req Fra"))) {
  }
  EXPECT_NE(end_of(half), 0);
  EXPECT_EQ(requests->waiting(), 0u);
}

TEST_F(ConnectionTest, ClientThatLeavesBeforeTheAnswerIsReported) {
  const auto attempt = connect(client);
  const auto request = requests->next();
  attempt->cancel();
  requests->await_lost(1);
  const auto status = request->accept({}, {}, server->queue_pair, server);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ECONNRESET);
}

TEST_F(ConnectionTest, ResetForgetsWorkAndEndsTheStream) {
  establish();
  client->post_receive(1);
  client->queue_pair->set_state(QpState::kReset);
  model::Completion none;
  EXPECT_EQ(client->cq.poll(1, &none), 0);
  server->closed.get_future().wait();
  EXPECT_EQ(server->queue_pair->state(), QpState::kError);
}

TEST_F(ConnectionTest, OverrunCompletionQueueFailsItsQueuePairs) {
  establish();
  model::Completion filler;
  while (server->cq.push(filler)) {
  }
  server->post_receive(1);
  client->post_send(2, 10);
  server->closed.get_future().wait();
  EXPECT_EQ(server->queue_pair->state(), QpState::kError);
}

// Posts that are held back for others go out although the program neither polls nor posts again.
TEST_F(ConnectionTest, HeldPostsNeedNoPoll) {
  establish();
  for (std::uint64_t round = 0; round < 6; ++round) {
    for (std::uint64_t i = 0; i < 8; ++i) server->post_receive(i);
    for (std::uint64_t i = 0; i < 8; ++i) client->post_send(i, 8);
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(server->next_completion().wr_id, i);
  }
}

TEST_F(ConnectionTest, HeldPostsGoOutBeforeTheStreamEnds) {
  establish();
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 8; ++i) server->post_receive(i);
    for (std::uint64_t i = 0; i < 8; ++i) client->post_send(i, 8);
    if (round == 1) client->queue_pair->disconnect();
    for (std::uint64_t i = 0; i < 8; ++i) {
      const model::Completion completion = server->next_completion();
      EXPECT_EQ(completion.wr_id, i);
      EXPECT_EQ(completion.status, model::WcStatus::kSuccess);
    }
    if (round == 0) {
      for (std::uint64_t i = 0; i < 8; ++i) (void)client->next_completion();
    }
  }
}

}  // namespace
}  // namespace airdma::runtime
