// SPDX-License-Identifier: MIT
// The connection manager over RoCE devices: both ends in one program.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/unit/verbs/cm_ib_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

constexpr std::size_t kRequestBytes = 56;  // of private data, as InfiniBand has room
constexpr std::size_t kReplyBytes = 196;
constexpr std::size_t kRefusalBytes = 148;

/// What a program gave, and zeroes.
std::string padded(std::string text, std::size_t bytes) {
  text.resize(bytes);
  return text;
}

class CmIbTest : public CmIbFixture {
 protected:
  /// By the attributes that the requests and answers of the test below name.
  void expect_connected_pair() {
    const ibv_qp_attr one = attributes(client_->qp);
    const ibv_qp_attr other = attributes(passive_->qp);
    EXPECT_EQ(one.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(other.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(one.dest_qp_num, passive_->qp->qp_num);
    EXPECT_EQ(other.dest_qp_num, client_->qp->qp_num);
    EXPECT_EQ(one.sq_psn, other.rq_psn);
    EXPECT_EQ(other.sq_psn, one.rq_psn);
    EXPECT_EQ(one.path_mtu, other.path_mtu);
    EXPECT_EQ(one.max_rd_atomic, 2);
    EXPECT_EQ(one.max_dest_rd_atomic, 3);
    EXPECT_EQ(other.max_rd_atomic, 3);
    EXPECT_EQ(other.max_dest_rd_atomic, 2);
    EXPECT_EQ(one.retry_cnt, 5);
    EXPECT_EQ(one.rnr_retry, 4);
    EXPECT_EQ(other.rnr_retry, 6);
  }
  /// Programs without the manager's help take what they need from the path record.
  static void expect_path(const rdma_cm_id* from, const rdma_cm_id* to) {
    ASSERT_EQ(from->route.num_paths, 1);
    const ibv_sa_path_rec& path = *from->route.path_rec;
    const rdma_ib_addr& gids = from->route.addr.addr.ibaddr;
    EXPECT_EQ(std::memcmp(&path.sgid, &gids.sgid, sizeof path.sgid), 0);
    EXPECT_EQ(std::memcmp(&path.dgid, &to->route.addr.addr.ibaddr.sgid, sizeof path.dgid), 0);
    EXPECT_EQ(path.pkey, 0xffff);
    EXPECT_EQ(path.mtu, IBV_MTU_4096);
    EXPECT_EQ(path.hop_limit, 64);
  }
  static rdma_cm_id* new_datagram_id(const EventChannel& channel) {
    rdma_cm_id* id = nullptr;
    EXPECT_TRUE(create_id(channel.get(), &id, nullptr, RDMA_PS_UDP));
    return id;
  }
  static Status give_datagram_qp(rdma_cm_id* id) {
    auto attr = small_qp();
    attr.qp_type = IBV_QPT_UD;
    return create_qp(id, nullptr, &attr);
  }
  /// Serves one connection and then sleeps for ever.
  [[noreturn]] static void serve_until_killed(int tell) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    EventChannel channel;
    rdma_cm_id* listener = new_id(channel);
    auto local = address("127.0.0.1");
    if (!bind_addr(listener, raw(local)) || !listen(listener, 1)) ::_exit(1);
    const std::uint16_t port = ntohs(get_src_port(listener));
    if (::write(tell, &port, sizeof port) != sizeof port) ::_exit(2);
    rdma_cm_id* passive = channel.next().id;
    ibv_qp_init_attr attr = small_qp();
    if (!create_qp(passive, nullptr, &attr) || !accept(passive, nullptr)) ::_exit(3);
    while (true) ::pause();
  }
  rdma_cm_id* resolved_datagram_id(EventChannel& channel, sockaddr_storage peer) {
    rdma_cm_id* id = new_datagram_id(channel);
    EXPECT_EQ(code_of(resolve_addr(id, nullptr, raw(peer), 1000)), 0);
    EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_TRUE(resolve_route(id, 1000));
    EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
  }
};

TEST_F(CmIbTest, ConnectsAndDisconnects) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    start_listening(host);
    client_ = new_client(client_channel_, host);
    EXPECT_TRUE(on_roce(client_));
    const std::string hello = "hello";
    rdma_conn_param wanted = param(hello);
    wanted.initiator_depth = 2;
    wanted.responder_resources = 3;
    wanted.retry_count = 5;
    wanted.rnr_retry_count = 6;
    ASSERT_EQ(code_of(connect(client_, &wanted)), 0);
    rdma_cm_event* event = server_.fetch();
    ASSERT_NE(event, nullptr);
    ASSERT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    passive_ = event->id;
    const rdma_conn_param& conn = event->param.conn;
    EXPECT_EQ(std::string(static_cast<const char*>(conn.private_data), conn.private_data_len),
              padded(hello, kRequestBytes));
    EXPECT_EQ(conn.responder_resources, 2);
    EXPECT_EQ(conn.initiator_depth, 3);
    EXPECT_EQ(conn.retry_count, 5);
    EXPECT_EQ(conn.rnr_retry_count, 6);
    EXPECT_EQ(conn.srq, 0);
    EXPECT_EQ(conn.qp_num, client_->qp->qp_num);
    ASSERT_TRUE(ack_cm_event(event));
    EXPECT_TRUE(on_roce(passive_));
    expect_path(client_, passive_);
    expect_path(passive_, client_);
    EXPECT_EQ(ntohs(get_src_port(passive_)), port_);
    EXPECT_EQ(get_dst_port(passive_), get_src_port(client_));

