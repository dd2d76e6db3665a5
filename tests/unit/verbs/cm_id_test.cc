// SPDX-License-Identifier: MIT
// Ids, channels, addresses and options: what needs no connection.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bit>

#include <atomic>
#include <bit>
#include <chrono>
#include <thread>

#include "base/event_wait.h"
#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

rdma_cm_id* not_an_id() {
  static rdma_cm_id foreign{};
  return &foreign;
}

TEST_F(CmTest, PortSpaces) {
  const struct {
    int port_space;
    int error;
    int qp_type;
  } cases[] = {
      {RDMA_PS_TCP, 0, IBV_QPT_RC},
      {RDMA_PS_IB, 0, IBV_QPT_RC},
      {RDMA_PS_UDP, 0, IBV_QPT_UD},
      {RDMA_PS_IPOIB, 0, IBV_QPT_UD},
      {0, EINVAL, 0},
      {0x9999, EINVAL, 0},
  };
  for (const auto& one : cases) {
    rdma_cm_id* id = nullptr;
    // Never a variable of the enumeration's type: two of the values are none of its.
    EXPECT_EQ(code_of(create_id(server_.get(), &id, this,
                                std::bit_cast<rdma_port_space>(one.port_space))),
              one.error);
    if (one.error != 0) continue;
    EXPECT_EQ(id->context, this);
    EXPECT_EQ(id->channel, server_.get());
    EXPECT_EQ(id->qp_type, one.qp_type);
    EXPECT_EQ(static_cast<int>(id->ps), one.port_space);
    EXPECT_EQ(id->verbs, nullptr);
    EXPECT_TRUE(destroy_id(id));
  }
}

TEST_F(CmTest, HandlesThatAreNoneAreInvalid) {
  rdma_cm_id* destroyed = new_id(server_);
  ASSERT_TRUE(destroy_id(destroyed));
  auto local = address("127.0.0.1");
  auto attr = small_qp();
  ibv_qp_attr qp_attr{};
  int mask = 0;
  rdma_cm_id* fresh = nullptr;
  for (rdma_cm_id* id : {static_cast<rdma_cm_id*>(nullptr), destroyed, not_an_id()}) {
    EXPECT_EQ(code_of(destroy_id(id)), EINVAL);
    EXPECT_EQ(code_of(bind_addr(id, raw(local))), EINVAL);
    EXPECT_EQ(code_of(resolve_addr(id, nullptr, raw(local), 1)), EINVAL);
    EXPECT_EQ(code_of(resolve_route(id, 1)), EINVAL);
    EXPECT_EQ(code_of(listen(id, 1)), EINVAL);
    EXPECT_EQ(code_of(connect(id, nullptr)), EINVAL);
    EXPECT_EQ(code_of(accept(id, nullptr)), EINVAL);
    EXPECT_EQ(code_of(reject(id, nullptr, 0)), EINVAL);
    EXPECT_EQ(code_of(disconnect(id)), EINVAL);
    EXPECT_EQ(code_of(establish(id)), EINVAL);
    EXPECT_EQ(code_of(notify(id, IBV_EVENT_COMM_EST)), EINVAL);
    EXPECT_EQ(code_of(create_qp(id, nullptr, &attr)), EINVAL);
    EXPECT_EQ(code_of(init_qp_attr(id, &qp_attr, &mask)), EINVAL);
    EXPECT_EQ(code_of(migrate_id(id, server_.get())), EINVAL);
    EXPECT_EQ(code_of(get_request(id, &fresh)), EINVAL);
    EXPECT_EQ(code_of(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &mask, 1)), EINVAL);
    EXPECT_EQ(code_of(join_multicast(id, raw(local), nullptr)), EINVAL);
    EXPECT_EQ(get_src_port(id), 0);
    EXPECT_EQ(get_dst_port(id), 0);
    destroy_qp(id);
    destroy_srq(id);
    destroy_ep(id);
  }
  rdma_cm_event foreign_event{};
  EXPECT_EQ(code_of(ack_cm_event(nullptr)), EINVAL);
  EXPECT_EQ(code_of(ack_cm_event(&foreign_event)), EINVAL);
  rdma_event_channel foreign_channel{};
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(code_of(get_cm_event(&foreign_channel, &event)), EINVAL);
  EXPECT_EQ(code_of(get_cm_event(nullptr, &event)), EINVAL);
  EXPECT_EQ(code_of(get_cm_event(server_.get(), nullptr)), EINVAL);
  EXPECT_EQ(code_of(create_id(&foreign_channel, &fresh, nullptr, RDMA_PS_TCP)), EINVAL);
  EXPECT_EQ(code_of(create_id(server_.get(), nullptr, nullptr, RDMA_PS_TCP)), EINVAL);
  destroy_event_channel(&foreign_channel);
  destroy_event_channel(nullptr);
}

