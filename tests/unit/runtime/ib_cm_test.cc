// SPDX-License-Identifier: MIT
// The communication manager of a process that connects to itself.
#include "runtime/ib_cm.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <vector>

#include "engine/rocev2/attributes.h"
#include "tests/unit/runtime/roce_fixture.h"

namespace airdma::runtime {
namespace {

using ibcm::CommunicationId;
using ibcm::Event;
using ibcm::EventKind;
using testing::loopback;

class KeepingObserver : public IbObserver {
 public:
  void on_ib_event(const Event& event) override {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
    arrived_.notify_all();
  }
  /// The next event, which has to be of this kind.
  Event take(EventKind kind) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return !events_.empty(); })) {
      ADD_FAILURE() << "no event, wanted " << static_cast<int>(kind);
      return {};
    }
    const Event event = events_.front();
    events_.erase(events_.begin());
    EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(kind));
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Event> events_;
};

struct Service {
  explicit Service(PortSpace space)
      : lease(RocePort::get().lease_service(space, 0, {}).value()),
        id(wire::service_of(static_cast<std::uint16_t>(space), lease.port())),
        observer(std::make_shared<KeepingObserver>()),
        listener(IbCm::get().value()->listen(id, {}, 4, observer)) {}
  ~Service() { IbCm::get().value()->stop_listening(listener); }

  ServiceLease lease;
  ibcm::ServiceId id;
  std::shared_ptr<KeepingObserver> observer;
  ibcm::ListenerId listener;
};

ibcm::ConnectParams params_to(const model::Gid& gid, ibcm::ServiceId service) {
  ibcm::ConnectParams params;
  params.service = service;
  params.path = loopback(gid);
  params.ca_guid = 1;
  params.qpn = Qpn{0x10};
  params.ack_timeout = 12;
  return params;
}

TEST(IbCm, OpensAndClosesAConnection) {
  IbCm& cm = *IbCm::get().value();
  Service service(PortSpace::kTcp);
  for (const model::Gid& gid : {testing::kLoopbackV4, testing::kLoopbackV6}) {
    const auto client = std::make_shared<KeepingObserver>();
    const auto server = std::make_shared<KeepingObserver>();
    const auto active = cm.connect(params_to(gid, service.id), client).value();
    const Event request = service.observer->take(EventKind::kRequest);
    EXPECT_EQ(request.path.source, gid);
    EXPECT_EQ(request.path.destination, gid);
    cm.observe(request.id, server);
    ibcm::AcceptParams answer;
    answer.qpn = Qpn{0x20};
    EXPECT_TRUE(cm.accept(request.id, answer));
    client->take(EventKind::kReply);
    EXPECT_TRUE(cm.ready(active, {}));
    server->take(EventKind::kEstablished);
    EXPECT_TRUE(cm.disconnect(request.id));
    client->take(EventKind::kDisconnected);
    EXPECT_TRUE(cm.disconnect(active));
    server->take(EventKind::kDisconnected);
    client->take(EventKind::kTimewaitOver);
    cm.release(active);
    cm.release(request.id);
    EXPECT_FALSE(cm.ready(active, {}));
  }
}

TEST(IbCm, CarriesARefusal) {
  IbCm& cm = *IbCm::get().value();
  Service service(PortSpace::kTcp);
  const auto client = std::make_shared<KeepingObserver>();
  [[maybe_unused]] const auto id = cm.connect(params_to(testing::kLoopbackV4, service.id), client);
  const Event request = service.observer->take(EventKind::kRequest);
  EXPECT_TRUE(cm.reject(request.id, wire::CmRejectReason::kConsumer, {}, {}));
  client->take(EventKind::kRejected);
}

TEST(IbCm, SaysThatNobodyListens) {
  IbCm& cm = *IbCm::get().value();
  const auto client = std::make_shared<KeepingObserver>();
  const auto nobody = wire::service_of(0x0106, 1);
  [[maybe_unused]] const auto id = cm.connect(params_to(testing::kLoopbackV4, nobody), client);
  const Event event = client->take(EventKind::kRejected);
  const auto mad = wire::parse_cm(event.mad);
  EXPECT_EQ(std::get<wire::CmRej>(mad->message).reason, wire::CmRejectReason::kInvalidServiceId);
}

TEST(IbCm, ARequestThatNobodyWantsIsRefused) {
  IbCm& cm = *IbCm::get().value();
  Service service(PortSpace::kTcp);
  service.observer.reset();
  const auto client = std::make_shared<KeepingObserver>();
  [[maybe_unused]] const auto id = cm.connect(params_to(testing::kLoopbackV4, service.id), client);
  client->take(EventKind::kRejected);
}

TEST(IbCm, BringsTheQueuePairOfAService) {
  IbCm& cm = *IbCm::get().value();
  Service service(PortSpace::kUdp);
  const auto client = std::make_shared<KeepingObserver>();
  [[maybe_unused]] const auto id =
      cm.look_up({.service = service.id, .path = loopback(testing::kLoopbackV4)}, client);
  const Event asked = service.observer->take(EventKind::kLookup);
  EXPECT_TRUE(cm.answer(asked.id, {.qpn = Qpn{7}, .qkey = Qkey{8}}));
  const Event answered = client->take(EventKind::kLookupAnswered);
  const auto mad = wire::parse_cm(answered.mad);
  EXPECT_EQ(std::get<wire::CmSidrRep>(mad->message).qpn, Qpn{7});
}

TEST(IbCm, RefusesDataThatDoesNotFit) {
  IbCm& cm = *IbCm::get().value();
  const std::vector<std::byte> data(300);
  auto params = params_to(testing::kLoopbackV4, wire::service_of(0x0106, 1));
  params.private_data = Bytes(data).first(93);
  EXPECT_EQ(cm.connect(params, {}).error().code, EINVAL);
  EXPECT_EQ(cm.look_up({.service = params.service, .path = params.path, .private_data = data}, {})
                .error()
                .code,
            EINVAL);
}

}  // namespace
}  // namespace airdma::runtime
