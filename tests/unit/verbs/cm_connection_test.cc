// SPDX-License-Identifier: MIT
// Connections between two ids: requests, answers, ends.
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/event_wait.h"
#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

TEST_F(CmTest, ConnectsAndDisconnects) {
  start_listening();
  int context = 0;
  listener_->context = &context;
  client_ = new_client(client_channel_);
  EXPECT_NE(client_->verbs, nullptr);
  EXPECT_EQ(client_->port_num, 1);
  EXPECT_EQ(client_->route.num_paths, 0);
  EXPECT_NE(get_src_port(client_), 0);
  EXPECT_EQ(ntohs(get_dst_port(client_)), port_);
  const std::string hello = "hello";
  rdma_conn_param wanted = param(hello);
  wanted.initiator_depth = 2;
  wanted.responder_resources = 3;
  ASSERT_TRUE(connect(client_, &wanted));

  const Seen request = server_.next();
  ASSERT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.listen_id, listener_);
  EXPECT_EQ(request.private_data, "hello");
  EXPECT_EQ(request.responder_resources, 2);
  EXPECT_EQ(request.initiator_depth, 3);
  passive_ = request.id;
  EXPECT_NE(passive_, listener_);
  EXPECT_EQ(passive_->context, &context);
  EXPECT_EQ(passive_->channel, server_.get());
  EXPECT_NE(passive_->verbs, nullptr);
  EXPECT_EQ(ntohs(get_src_port(passive_)), port_);
  EXPECT_EQ(get_dst_port(passive_), get_src_port(client_));

  ASSERT_TRUE(give_qp(passive_));
  EXPECT_EQ(passive_->qp->state, IBV_QPS_INIT);
  const std::string world = "world";
  rdma_conn_param answer = param(world);
  answer.initiator_depth = 3;
  answer.responder_resources = 2;
  ASSERT_TRUE(accept(passive_, &answer));
  const Seen at_client = client_channel_.next();
  EXPECT_EQ(at_client.type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(at_client.private_data, "world");
  EXPECT_EQ(at_client.responder_resources, 3);
  EXPECT_EQ(at_client.initiator_depth, 2);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(client_->qp->state, IBV_QPS_RTS);
  EXPECT_EQ(passive_->qp->state, IBV_QPS_RTS);

  ASSERT_TRUE(disconnect(client_));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(client_->qp->state, IBV_QPS_ERR);
  EXPECT_TRUE(disconnect(passive_));
  EXPECT_TRUE(disconnect(client_));
  EXPECT_FALSE(server_.readable());
  EXPECT_FALSE(client_channel_.readable());
}