TEST_F(CmTest, CallsOnAnIdWithoutADeviceAreInvalid) {
  client_ = new_id(client_channel_);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  int mask = 0;
  auto group = address("239.1.2.3");
  EXPECT_EQ(code_of(resolve_route(client_, 1)), EINVAL);
  EXPECT_EQ(code_of(connect(client_, nullptr)), EINVAL);
  EXPECT_EQ(code_of(accept(client_, nullptr)), EINVAL);
  EXPECT_EQ(code_of(reject(client_, nullptr, 0)), EINVAL);
  EXPECT_EQ(code_of(disconnect(client_)), EINVAL);
  EXPECT_EQ(code_of(establish(client_)), EINVAL);
  EXPECT_EQ(code_of(give_qp(client_)), EINVAL);
  EXPECT_EQ(code_of(init_qp_attr(client_, &attr, &mask)), EINVAL);
  EXPECT_EQ(code_of(notify(client_, IBV_EVENT_COMM_EST)), EINVAL);
  EXPECT_EQ(code_of(join_multicast(client_, raw(group), nullptr)), EINVAL);
}

TEST_F(CmTest, WrongStates) {
  auto local = address("127.0.0.1", 7);
  client_ = new_id(client_channel_);
  ASSERT_TRUE(resolve_addr(client_, nullptr, raw(local), 1000));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(code_of(resolve_addr(client_, nullptr, raw(local), 1000)), EINVAL);
  EXPECT_EQ(code_of(listen(client_, 1)), EINVAL);
  EXPECT_EQ(code_of(bind_addr(client_, raw(local))), EINVAL);
  ASSERT_TRUE(resolve_route(client_, 1000));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(code_of(resolve_route(client_, 1000)), EINVAL);
  EXPECT_EQ(code_of(disconnect(client_)), EINVAL);
  EXPECT_FALSE(client_channel_.readable());
  start_listening();
  EXPECT_EQ(code_of(listen(listener_, 1)), EINVAL);
  EXPECT_EQ(code_of(resolve_addr(listener_, nullptr, raw(local), 1000)), EINVAL);
  EXPECT_EQ(code_of(disconnect(listener_)), EINVAL);
  EXPECT_EQ(code_of(bind_addr(listener_, raw(local))), EINVAL);
  EXPECT_EQ(code_of(establish(listener_)), EINVAL);
}

TEST_F(CmTest, Binding) {
  auto local = address("127.0.0.1");
  listener_ = new_id(server_);
  ASSERT_TRUE(bind_addr(listener_, raw(local)));
  EXPECT_NE(get_src_port(listener_), 0);
  EXPECT_NE(listener_->verbs, nullptr);
  EXPECT_NE(listener_->pd, nullptr);
  EXPECT_EQ(listener_->port_num, 1);
  EXPECT_EQ(code_of(bind_addr(listener_, raw(local))), EINVAL);

  client_ = new_id(client_channel_);
  auto taken = address("127.0.0.1", ntohs(get_src_port(listener_)));
  EXPECT_EQ(code_of(bind_addr(client_, raw(taken))), EADDRINUSE);
  auto foreign = address("203.0.113.9");
  EXPECT_EQ(code_of(bind_addr(client_, raw(foreign))), EADDRNOTAVAIL);
  auto wildcard = address("0.0.0.0", ntohs(get_src_port(listener_)));
  EXPECT_EQ(code_of(bind_addr(client_, raw(wildcard))), EADDRNOTAVAIL);
  sockaddr_storage nothing{};
  EXPECT_EQ(code_of(bind_addr(client_, raw(nothing))), EINVAL);
  EXPECT_EQ(code_of(bind_addr(client_, nullptr)), EINVAL);
  auto any = address("0.0.0.0");
  ASSERT_TRUE(bind_addr(client_, raw(any)));
  EXPECT_EQ(client_->verbs, nullptr);
  EXPECT_NE(get_src_port(client_), 0);
}