    ASSERT_EQ(code_of(give_qp(passive_)), 0);
    const std::string world = "world";
    rdma_conn_param answer = param(world);
    answer.initiator_depth = 3;
    answer.responder_resources = 2;
    answer.rnr_retry_count = 4;
    ASSERT_EQ(code_of(accept(passive_, &answer)), 0);
    const Seen at_client = client_channel_.next();
    EXPECT_EQ(at_client.type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(at_client.private_data, padded(world, kReplyBytes));
    EXPECT_EQ(at_client.responder_resources, 3);
    EXPECT_EQ(at_client.initiator_depth, 2);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    expect_connected_pair();

    ASSERT_TRUE(disconnect(client_));
    EXPECT_EQ(client_->qp->state, IBV_QPS_ERR);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(attributes(passive_->qp).qp_state, IBV_QPS_RTS);  // until its program has done
    EXPECT_FALSE(client_channel_.readable());
    EXPECT_TRUE(disconnect(passive_));
    EXPECT_EQ(passive_->qp->state, IBV_QPS_ERR);
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_TRUE(disconnect(client_));
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    CmTest::TearDown();
  }
}

TEST_F(CmIbTest, BoundsPrivateData) {
  start_listening();
  const std::string longest(kRequestBytes, 'x');
  const std::string too_long(kRequestBytes + 1, 'x');
  client_ = new_client(client_channel_);
  auto wanted = param(too_long);
  EXPECT_EQ(code_of(connect(client_, &wanted)), EINVAL);
  wanted = param(longest);
  ASSERT_TRUE(connect(client_, &wanted));
  const Seen asked = server_.next();
  EXPECT_EQ(asked.private_data, longest);
  passive_ = asked.id;
  ASSERT_TRUE(give_qp(passive_));
  const std::string answer_data(kReplyBytes + 1, 'y');
  auto answer = param(answer_data);
  EXPECT_EQ(code_of(accept(passive_, &answer)), EINVAL);
  // Which is an answer: the kernel's RDMA CM refuses for the program.
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(code_of(accept(passive_, nullptr)), EINVAL);
  drop(std::exchange(passive_, nullptr));
  drop(std::exchange(client_, nullptr));
  request();
  answer.private_data_len = kReplyBytes;
  ASSERT_TRUE(accept(passive_, &answer));
  EXPECT_EQ(client_channel_.next().private_data, answer_data.substr(1));
}

TEST_F(CmIbTest, RefusalsCarryPrivateData) {
  start_listening();
  request();
  const std::string why(kRefusalBytes, 'n');
  EXPECT_EQ(code_of(reject(passive_, why.data(), kRefusalBytes + 1)), EINVAL);
  ASSERT_TRUE(reject(passive_, why.data(), kRefusalBytes));
  const Seen seen = client_channel_.next();
  EXPECT_EQ(seen.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(seen.status, 28);
  EXPECT_EQ(seen.private_data, why);
  EXPECT_EQ(client_->qp->state, IBV_QPS_ERR);
  EXPECT_EQ(code_of(accept(passive_, nullptr)), EINVAL);
}

TEST_F(CmIbTest, APortWithoutListenerRefuses) {
  rdma_cm_id* owner = new_id(server_);
  auto local = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(owner, raw(local)));
  port_ = ntohs(get_src_port(owner));
  client_ = new_client(client_channel_);
  ASSERT_TRUE(connect(client_, nullptr));
  const Seen seen = client_channel_.next();
  EXPECT_EQ(seen.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(seen.status, 8);
  drop(owner);
}

TEST_F(CmIbTest, PortsAreOnes) {
  rdma_cm_id* first = new_id(server_);
  auto local = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(first, raw(local)));
  auto same = address("127.0.0.1", ntohs(get_src_port(first)));
  rdma_cm_id* second = new_id(server_);
  EXPECT_EQ(code_of(bind_addr(second, raw(same))), EADDRINUSE);
  auto wildcard = address("0.0.0.0", ntohs(get_src_port(first)));
  EXPECT_EQ(code_of(bind_addr(second, raw(wildcard))), EADDRNOTAVAIL);
  drop(first);
  EXPECT_EQ(code_of(bind_addr(second, raw(same))), 0);
  drop(second);
}