TEST_F(CmTest, CarriesPrivateDataWhole) {
  start_listening();
  for (const std::size_t length : {0, 1, 56, 57, 196, 251, 252, 255}) {
    const std::string data(length, 'x');
    client_ = new_client(client_channel_);
    auto wanted = param(data);
    ASSERT_TRUE(connect(client_, &wanted));
    const Seen asked = server_.next();
    ASSERT_EQ(asked.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(asked.private_data, data);
    passive_ = asked.id;
    ASSERT_TRUE(give_qp(passive_));
    auto answer = param(data);
    ASSERT_TRUE(accept(passive_, &answer));
    EXPECT_EQ(client_channel_.next().private_data, data);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    drop(std::exchange(passive_, nullptr));
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    drop(std::exchange(client_, nullptr));
  }
}

TEST_F(CmTest, RejectionCarriesPrivateData) {
  start_listening();
  const std::string why(255, 'n');
  request();
  ASSERT_TRUE(reject(passive_, why.data(), 255));
  const Seen seen = client_channel_.next();
  EXPECT_EQ(seen.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(seen.status, -ECONNREFUSED);
  EXPECT_EQ(seen.private_data, why);
  EXPECT_EQ(client_->qp->state, IBV_QPS_ERR);
  EXPECT_EQ(code_of(accept(passive_, nullptr)), EINVAL);
  EXPECT_EQ(code_of(reject(passive_, nullptr, 0)), EINVAL);
}

TEST_F(CmTest, ClosedPortRejects) {
  // Bound and never listening: no other process's listener can be there.
  rdma_cm_id* owner = new_id(server_);
  auto local = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(owner, raw(local)));
  port_ = ntohs(get_src_port(owner));
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  const Seen seen = client_channel_.next();
  EXPECT_EQ(seen.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(seen.status, -ECONNREFUSED);
  drop(owner);
}

TEST_F(CmTest, ConnectNeedsAQueuePairAndSaneDepths) {
  start_listening();
  client_ = new_client(client_channel_);
  rdma_conn_param wanted = param("");
  wanted.initiator_depth = 200;
  EXPECT_EQ(code_of(connect(client_, &wanted)), EINVAL);
  destroy_qp(client_);
  EXPECT_EQ(code_of(connect(client_, nullptr)), EINVAL);
  EXPECT_FALSE(client_channel_.readable());
  ASSERT_TRUE(give_qp(client_));
  wanted.initiator_depth = wanted.responder_resources = 255;  // the device's maximum
  EXPECT_TRUE(connect(client_, &wanted));
  const Seen seen = server_.next();
  EXPECT_EQ(seen.responder_resources, 128);
  EXPECT_EQ(seen.initiator_depth, 128);
  passive_ = seen.id;
}

TEST_F(CmTest, RefusedCallsChangeNothing) {
  start_listening();
  request();
  EXPECT_EQ(code_of(accept(client_, nullptr)), EINVAL);
  EXPECT_EQ(code_of(connect(passive_, nullptr)), EINVAL);
  EXPECT_EQ(code_of(disconnect(client_)), EINVAL);
  EXPECT_EQ(code_of(reject(client_, nullptr, 0)), EINVAL);
  EXPECT_EQ(code_of(establish(client_)), EINVAL);
  rdma_conn_param excessive = param("");
  excessive.responder_resources = 200;
  EXPECT_EQ(code_of(accept(passive_, &excessive)), EINVAL);
  ASSERT_TRUE(accept(passive_, nullptr));
  EXPECT_EQ(code_of(accept(passive_, nullptr)), EINVAL);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(code_of(reject(passive_, nullptr, 0)), EINVAL);
  EXPECT_EQ(code_of(connect(client_, nullptr)), EINVAL);
}

TEST_F(CmTest, UnansweredRequestIsClosedWithItsId) {
  start_listening();
  request();
  drop(std::exchange(passive_, nullptr));
  const Seen seen = client_channel_.next();
  EXPECT_EQ(seen.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(seen.status, -ECONNRESET);
}

TEST_F(CmTest, UnfetchedRequestsAreClosedWithTheirListener) {
  start_listening();
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  ASSERT_TRUE(server_.readable(20'000));
  drop(std::exchange(listener_, nullptr));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);
  EXPECT_FALSE(server_.readable());
}

TEST_F(CmTest, ClientsThatLeaveMakeAcceptFail) {
  start_listening();
  request();
  drop(std::exchange(client_, nullptr));
  // The passive side hears of it on its own thread; until then accept succeeds, and the end of the
  // stream is told after the establishment.
  const int code = code_of(accept(passive_, nullptr));
  if (code != 0) {
    EXPECT_EQ(code, ECONNRESET);
    EXPECT_FALSE(server_.readable());
    return;
  }
  const int told = server_.next().type;
  EXPECT_TRUE(told == RDMA_CM_EVENT_ESTABLISHED || told == RDMA_CM_EVENT_CONNECT_ERROR);
  if (told == RDMA_CM_EVENT_ESTABLISHED) {
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  }
}

TEST_F(CmTest, UnfetchedRequestDisappearsWithItsClient) {
  start_listening();
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  ASSERT_TRUE(server_.readable(20'000));
  drop(std::exchange(client_, nullptr));
  // A second connection tells when the first one's end has been dealt with: in order.
  rdma_cm_id* second = new_client(client_channel_);
  const std::string name = "second";
  auto wanted = param(name);
  ASSERT_TRUE(connect(second, &wanted));
  Seen seen = server_.next();
  if (seen.private_data != name) {
    drop(seen.id);
    seen = server_.next();
  }
  EXPECT_EQ(seen.private_data, name);
  drop(seen.id);
  drop(second);
}

TEST_F(CmTest, DestroyingTheQueuePairEndsTheConnection) {
  establish_connection();
  destroy_qp(client_);
  EXPECT_EQ(client_->qp, nullptr);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmTest, QueuePairMayBeDestroyedWithoutTellingTheId) {
  establish_connection();
  ASSERT_TRUE(verbs::destroy_qp(std::exchange(client_->qp, nullptr)));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_TRUE(disconnect(client_));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(CmTest, DestroyingAnEstablishedIdDisconnects) {
  establish_connection();
  drop(std::exchange(client_, nullptr));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(passive_->qp->state, IBV_QPS_ERR);
}

TEST_F(CmTest, DestroyingAConnectingQueuePairDoesNotBlock) {
  start_listening();
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  destroy_qp(client_);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_CONNECT_ERROR);
}

TEST_F(CmTest, WildcardOfIpv6TakesIpv4) {
  start_listening("::");
  EXPECT_EQ(listener_->verbs, nullptr);
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  passive_ = server_.next().id;
  ASSERT_NE(passive_, nullptr);
  EXPECT_EQ(passive_->route.addr.src_addr.sa_family, AF_INET);
  EXPECT_EQ(passive_->route.addr.dst_addr.sa_family, AF_INET);
  EXPECT_EQ(passive_->verbs, client_->verbs);
  drop(std::exchange(client_, nullptr));
  client_ = new_client(client_channel_, "::1");
  ASSERT_TRUE(connect(client_, nullptr));
  const Seen seen = server_.next();
  EXPECT_EQ(seen.id->route.addr.src_addr.sa_family, AF_INET6);
  drop(seen.id);
}

TEST_F(CmTest, WildcardOfIpv6OnlyRefusesIpv4) {
  listener_ = new_id(server_);
  int only = 1;
  ASSERT_TRUE(set_option(listener_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only));
  auto any = address("::");
  ASSERT_TRUE(bind_addr(listener_, raw(any)));
  ASSERT_TRUE(listen(listener_, 0));
  port_ = ntohs(get_src_port(listener_));
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);
}

TEST_F(CmTest, ManyConnectionsAtOnce) {
  start_listening("127.0.0.1", 64);
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < 32; ++i) {
    ids.push_back(new_client(client_channel_));
    ASSERT_TRUE(connect(ids.back(), nullptr));
  }
  int established = 0;
  for (int events = 0; events < 64; ++events) {
    const Seen seen = server_.next();
    if (seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      ids.push_back(seen.id);
      ASSERT_TRUE(give_qp(seen.id));
      ASSERT_TRUE(accept(seen.id, nullptr));
    } else {
      ASSERT_EQ(seen.type, RDMA_CM_EVENT_ESTABLISHED);
      ++established;
    }
  }
  EXPECT_EQ(established, 32);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  }
  for (rdma_cm_id* id : ids) drop(id);
}

// rping -P hands a request to another thread through one variable, and marks the id by its context.
TEST_F(CmTest, NextRequestWaitsUntilTheProgramHasBegunWithTheLast) {
  start_listening("127.0.0.1", 64);
  constexpr int kClients = 16;
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < kClients; ++i) {
    ids.push_back(new_client(client_channel_));
    ASSERT_TRUE(connect(ids.back(), nullptr));
  }
  std::atomic<rdma_cm_id*> handed{nullptr};
  std::atomic<int> taken{0};
  int mark = 0;
  std::thread worker([&] {
    for (int i = 0; i < kClients; ++i) {
      while (handed.load() == nullptr) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a thread that wakes up late
      rdma_cm_id* id = handed.exchange(nullptr);
      ++taken;
      std::atomic_ref(id->context).store(&mark);
    }
  });
  for (int i = 0; i < kClients; ++i) {
    const Seen seen = server_.next();
    ASSERT_EQ(seen.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(taken.load(), i);  // the one before has been taken
    handed = seen.id;
    ids.push_back(seen.id);
  }
  worker.join();
  for (rdma_cm_id* id : ids) drop(id);
}

// A program that fetches all its requests before it begins with the first pays for the above once.
TEST_F(CmTest, CollectorOfRequestsIsHeldUpOnce) {
  start_listening("127.0.0.1", 64);
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(new_client(client_channel_));
    ASSERT_TRUE(connect(ids.back(), nullptr));
  }
  const auto collects = [&] {
    std::lock_guard lock(control().mutex);
    return find_id(listener_)->collects_requests;
  };
  ids.push_back(server_.next().id);
  EXPECT_FALSE(collects());
  ids.push_back(server_.next().id);
  EXPECT_TRUE(collects());
  ids.push_back(server_.next().id);
  for (rdma_cm_id* id : ids) drop(id);
}

// A channel that goes while a request is held back for the program: the thread in the call sleeps
// on.
TEST_F(CmTest, ChannelDestroyedDuringAHandoverLetsItsReaderSleep) {
  rdma_event_channel* channel = create_event_channel().value();
  ASSERT_TRUE(create_id(channel, &listener_, nullptr, RDMA_PS_TCP));
  auto local = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(listener_, raw(local)));
  ASSERT_TRUE(listen(listener_, 8));
  port_ = ntohs(get_src_port(listener_));
  client_ = new_client(client_channel_);
  rdma_cm_id* second_client = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  ASSERT_TRUE(connect(second_client, nullptr));
  const auto queued = [&] {
    std::lock_guard lock(control().mutex);
    return find_id(listener_)->unfetched_requests;
  };
  while (queued() < 2) std::this_thread::yield();
  std::atomic<bool> told{false};
  int outcome = 0;
  std::thread reader([&] {
    rdma_cm_event* event = nullptr;
    EXPECT_TRUE(get_cm_event(channel, &event));
    passive_ = event->id;
    EXPECT_TRUE(ack_cm_event(event));
    told = true;
    EventWait wait;
    EventWait::current = &wait;
    outcome = code_of(get_cm_event(channel, &event));
    EventWait::current = nullptr;
  });
  while (!told) std::this_thread::yield();
  destroy_event_channel(channel);
  reader.join();
  EXPECT_EQ(outcome, EINPROGRESS);
  drop(second_client);
}

}  // namespace
}  // namespace airdma::cm