// As with the kernel's RDMA CM: a listener is alone.
TEST_F(CmTest, ReusedAddressIsBoundTwiceAndListensAlone) {
  int on = 1;
  listener_ = new_id(server_);
  client_ = new_id(client_channel_);
  for (rdma_cm_id* id : {listener_, client_}) {
    ASSERT_TRUE(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
  }
  auto local = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(listener_, raw(local)));
  auto same = address("127.0.0.1", ntohs(get_src_port(listener_)));
  ASSERT_TRUE(bind_addr(client_, raw(same)));
  EXPECT_EQ(code_of(listen(listener_, 1)), EADDRINUSE);
  EXPECT_EQ(code_of(listen(client_, 1)), EADDRINUSE);
  drop(std::exchange(client_, nullptr));
  EXPECT_TRUE(listen(listener_, 1));
}

TEST_F(CmTest, ListeningUnboundChoosesAPort) {
  listener_ = new_id(server_);
  ASSERT_TRUE(listen(listener_, -1));
  EXPECT_NE(get_src_port(listener_), 0);
  EXPECT_EQ(listener_->verbs, nullptr);
}

TEST_F(CmTest, ResolvingRefusesWhatIsNoAddress) {
  client_ = new_id(client_channel_);
  sockaddr_storage nothing{};
  auto v4 = address("127.0.0.1", 7);
  auto v6 = address("::1", 7);
  EXPECT_EQ(code_of(resolve_addr(client_, nullptr, nullptr, 1)), EINVAL);
  EXPECT_EQ(code_of(resolve_addr(client_, nullptr, raw(nothing), 1)), EINVAL);
  EXPECT_EQ(code_of(resolve_addr(client_, raw(v6), raw(v4), 1)), EINVAL);
  EXPECT_EQ(code_of(resolve_addr(client_, raw(nothing), raw(v4), 1)), EINVAL);
  auto link_local = address("fe80::1", 7);  // without a scope
  EXPECT_NE(code_of(resolve_addr(client_, nullptr, raw(link_local), 1)), 0);
  EXPECT_FALSE(client_channel_.readable());
  EXPECT_TRUE(resolve_addr(client_, nullptr, raw(v6), 0));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(client_->route.addr.src_addr.sa_family, AF_INET6);
}

