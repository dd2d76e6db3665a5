// SPDX-License-Identifier: MIT
// Synchronous ids, endpoints, and the addresses they are made from.
#include <netdb.h>

#include <thread>

#include "tests/unit/verbs/cm_fixture.h"

namespace airdma::cm {
namespace {

class CmSyncTest : public CmTest {
 protected:
  static rdma_addrinfo* lookup(const char* node, const char* service, int flags) {
    rdma_addrinfo hints{};
    hints.ai_flags = flags;
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* res = nullptr;
    EXPECT_EQ(getaddrinfo(node, service, &hints, &res), 0);
    return res;
  }
};

TEST_F(CmSyncTest, IdWithoutChannelWaitsForItsEvents) {
  start_listening();
  rdma_cm_id* id = nullptr;
  ASSERT_TRUE(create_id(nullptr, &id, nullptr, RDMA_PS_TCP));
  EXPECT_NE(id->channel, nullptr);
  auto peer = address("127.0.0.1", port_);
  ASSERT_TRUE(resolve_addr(id, nullptr, raw(peer), 1000));
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_TRUE(resolve_route(id, 1000));
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_TRUE(give_qp(id));
  drop(std::exchange(listener_, nullptr));
  EXPECT_EQ(code_of(connect(id, nullptr)), ECONNREFUSED);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_REJECTED);
  drop(id);
}

TEST_F(CmSyncTest, WhoOnlyLooksAroundOnLoopbackGetsNoDevice) {
  rdma_cm_id* id = nullptr;
  ASSERT_TRUE(create_id(nullptr, &id, nullptr, RDMA_PS_TCP));
  auto nameless = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(id, raw(nameless)));
  EXPECT_EQ(id->verbs, nullptr);
  const auto port = ntohs(get_src_port(id));
  EXPECT_NE(port, 0);
  drop(id);
  ASSERT_TRUE(create_id(nullptr, &id, nullptr, RDMA_PS_TCP));
  auto service = address("127.0.0.1", port);
  ASSERT_TRUE(bind_addr(id, raw(service)));
  EXPECT_NE(id->verbs, nullptr);
  drop(id);
}

TEST_F(CmSyncTest, EndpointsConnect) {
  rdma_addrinfo* passive = lookup("127.0.0.1", "0", RAI_PASSIVE);
  auto attr = small_qp();
  rdma_cm_id* listener = nullptr;
  ASSERT_TRUE(create_ep(&listener, passive, nullptr, &attr));
  freeaddrinfo(passive);
  ASSERT_TRUE(listen(listener, 0));
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ASSERT_TRUE(get_request(listener, &id));
    EXPECT_NE(id->qp, nullptr);
    EXPECT_NE(id->channel, listener->channel);
    ASSERT_NE(id->event, nullptr);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(id->event->param.conn.private_data_len, 5);
    ASSERT_TRUE(accept(id, nullptr));
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_TRUE(disconnect(id));
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
    destroy_ep(id);
  });
  rdma_addrinfo* active =
      lookup("127.0.0.1", std::to_string(ntohs(get_src_port(listener))).c_str(), 0);
  rdma_cm_id* client = nullptr;
  auto client_attr = small_qp();
  ASSERT_TRUE(create_ep(&client, active, nullptr, &client_attr));
  freeaddrinfo(active);
  EXPECT_NE(client->qp, nullptr);
  const std::string hello = "hello";
  auto wanted = param(hello);
  ASSERT_TRUE(connect(client, &wanted));
  EXPECT_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(disconnect(client));
  EXPECT_TRUE(disconnect(client));  // says so at once, with nothing left to wait for
  server.join();
  destroy_ep(client);
  destroy_ep(listener);
}

TEST_F(CmSyncTest, RequestsAreOnlyForSynchronousListeners) {
  start_listening();
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(code_of(get_request(listener_, &id)), EINVAL);
  ASSERT_TRUE(create_id(nullptr, &id, nullptr, RDMA_PS_TCP));
  rdma_cm_id* fresh = nullptr;
  EXPECT_EQ(code_of(get_request(id, &fresh)), EINVAL);
  EXPECT_EQ(code_of(get_request(id, nullptr)), EINVAL);
  EXPECT_TRUE(destroy_id(id));
}

TEST_F(CmSyncTest, MigrationChangesTheMode) {
  rdma_cm_id* id = nullptr;
  ASSERT_TRUE(create_id(nullptr, &id, nullptr, RDMA_PS_TCP));
  auto peer = address("127.0.0.1", 7);
  ASSERT_TRUE(resolve_addr(id, nullptr, raw(peer), 1000));
  ASSERT_TRUE(migrate_id(id, server_.get()));
  EXPECT_EQ(id->event, nullptr);
  ASSERT_TRUE(resolve_route(id, 1000));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_TRUE(migrate_id(id, nullptr));
  EXPECT_NE(id->channel, server_.get());
  EXPECT_TRUE(destroy_id(id));
}