TEST_F(CmIbTest, AProcessOfThisHostThatIsKilledIsNoticed) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) serve_until_killed(pipe[1]);
  std::uint16_t port = 0;
  ASSERT_EQ(::read(pipe[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  port_ = port;
  client_ = new_client(client_channel_);
  ASSERT_EQ(code_of(connect(client_, nullptr)), 0);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(client_->qp->state, IBV_QPS_RTS);
  EXPECT_EQ(code_of(disconnect(client_)), 0);
  EXPECT_EQ(client_->qp->state, IBV_QPS_ERR);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(CmIbTest, AReusedPortIsNobodysToListenOn) {
  rdma_cm_id* first = new_id(server_);
  rdma_cm_id* second = new_id(server_);
  int on = 1;
  for (rdma_cm_id* id : {first, second}) {
    ASSERT_TRUE(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
  }
  auto local = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(first, raw(local)));
  auto same = address("127.0.0.1", ntohs(get_src_port(first)));
  EXPECT_EQ(code_of(bind_addr(second, raw(same))), 0);
  rdma_cm_id* third = new_id(server_);
  EXPECT_EQ(code_of(bind_addr(third, raw(same))), EADDRINUSE);
  EXPECT_EQ(code_of(listen(first, 1)), EADDRINUSE);
  EXPECT_EQ(code_of(listen(second, 1)), EADDRINUSE);
  drop(first);
  EXPECT_EQ(code_of(listen(second, 1)), 0);
  drop(second);
  drop(third);
}

TEST_F(CmIbTest, NoInterfaceIsOneOfIpOverInfiniband) {
  rdma_cm_id* id = nullptr;
  ASSERT_TRUE(create_id(server_.get(), &id, nullptr, RDMA_PS_IPOIB));
  auto local = address("127.0.0.1");
  EXPECT_EQ(code_of(bind_addr(id, raw(local))), EINVAL);
  EXPECT_EQ(code_of(resolve_addr(id, nullptr, raw(local), 1000)), EINVAL);
  auto any = address("0.0.0.0");
  EXPECT_EQ(code_of(bind_addr(id, raw(any))), 0);
  drop(id);
}

TEST_F(CmIbTest, ALinkLocalAddressNeedsAScope) {
  rdma_cm_id* id = new_id(server_);
  auto local = address("fe80::1");
  EXPECT_EQ(code_of(bind_addr(id, raw(local))), EINVAL);
  drop(id);
}

TEST_F(CmIbTest, RetryCountsHaveThreeBits) {
  start_listening();
  client_ = new_client(client_channel_);
  rdma_conn_param wanted{};
  wanted.retry_count = 9;
  wanted.rnr_retry_count = 16;
  ASSERT_EQ(code_of(connect(client_, &wanted)), 0);
  rdma_cm_event* event = server_.fetch();
  ASSERT_NE(event, nullptr);
  passive_ = event->id;
  EXPECT_EQ(event->param.conn.retry_count, 7);
  EXPECT_EQ(event->param.conn.rnr_retry_count, 7);
  ASSERT_TRUE(ack_cm_event(event));
  ASSERT_TRUE(give_qp(passive_));
  rdma_conn_param answer{};
  answer.rnr_retry_count = 9;
  ASSERT_EQ(code_of(accept(passive_, &answer)), 0);
  event = client_channel_.fetch();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.conn.rnr_retry_count, 7);
  ASSERT_TRUE(ack_cm_event(event));
}

// What the kernel's RDMA CM answers for an InfiniBand connection manager.
TEST_F(CmIbTest, DisconnectingWhatIsNotConnectedFlushes) {
  start_listening();
  request();
  EXPECT_EQ(code_of(disconnect(listener_)), 0);
  EXPECT_EQ(code_of(notify(passive_, IBV_EVENT_COMM_EST)), EINVAL);
  ASSERT_TRUE(reject(passive_, nullptr, 0));
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(code_of(disconnect(client_)), 0);
  EXPECT_EQ(code_of(disconnect(passive_)), 0);
  EXPECT_FALSE(client_channel_.readable());
  EXPECT_FALSE(server_.readable());
}

TEST_F(CmIbTest, TrafficOfAConnectionThatIsUpIsNoNews) {
  establish_connection();
  EXPECT_EQ(code_of(notify(passive_, IBV_EVENT_COMM_EST)), EISCONN);
  EXPECT_EQ(code_of(notify(passive_, IBV_EVENT_QP_FATAL)), EINVAL);
  EXPECT_EQ(code_of(notify(listener_, IBV_EVENT_COMM_EST)), EINVAL);
}

// Who looks whether a port at an address is in the way of a wildcard connects to its name, and
// another thread takes that in.
TEST_F(CmIbTest, APortIsFreeAsSoonAsItsIdIsGone) {
  for (int i = 0; i < 300; ++i) {
    rdma_cm_id* first = new_id(server_);
    rdma_cm_id* second = new_id(server_);
    auto local = address("127.0.0.1");
    ASSERT_TRUE(bind_addr(first, raw(local)));
    auto same = address("127.0.0.1", ntohs(get_src_port(first)));
    auto wildcard = address("0.0.0.0", ntohs(get_src_port(first)));
    EXPECT_EQ(code_of(bind_addr(second, raw(wildcard))), EADDRNOTAVAIL);
    drop(first);
    ASSERT_EQ(code_of(bind_addr(second, raw(same))), 0) << i;
    drop(second);
  }
}

TEST_F(CmIbTest, AWildcardListenerTakesBothKinds) {
  start_listening("0.0.0.0");
  EXPECT_EQ(listener_->verbs, nullptr);
  for (const char* kind : {"roce", "iwarp"}) {
    ::setenv("AIRDMA_CM", kind, 1);
    request();
    EXPECT_EQ(on_roce(client_), std::strcmp(kind, "roce") == 0);
    EXPECT_EQ(on_roce(passive_), on_roce(client_));
    ASSERT_TRUE(accept(passive_, nullptr));
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    drop(std::exchange(passive_, nullptr));
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    drop(std::exchange(client_, nullptr));
  }
}

TEST_F(CmIbTest, TheEndOfAnIdEndsItsConnection) {
  establish_connection();
  drop(std::exchange(client_, nullptr));
  EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
}

// What came after the client's end has come tells that this was heard of, too.
TEST_F(CmIbTest, ARequestWhoseClientIsGoneCannotBeAccepted) {
  start_listening();
  request();
  drop(std::exchange(client_, nullptr));
  rdma_cm_id* const orphan = std::exchange(passive_, nullptr);
  request();
  EXPECT_EQ(code_of(accept(orphan, nullptr)), EINVAL);
  EXPECT_EQ(orphan->qp->state, IBV_QPS_ERR);
  EXPECT_FALSE(server_.readable());
  drop(orphan);
}

TEST_F(CmIbTest, WildcardsOfTheFamiliesShareAPort) {
  rdma_cm_id* six = new_id(server_);
  rdma_cm_id* four = new_id(server_);
  int only = 1;
  ASSERT_TRUE(set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only));
  auto all_of_six = address("::");
  ASSERT_TRUE(bind_addr(six, raw(all_of_six)));
  auto all_of_four = address("0.0.0.0", ntohs(get_src_port(six)));
  EXPECT_EQ(code_of(bind_addr(four, raw(all_of_four))), 0);
  EXPECT_EQ(code_of(listen(six, 1)), 0);
  EXPECT_EQ(code_of(listen(four, 1)), 0);
  drop(six);
  drop(four);
}

TEST_F(CmIbTest, ADatagramServiceIsLookedUp) {
  listener_ = new_datagram_id(server_);
  auto local = address("127.0.0.1");
  ASSERT_EQ(code_of(bind_addr(listener_, raw(local))), 0);
  ASSERT_EQ(code_of(listen(listener_, 4)), 0);
  client_ =
      resolved_datagram_id(client_channel_, address("127.0.0.1", ntohs(get_src_port(listener_))));
  ASSERT_EQ(code_of(give_datagram_qp(client_)), 0);
  EXPECT_EQ(client_->qp->state, IBV_QPS_RTS);
  const std::string hello = "hello";
  auto wanted = param(hello);
  ASSERT_EQ(code_of(connect(client_, &wanted)), 0);
  rdma_cm_event* event = server_.fetch();
  ASSERT_NE(event, nullptr);
  ASSERT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  passive_ = event->id;
  EXPECT_EQ(event->param.ud.private_data_len, 180);
  EXPECT_EQ(std::memcmp(event->param.ud.private_data, "hello", 6), 0);
  ASSERT_TRUE(ack_cm_event(event));
  ASSERT_EQ(code_of(give_datagram_qp(passive_)), 0);
  rdma_conn_param answer{};
  answer.qp_num = passive_->qp->qp_num;
  ASSERT_EQ(code_of(accept(passive_, &answer)), 0);
  event = client_channel_.fetch();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(event->status, 0);
  EXPECT_EQ(event->param.ud.qp_num, passive_->qp->qp_num);
  EXPECT_EQ(event->param.ud.qkey, 0x01234567u);
  EXPECT_EQ(event->param.ud.private_data_len, 136);
  const auto handle = verbs::create_ah(client_->pd, &event->param.ud.ah_attr);
  EXPECT_EQ(code_of(handle), 0);
  if (handle) {
    EXPECT_TRUE(verbs::destroy_ah(*handle));
  }
  ASSERT_TRUE(ack_cm_event(event));
  EXPECT_EQ(code_of(disconnect(client_)), 0);
  EXPECT_EQ(client_->qp->state, IBV_QPS_ERR);
  EXPECT_FALSE(client_channel_.readable());
}

TEST_F(CmIbTest, ConnectionsHaveNoDatagrams) {
  start_listening();
  client_ = new_client(client_channel_);
  destroy_qp(client_);
  EXPECT_EQ(code_of(give_datagram_qp(client_)), EINVAL);
}

TEST_F(CmIbTest, ARefusedLookupIsUnreachable) {
  listener_ = new_datagram_id(server_);
  auto local = address("127.0.0.1");
  ASSERT_TRUE(bind_addr(listener_, raw(local)));
  ASSERT_TRUE(listen(listener_, 4));
  client_ =
      resolved_datagram_id(client_channel_, address("127.0.0.1", ntohs(get_src_port(listener_))));
  ASSERT_EQ(code_of(connect(client_, nullptr)), 0);
  passive_ = server_.next().id;
  ASSERT_TRUE(reject(passive_, nullptr, 0));
  const Seen seen = client_channel_.next();
  EXPECT_EQ(seen.type, RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_EQ(seen.status, 2);
}

TEST_F(CmIbTest, JoinsAndLeavesGroups) {
  client_ = resolved_datagram_id(client_channel_, address("127.0.0.1", 7));
  ASSERT_EQ(code_of(give_datagram_qp(client_)), 0);
  auto group = address("239.1.2.3");
  int context = 0;
  ASSERT_EQ(code_of(join_multicast(client_, raw(group), &context)), 0);
  rdma_cm_event* event = client_channel_.fetch();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(event->status, 0);
  EXPECT_EQ(event->param.ud.private_data, &context);
  EXPECT_EQ(event->param.ud.qp_num, 0xffffffu);
  EXPECT_EQ(event->param.ud.qkey, 0x01234567u);
  const std::array<std::uint8_t, 16> gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
  EXPECT_EQ(std::memcmp(event->param.ud.ah_attr.grh.dgid.raw, gid.data(), 16), 0);
  const auto handle = verbs::create_ah(client_->pd, &event->param.ud.ah_attr);
  EXPECT_EQ(code_of(handle), 0);
  if (handle) {
    EXPECT_TRUE(verbs::destroy_ah(*handle));
  }
  ASSERT_TRUE(ack_cm_event(event));
  // Twice is fine, and wants to be left twice.
  EXPECT_EQ(code_of(join_multicast(client_, raw(group), nullptr)), 0);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(code_of(leave_multicast(client_, raw(group))), 0);
  EXPECT_EQ(code_of(verbs::destroy_qp(client_->qp)), EBUSY);  // it is still attached
  EXPECT_EQ(code_of(leave_multicast(client_, raw(group))), 0);
  EXPECT_EQ(code_of(leave_multicast(client_, raw(group))), EADDRNOTAVAIL);
}

}  // namespace
}  // namespace airdma::cm