TEST_F(CmTest, ResolvingKeepsTheBoundPort) {
  client_ = new_id(client_channel_);
  auto any = address("0.0.0.0");
  ASSERT_TRUE(bind_addr(client_, raw(any)));
  const auto port = get_src_port(client_);
  auto peer = address("127.0.0.1", 7);
  ASSERT_TRUE(resolve_addr(client_, nullptr, raw(peer), 1));
  EXPECT_EQ(get_src_port(client_), port);
  EXPECT_EQ(client_->route.addr.src_sin.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_NE(client_->verbs, nullptr);
}

TEST_F(CmTest, DestroyWaitsForAcknowledgements) {
  auto peer = address("127.0.0.1", 7);
  client_ = new_id(client_channel_);
  ASSERT_TRUE(resolve_addr(client_, nullptr, raw(peer), 1));
  rdma_cm_event* event = client_channel_.fetch();
  std::atomic<bool> acknowledged = false;
  std::thread destroyer([&] {
    EXPECT_TRUE(destroy_id(client_));
    EXPECT_TRUE(acknowledged);
  });
  acknowledged = true;
  EXPECT_TRUE(ack_cm_event(event));
  destroyer.join();
  EXPECT_EQ(code_of(ack_cm_event(event)), EINVAL);
  client_ = nullptr;
}

TEST_F(CmTest, ListenerWaitsForItsRequestsAndTheNewIdDoesNot) {
  start_listening();
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  rdma_cm_event* event = server_.fetch();
  ASSERT_NE(event, nullptr);
  EXPECT_TRUE(destroy_id(event->id));
  std::atomic<bool> acknowledged = false;
  std::thread destroyer([&] {
    EXPECT_TRUE(destroy_id(listener_));
    EXPECT_TRUE(acknowledged);
  });
  acknowledged = true;
  EXPECT_TRUE(ack_cm_event(event));
  destroyer.join();
  listener_ = nullptr;
}

TEST_F(CmTest, DestroyDropsUnfetchedEvents) {
  auto peer = address("127.0.0.1", 7);
  client_ = new_id(client_channel_);
  ASSERT_TRUE(resolve_addr(client_, nullptr, raw(peer), 1));
  EXPECT_TRUE(client_channel_.readable());
  drop(std::exchange(client_, nullptr));
  EXPECT_FALSE(client_channel_.readable());
}

TEST_F(CmTest, MigrationTakesPendingEventsAlong) {
  auto peer = address("127.0.0.1", 7);
  client_ = new_id(client_channel_);
  ASSERT_TRUE(resolve_addr(client_, nullptr, raw(peer), 1));
  ASSERT_TRUE(migrate_id(client_, server_.get()));
  EXPECT_EQ(client_->channel, server_.get());
  EXPECT_FALSE(client_channel_.readable());
  EXPECT_EQ(server_.next().id, client_);
}

TEST_F(CmTest, MigrationOfAListenerTakesItsRequestsAlong) {
  start_listening();
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  ASSERT_TRUE(server_.readable(20'000));
  EventChannel other;
  ASSERT_TRUE(migrate_id(listener_, other.get()));
  EXPECT_FALSE(server_.readable());
  passive_ = other.next().id;
  EXPECT_EQ(passive_->channel, other.get());
  drop(std::exchange(passive_, nullptr));
  drop(std::exchange(listener_, nullptr));
}

TEST_F(CmTest, NonBlockingChannelSaysAgain) {
  ::fcntl(server_.get()->fd, F_SETFL, O_NONBLOCK);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(code_of(get_cm_event(server_.get(), &event)), EAGAIN);
}

TEST_F(CmTest, ChannelMayGoBeforeItsIds) {
  rdma_cm_id* id = nullptr;
  {
    EventChannel channel;
    id = new_id(channel);
    auto peer = address("127.0.0.1", 7);
    ASSERT_TRUE(resolve_addr(id, nullptr, raw(peer), 1));
  }
  EXPECT_TRUE(resolve_route(id, 1));
  EXPECT_TRUE(destroy_id(id));
}

TEST_F(CmTest, Options) {
  client_ = new_id(client_channel_);
  int one = 1;
  std::uint8_t byte = 18;
  const auto set = [&](int level, int name, void* value, std::size_t length) {
    return code_of(set_option(client_, level, name, value, length));
  };
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, 4), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, 4), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, 4), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &one, 4), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, 99, &one, 4), ENOSYS);
  EXPECT_EQ(set(9, 0, &one, 4), ENOSYS);
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &one, 4), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, nullptr, 1), EINVAL);
}

int option_of(rdma_cm_id* id, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  std::lock_guard lock(control().mutex);
  const int fd = control().ids.find(id)->socket.fd();
  EXPECT_EQ(::getsockopt(fd, level, name, &value, &length), 0);
  return value;
}

