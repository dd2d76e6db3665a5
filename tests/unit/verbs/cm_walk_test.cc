// SPDX-License-Identifier: MIT
// Every state of an id, and every call in it: what the call says, that a refused one changes
// nothing, and that all can be destroyed afterwards.
#include <cstddef>
#include <string_view>
#include <utility>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

rdma_conn_param no_data() {
  rdma_conn_param result{};
  result.responder_resources = result.initiator_depth = 1;
  return result;
}

/// An id in some state, with what it took to get it there.
class World {
 public:
  World() : local_(address("127.0.0.1")) {}
  ~World() {
    for (rdma_cm_id* one : {id, peer, listener_}) {
      if (one == nullptr) continue;
      destroy_qp(one);
      EXPECT_TRUE(destroy_id(one));
    }
    if (qp_ != nullptr) {
      EXPECT_TRUE(verbs::destroy_qp(qp_));
    }
    if (cq_ != nullptr) {
      EXPECT_TRUE(verbs::destroy_cq(cq_));
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void idle() { id = make(mine); }
  void bound() {
    idle();
    ASSERT_TRUE(bind_addr(id, raw(local_)));
  }
  void listening() {
    bound();
    ASSERT_TRUE(listen(id, 1));
  }
  void address_resolved() {
    listen_for_us();
    idle();
    auto to = address("127.0.0.1", port_);
    ASSERT_TRUE(resolve_addr(id, nullptr, raw(to), 1000));
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  void route_resolved() {
    address_resolved();
    ASSERT_TRUE(resolve_route(id, 1000));
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_qp(id);
  }
  void connecting() {
    route_resolved();
    auto wanted = no_data();
    ASSERT_TRUE(connect(id, &wanted));
    peer = others.next().id;
    ASSERT_NE(peer, nullptr);
    give_qp(peer);
  }
  void answered() {
    route_resolved();
    destroy_qp(id);
    cq_ = verbs::create_cq(id->verbs, 4, nullptr, nullptr, 0).value();
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = cq_;
    qp_ = verbs::create_qp(id->pd, &attr).value();
    ibv_qp_attr init{};
    int mask = 0;
    init.qp_state = IBV_QPS_INIT;
    ASSERT_TRUE(init_qp_attr(id, &init, &mask));
    ASSERT_TRUE(verbs::modify_qp(qp_, &init, mask));
    auto wanted = no_data();
    wanted.qp_num = qp_->qp_num;
    ASSERT_TRUE(connect(id, &wanted));
    peer = others.next().id;
    give_qp(peer);
    ASSERT_TRUE(accept(peer, nullptr));
    ASSERT_EQ(others.next().type, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  }
  /// As connecting(), seen from the other side.
  void requested() {
    connecting();
    std::swap(id, peer);
  }
  void connected() {
    connecting();
    ASSERT_TRUE(accept(peer, nullptr));
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(others.next().type, RDMA_CM_EVENT_ESTABLISHED);
  }
  void accepted() {
    connected();
    std::swap(id, peer);
  }
  void disconnected() {
    connected();
    ASSERT_TRUE(disconnect(id));
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(others.next().type, RDMA_CM_EVENT_DISCONNECTED);
  }
  void disconnecting() {
    connected();
    ASSERT_TRUE(disconnect(id));  // its event may or may not have come
  }
  void left_by_its_peer() {
    connected();
    destroy_peer();
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_DISCONNECTED);
  }
  void rejected() {
    connecting();
    ASSERT_TRUE(reject(peer, nullptr, 0));
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_REJECTED);
  }
  void rejecting() {
    requested();
    ASSERT_TRUE(reject(id, nullptr, 0));
    ASSERT_EQ(mine.next().type, RDMA_CM_EVENT_REJECTED);
  }

  [[nodiscard]] sockaddr* local() { return raw(local_); }

  EventChannel mine;
  EventChannel others;
  EventChannel third;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* peer = nullptr;

 private:
  static rdma_cm_id* make(const EventChannel& channel) {
    rdma_cm_id* made = nullptr;
    EXPECT_TRUE(create_id(channel.get(), &made, nullptr, RDMA_PS_TCP));
    return made;
  }
  static void give_qp(rdma_cm_id* to) {
    auto attr = small_qp();
    EXPECT_TRUE(create_qp(to, nullptr, &attr));
  }
  void listen_for_us() {
    listener_ = make(others);
    ASSERT_TRUE(bind_addr(listener_, raw(local_)));
    ASSERT_TRUE(listen(listener_, 4));
    port_ = ntohs(get_src_port(listener_));
  }
  void destroy_peer() {
    destroy_qp(peer);
    EXPECT_TRUE(destroy_id(std::exchange(peer, nullptr)));
  }

  sockaddr_storage local_;
  rdma_cm_id* listener_ = nullptr;
  std::uint16_t port_ = 0;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

// clang-format off
enum Call : std::size_t {
  kBind, kResolve, kRoute, kListen, kConnect, kAccept, kReject, kDisconnect, kEstablish,
  kNotify, kMigrate, kToSynchronous, kDestroyQp, kDestroyId, kDestroyEp, kCalls
};
constexpr const char* kNames[kCalls] = {
    "bind", "resolve_addr", "resolve_route", "listen", "connect", "accept", "reject", "disconnect",
    "establish", "notify", "migrate", "migrate to NULL", "destroy_qp", "destroy_id", "destroy_ep"};

// clang-format on

int perform(Call call, World& world) {
  auto parameters = no_data();
  switch (call) {
    case kBind:
      return code_of(bind_addr(world.id, world.local()));
    case kResolve:
      return code_of(resolve_addr(world.id, nullptr, world.local(), 1000));
    case kRoute:
      return code_of(resolve_route(world.id, 1000));
    case kListen:
      return code_of(listen(world.id, 1));
    case kConnect:
      return code_of(connect(world.id, &parameters));
    case kAccept:
      return code_of(accept(world.id, &parameters));
    case kReject:
      return code_of(reject(world.id, nullptr, 0));
    case kDisconnect:
      return code_of(disconnect(world.id));
    case kEstablish:
      return code_of(establish(world.id));
    case kNotify:
      return code_of(notify(world.id, IBV_EVENT_COMM_EST));
    case kMigrate:
      return code_of(migrate_id(world.id, world.third.get()));
    case kToSynchronous:
      return code_of(migrate_id(world.id, nullptr));
    case kDestroyQp:
      return destroy_qp(world.id), 0;
    case kDestroyId:
      if (world.id->qp != nullptr) destroy_qp(world.id);
      return code_of(destroy_id(std::exchange(world.id, nullptr)));
    case kDestroyEp:
      return destroy_ep(std::exchange(world.id, nullptr)), 0;
    case kCalls:
      break;
  }
  return -1;
}

struct Row {
  const char* name;
  void (World::*reach)();
  /// One letter for each call that may be refused, in their order up to kNotify: `+` succeeds.
  std::string_view allowed;
};

constexpr Row kRows[] = {
    //                                                       brrlcardeN
    {"idle", &World::idle, "++.+......"},
    {"bound", &World::bound, ".+.+......"},
    {"listening", &World::listening, ".........+"},
    {"address_resolved", &World::address_resolved, "..+......."},
    {"route_resolved", &World::route_resolved, "....+....."},
    {"connecting", &World::connecting, ".........+"},
    {"answered", &World::answered, "......++++"},
    {"requested", &World::requested, ".....++..+"},
    {"connected", &World::connected, ".......+.+"},
    {"accepted", &World::accepted, ".......+.+"},
    {"disconnecting", &World::disconnecting, ".......+.+"},
    {"disconnected", &World::disconnected, ".......+.+"},
    {"left_by_its_peer", &World::left_by_its_peer, ".......+.+"},
    {"rejected", &World::rejected, ".........."},
    {"rejecting", &World::rejecting, ".........."},
};

class CmWalk : public testing::TestWithParam<Row> {
  PreferIwarp iwarp_;
};

TEST_P(CmWalk, EveryCallInThisState) {
  const Row& row = GetParam();
  for (std::size_t i = 0; i < kCalls; ++i) {
    SCOPED_TRACE(kNames[i]);
    World world;
    (world.*row.reach)();
    if (testing::Test::HasFatalFailure()) return;
    const bool refused = i < row.allowed.size() && row.allowed[i] != '+';
    EXPECT_EQ(perform(static_cast<Call>(i), world), refused ? EINVAL : 0);
  }
}

// The calls that are refused in a state leave it as it is: what is allowed there still works.
TEST_P(CmWalk, RefusedCallsChangeNothing) {
  const Row& row = GetParam();
  for (std::size_t i = 0; i < row.allowed.size(); ++i) {
    if (row.allowed[i] != '+') continue;
    SCOPED_TRACE(kNames[i]);
    World world;
    (world.*row.reach)();
    if (testing::Test::HasFatalFailure()) return;
    for (std::size_t k = 0; k < row.allowed.size(); ++k) {
      if (row.allowed[k] != '+') {
        EXPECT_EQ(perform(static_cast<Call>(k), world), EINVAL);
      }
    }
    EXPECT_EQ(perform(static_cast<Call>(i), world), 0);
  }
}

// Another id may be destroyed while an event is handled, and an event's own id once it is
// acknowledged, by the same thread.
TEST_P(CmWalk, DestroyedFromTheHandlingOfAnEvent) {
  const Row& row = GetParam();
  World world;
  (world.*row.reach)();
  if (testing::Test::HasFatalFailure()) return;
  rdma_cm_id* other = nullptr;
  ASSERT_TRUE(create_id(world.third.get(), &other, nullptr, RDMA_PS_TCP));
  ASSERT_TRUE(resolve_addr(other, nullptr, world.local(), 1000));
  rdma_cm_event* event = world.third.fetch();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(perform(kDestroyId, world), 0);
  EXPECT_TRUE(ack_cm_event(event));
  EXPECT_TRUE(destroy_id(other));
}

INSTANTIATE_TEST_SUITE_P(States, CmWalk, testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace airdma::cm