TEST_F(CmSyncTest, EndpointsThatCannotBeAreRefused) {
  rdma_cm_id* id = nullptr;
  rdma_addrinfo none{};
  EXPECT_EQ(code_of(create_ep(&id, nullptr, nullptr, nullptr)), EINVAL);
  EXPECT_EQ(code_of(create_ep(&id, &none, nullptr, nullptr)), EINVAL);
  none.ai_port_space = RDMA_PS_TCP;
  EXPECT_EQ(code_of(create_ep(&id, &none, nullptr, nullptr)), EINVAL);
}

struct Lookup {
  const char* node;
  const char* service;
  int flags;
  int qp_type;
  int port_space;
  bool found;
  int result_qp_type;
  int result_port_space;
  bool source;
};

TEST_F(CmSyncTest, AddressInfo) {
  const Lookup cases[] = {
      {"127.0.0.1", "7471", 0, 0, 0, true, IBV_QPT_RC, RDMA_PS_TCP, false},
      {"127.0.0.1", "7471", 0, 0, RDMA_PS_UDP, true, IBV_QPT_UD, RDMA_PS_UDP, false},
      {"127.0.0.1", "7471", 0, IBV_QPT_UD, 0, true, IBV_QPT_UD, RDMA_PS_UDP, false},
      {"127.0.0.1", "7471", 0, IBV_QPT_RC, RDMA_PS_UDP, false, 0, 0, false},
      {"127.0.0.1", "7471", RAI_PASSIVE, 0, 0, true, IBV_QPT_RC, RDMA_PS_TCP, true},
      {nullptr, "7471", RAI_PASSIVE, 0, RDMA_PS_TCP, true, IBV_QPT_RC, RDMA_PS_TCP, true},
      {nullptr, "7471", 0, 0, RDMA_PS_TCP, true, IBV_QPT_RC, RDMA_PS_TCP, false},
      {"localhost", "7471", RAI_NUMERICHOST, 0, 0, false, 0, 0, false},
      {"127.0.0.1", "nosuchservice", 0, 0, RDMA_PS_TCP, false, 0, 0, false},
      {"127.0.0.1", "7471", RAI_NOROUTE, 0, 0, true, IBV_QPT_RC, RDMA_PS_TCP, false},
      {"127.0.0.1", "7471", 1 << 20, 0, 0, true, IBV_QPT_RC, RDMA_PS_TCP, false},
      {"127.0.0.1", "7471", 0, 0, 0x9999, true, IBV_QPT_RC, 0x9999, false},
  };
  for (const Lookup& one : cases) {
    rdma_addrinfo hints{};
    hints.ai_flags = one.flags;
    hints.ai_qp_type = one.qp_type;
    hints.ai_port_space = one.port_space;
    rdma_addrinfo* res = nullptr;
    EXPECT_EQ(getaddrinfo(one.node, one.service, &hints, &res) == 0, one.found);
    if (res == nullptr) continue;
    EXPECT_EQ(res->ai_flags, one.flags);
    EXPECT_EQ(res->ai_qp_type, one.result_qp_type);
    EXPECT_EQ(res->ai_port_space, one.result_port_space);
    EXPECT_EQ(res->ai_src_addr != nullptr, one.source);
    EXPECT_EQ(res->ai_dst_addr != nullptr, !one.source);
    freeaddrinfo(res);
  }
}

TEST_F(CmSyncTest, AddressInfoWithoutANameComesFromTheHints) {
  auto peer = address("10.1.2.3", 7471);
  auto local = address("10.1.2.4");
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_dst_addr = raw(peer);
  hints.ai_dst_len = sizeof(sockaddr_in);
  hints.ai_src_addr = raw(local);
  hints.ai_src_len = sizeof(sockaddr_in);
  rdma_addrinfo* res = nullptr;
  ASSERT_EQ(getaddrinfo(nullptr, nullptr, &hints, &res), 0);
  EXPECT_EQ(res->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(std::memcmp(res->ai_dst_addr, raw(peer), sizeof(sockaddr_in)), 0);
  EXPECT_EQ(std::memcmp(res->ai_src_addr, raw(local), sizeof(sockaddr_in)), 0);
  freeaddrinfo(res);
  EXPECT_EQ(getaddrinfo(nullptr, nullptr, nullptr, &res), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(getaddrinfo("127.0.0.1", nullptr, nullptr, nullptr), -1);
  freeaddrinfo(nullptr);
}

}  // namespace
}  // namespace airdma::cm