TEST_F(CmTest, TypeOfServiceReachesTheSocketEarlyAndLate) {
  std::uint8_t tos = 0x28;
  for (const bool late : {false, true}) {
    rdma_cm_id* id = new_id(client_channel_);
    auto local = address("127.0.0.1");
    if (late) {
      ASSERT_TRUE(bind_addr(id, raw(local)));
    }
    ASSERT_TRUE(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
    if (!late) {
      ASSERT_TRUE(bind_addr(id, raw(local)));
    }
    EXPECT_EQ(option_of(id, IPPROTO_IP, IP_TOS), tos);
    EXPECT_TRUE(destroy_id(id));
  }
}

TEST_F(CmTest, OptionsOfABoundId) {
  listener_ = new_id(server_);
  auto any = address("::");
  ASSERT_TRUE(bind_addr(listener_, raw(any)));
  const auto port = get_src_port(listener_);
  int one = 1;
  int zero = 0;
  EXPECT_TRUE(set_option(listener_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one));
  EXPECT_EQ(option_of(listener_, IPPROTO_IPV6, IPV6_V6ONLY), 1);
  EXPECT_TRUE(set_option(listener_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &zero, sizeof zero));
  EXPECT_EQ(option_of(listener_, IPPROTO_IPV6, IPV6_V6ONLY), 0);
  EXPECT_EQ(get_src_port(listener_), port);
  EXPECT_TRUE(set_option(listener_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one));
  EXPECT_EQ(option_of(listener_, SOL_SOCKET, SO_REUSEADDR), 1);
  EXPECT_EQ(
      code_of(set_option(listener_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &zero, sizeof zero)),
      EINVAL);
  ASSERT_TRUE(listen(listener_, 1));
  for (const int name : {RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY}) {
    EXPECT_EQ(code_of(set_option(listener_, RDMA_OPTION_ID, name, &one, sizeof one)), EINVAL);
  }
}

TEST_F(CmTest, AcknowledgeTimeoutIsForConnections) {
  rdma_cm_id* datagrams = nullptr;
  ASSERT_TRUE(create_id(server_.get(), &datagrams, nullptr, RDMA_PS_UDP));
  std::uint8_t timeout = 14;
  EXPECT_EQ(code_of(set_option(datagrams, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1)),
            EINVAL);
  EXPECT_TRUE(destroy_id(datagrams));
}

TEST_F(CmTest, QueuePairsOfAnId) {
  start_listening();
  client_ = new_client(client_channel_);
  EXPECT_NE(client_->qp, nullptr);
  std::uint8_t timeout = 21;
  EXPECT_TRUE(set_option(client_, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
  ibv_qp_attr shown{};
  EXPECT_TRUE(verbs::query_qp(client_->qp, &shown, IBV_QP_TIMEOUT, nullptr));
  EXPECT_EQ(shown.timeout, 21);
  EXPECT_NE(client_->send_cq, nullptr);
  EXPECT_NE(client_->recv_cq_channel, nullptr);
  EXPECT_EQ(client_->send_cq->cq_context, client_);
  EXPECT_EQ(client_->send_cq->channel, client_->send_cq_channel);
  EXPECT_EQ(code_of(give_qp(client_)), EINVAL);
  destroy_qp(client_);
  EXPECT_EQ(client_->qp, nullptr);
  EXPECT_EQ(client_->send_cq, nullptr);
  EXPECT_EQ(client_->recv_cq_channel, nullptr);
  auto attr = small_qp();
  attr.qp_type = IBV_QPT_UD;
  EXPECT_EQ(code_of(create_qp(client_, nullptr, &attr)), EINVAL);
  attr = small_qp();
  attr.cap.max_send_wr = 1u << 30;
  EXPECT_EQ(code_of(create_qp(client_, nullptr, &attr)), EINVAL);
  EXPECT_EQ(client_->qp, nullptr);
  EXPECT_EQ(client_->send_cq, nullptr);
  EXPECT_EQ(code_of(create_qp(client_, nullptr, nullptr)), EINVAL);
  ibv_qp_init_attr_ex extended{};
  extended.cap = small_qp().cap;
  extended.qp_type = IBV_QPT_RC;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = client_->pd;
  EXPECT_TRUE(create_qp_ex(client_, &extended));
  destroy_qp(client_);
  ibv_qp_init_attr_ex without_pd{};
  without_pd.cap = small_qp().cap;
  without_pd.qp_type = IBV_QPT_RC;
  ASSERT_TRUE(create_qp_ex(client_, &without_pd));
  EXPECT_EQ(without_pd.pd, client_->pd);
  EXPECT_EQ(without_pd.send_cq, client_->send_cq);
  EXPECT_EQ(client_->qp->pd, client_->pd);
  EXPECT_EQ(code_of(create_qp_ex(client_, &without_pd)), EINVAL);
}

TEST_F(CmTest, DatagramServicesAreAbsent) {
  rdma_cm_id* id = nullptr;
  ASSERT_TRUE(create_id(client_channel_.get(), &id, nullptr, RDMA_PS_UDP));
  auto peer = address("127.0.0.1", 7);
  auto group = address("239.1.2.3");
  ASSERT_TRUE(resolve_addr(id, nullptr, raw(peer), 1));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_TRUE(resolve_route(id, 1));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
  auto attr = small_qp();
  EXPECT_EQ(code_of(create_qp(id, nullptr, &attr)), EINVAL);
  attr.qp_type = IBV_QPT_UD;
  EXPECT_EQ(code_of(create_qp(id, nullptr, &attr)), EOPNOTSUPP);
  EXPECT_EQ(code_of(connect(id, nullptr)), EINVAL);
  EXPECT_EQ(code_of(join_multicast(id, raw(group), nullptr)), ENOSYS);
  rdma_cm_join_mc_attr_ex join{};
  join.comp_mask = 3;
  join.join_flags = 9;
  join.addr = raw(group);
  EXPECT_EQ(code_of(join_multicast_ex(id, &join, nullptr)), EINVAL);
  join.join_flags = 1;
  EXPECT_EQ(code_of(join_multicast_ex(id, &join, nullptr)), ENOSYS);
  EXPECT_EQ(code_of(leave_multicast(id, raw(group))), EADDRNOTAVAIL);
  EXPECT_TRUE(destroy_id(id));
}

TEST_F(CmTest, DevicesAreOpenOnce) {
  int count = 0;
  auto first = get_devices(&count);
  ASSERT_TRUE(first);
  auto second = get_devices(nullptr);
  ASSERT_TRUE(second);
  ASSERT_GT(count, 0);
  EXPECT_EQ((*first)[count], nullptr);
  EXPECT_EQ((*first)[0], (*second)[0]);
  free_devices(*first);
  free_devices(*second);
  free_devices(nullptr);
}

TEST_F(CmTest, AllDevicesAreTheConnectionManagers) {
  int count = 0;
  int all = 0;
  auto list = get_devices(&count);
  ASSERT_TRUE(list);
  auto devices = verbs::get_device_list(&all);
  ASSERT_TRUE(devices);
  ASSERT_EQ(count, all);
  for (int i = 0; i < all; ++i) EXPECT_EQ((*list)[i]->device, (*devices)[i]);
  verbs::free_device_list(*devices);
  free_devices(*list);
}

TEST_F(CmTest, ChildOwnsNothing) {
  start_listening();
  request();
  const pid_t child = ::fork();
  if (child == 0) {
    rdma_cm_event* event = nullptr;
    const bool fails = code_of(accept(passive_, nullptr)) == EINVAL &&
                       code_of(disconnect(client_)) == EINVAL &&
                       code_of(destroy_id(listener_)) == EINVAL &&
                       code_of(get_cm_event(server_.get(), &event)) == EINVAL;
    ::_exit(fails ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(accept(passive_, nullptr));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
}

// rping's main thread destroys the channel as soon as its event thread has told it of an event.
TEST_F(CmTest, DestroyedChannelLetsItsReaderFallAsleepFirst) {
  rdma_event_channel* channel = create_event_channel().value();
  rdma_cm_id* id = nullptr;
  ASSERT_TRUE(create_id(channel, &id, nullptr, RDMA_PS_TCP));
  auto target = address("127.0.0.1", 1);
  ASSERT_TRUE(resolve_addr(id, nullptr, raw(target), 1000));
  std::atomic<bool> told{false};
  int second = 0;
  std::thread reader([&] {
    rdma_cm_event* event = nullptr;
    EXPECT_TRUE(get_cm_event(channel, &event));
    EXPECT_TRUE(ack_cm_event(event));
    EXPECT_TRUE(destroy_id(id));
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a thread that is slow to return
    EventWait wait;  // as the C function's call, which sleeps by itself afterwards
    EventWait::current = &wait;
    second = code_of(get_cm_event(channel, &event));
    EventWait::current = nullptr;
  });
  while (!told) std::this_thread::yield();
  destroy_event_channel(channel);
  reader.join();
  EXPECT_EQ(second, EINPROGRESS);  // about to sleep; EINVAL says that it came too late
}

}  // namespace
}  // namespace airdma::cm
