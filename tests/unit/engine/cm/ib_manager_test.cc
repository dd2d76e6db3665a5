// SPDX-License-Identifier: MIT
// Which connection, listener or lookup a datagram is for, and what is nobody's.
#include "engine/cm/ib_manager.h"

#include <gtest/gtest.h>

#include "tests/unit/engine/cm/ib_hosts.h"

namespace airdma::ibcm {
namespace {

using namespace test;
using wire::CmRejectReason;

OutMad mad_from(std::uint8_t from, std::uint8_t to, const wire::CmMessage& message,
                std::uint64_t transaction_id = 77) {
  OutMad out{.bytes = {}, .destination = test::path_between(from, to), .id = {}};
  EXPECT_TRUE(wire::emit_cm(out.bytes, {transaction_id, message}));
  return out;
}

wire::CmReq request(std::uint32_t id, std::uint32_t qpn) {
  wire::CmReq req;
  req.local_id = CommunicationId{id};
  req.service_id = test::kService;
  req.local_ca_guid = test::kGuidA;
  req.local_qpn = Qpn{qpn};
  req.local_response_timeout = 20;
  req.max_cm_retries = 15;
  return req;
}

TEST(IbManager, IdsBeginWithTheBlockAndAreFree) {
  Hosts hosts;
  const auto first = hosts.a.manager.connect(Hosts::params(), hosts.now);
  const auto second = hosts.a.manager.connect(Hosts::params(), hosts.now);
  EXPECT_EQ(first->value() >> 20, 1u);
  EXPECT_EQ(second->value() >> 20, 1u);
  EXPECT_NE(*first, *second);
}

TEST(IbManager, PrefersTheListenerOfTheAddress) {
  Hosts hosts;
  const ListenerId other = hosts.b.manager.listen(test::kService, test::gid_of(3), 8);
  const ListenerId exact = hosts.b.manager.listen(test::kService, test::gid_of(2), 8);
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));
  EXPECT_EQ(hosts.b.take(EventKind::kRequest).listener, exact);
  hosts.b.manager.stop_listening(exact, hosts.now);
  hosts.arrive(hosts.b, mad_from(1, 2, request(2, 2)));
  EXPECT_EQ(hosts.b.take(EventKind::kRequest).listener, hosts.listener);
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  hosts.arrive(hosts.b, mad_from(1, 2, request(3, 3)));
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_NE(other, exact);
}

TEST(IbManager, AsksTheNarrowestListener) {
  using Kind = model::AddressScope::Kind;
  Hosts hosts;
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  const auto listen = [&](const model::AddressScope& scope) {
    return hosts.b.manager.listen(test::kService, scope, 8);
  };
  const model::Gid own = test::gid_of(2);
  const bool v4 = own.is_v4();
  const ListenerId every = listen(model::AddressScope(Kind::kEvery));
  const ListenerId family = listen(model::AddressScope::family_of(own));
  (void)listen(model::AddressScope(v4 ? Kind::kEveryIpv6 : Kind::kEveryIpv4));
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));
  EXPECT_EQ(hosts.b.take(EventKind::kRequest).listener, family);
  hosts.b.manager.stop_listening(family, hosts.now);
  hosts.arrive(hosts.b, mad_from(1, 2, request(2, 2)));
  EXPECT_EQ(hosts.b.take(EventKind::kRequest).listener, every);
}

CmRejectReason reason_of(const OutMad& mad) {
  const auto parsed = wire::parse_cm(mad.bytes);
  if (!parsed || !std::holds_alternative<wire::CmRej>(parsed->message)) return {};
  return std::get<wire::CmRej>(parsed->message).reason;
}

// The kernel's connection manager takes a refusal for the last word, and perftest's client connects
// anew while its server is between two listeners.
TEST(IbManager, ARequestBetweenTwoListenersWaits) {
  Hosts hosts;
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  hosts.now += milliseconds(900);
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));  // asks again
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_EQ(hosts.lose(hosts.b), 0u);
  const ListenerId next = hosts.b.manager.listen(test::kService, {}, 8);
  EXPECT_EQ(hosts.b.take(EventKind::kRequest).listener, next);
  EXPECT_TRUE(hosts.b.quiet());
}

TEST(IbManager, ARequestThatNobodyComesForIsRefused) {
  Hosts hosts;
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));
  ASSERT_EQ(hosts.b.manager.next_deadline(), hosts.now + EndedServices::kWait);
  hosts.now += EndedServices::kWait;
  hosts.b.manager.on_deadline(hosts.now);
  const auto answers = hosts.taken(hosts.b);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(reason_of(answers[0]), CmRejectReason::kInvalidServiceId);
  EXPECT_EQ(hosts.b.manager.next_deadline(), std::nullopt);
  // From now on at once, as where nobody ever listened.
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));
  EXPECT_EQ(hosts.lose(hosts.b), 1u);
}

TEST(IbManager, OnlyTheServiceThatEndedIsWaitedFor) {
  Hosts hosts;
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  auto req = request(1, 1);
  req.service_id = wire::service_of(0x0106, 1);
  hosts.arrive(hosts.b, mad_from(1, 2, req));
  EXPECT_EQ(hosts.lose(hosts.b), 1u);
}

TEST(IbManager, AListenerOfAnotherAddressDoesNotHelp) {
  Hosts hosts;
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));
  [[maybe_unused]] const auto other = hosts.b.manager.listen(test::kService, test::gid_of(3), 8);
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_EQ(hosts.lose(hosts.b), 0u);
  const ListenerId exact = hosts.b.manager.listen(test::kService, test::gid_of(2), 8);
  EXPECT_EQ(hosts.b.take(EventKind::kRequest).listener, exact);
}

TEST(IbManager, AFloodBetweenTwoListenersIsRefused) {
  Hosts hosts;
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  for (std::uint32_t i = 1; i <= 1000; ++i) hosts.arrive(hosts.b, mad_from(1, 2, request(i, i)));
  EXPECT_EQ(hosts.lose(hosts.b), 1000u - EndedServices::kMostRequests);
  hosts.b.manager.release_all(hosts.now);
  EXPECT_EQ(hosts.lose(hosts.b), EndedServices::kMostRequests);
}

TEST(IbManager, AFloodOfRequestsEndsAtTheBacklog) {
  Hosts hosts;
  for (std::uint32_t i = 1; i <= 10000; ++i) hosts.arrive(hosts.b, mad_from(1, 2, request(i, i)));
  EXPECT_EQ(hosts.b.manager.size(), 8u);
  EXPECT_EQ(hosts.lose(hosts.b), 0u);
  EXPECT_EQ(hosts.b.manager.counters().no_room, 9992u);
  // An answer makes room for the next that asks again.
  const Event event = hosts.b.take(EventKind::kRequest);
  EXPECT_TRUE(hosts.b.manager.accept(event.id, Hosts::answer(), hosts.now));
  hosts.arrive(hosts.b, mad_from(1, 2, request(9999, 9999)));
  EXPECT_EQ(hosts.b.manager.size(), 9u);
}

TEST(IbManager, AFloodOfRefusedRequestsIsForgotten) {
  Hosts hosts;
  for (std::uint32_t i = 1; i <= 5000; ++i) {
    hosts.arrive(hosts.b, mad_from(1, 2, request(i, i)));
    const Event event = hosts.b.take(EventKind::kRequest);
    EXPECT_TRUE(hosts.b.manager.reject(event.id, CmRejectReason::kConsumer, {}, {}, hosts.now));
  }
  EXPECT_EQ(hosts.b.manager.size(), 0u);
  // The last ones are remembered.
  hosts.lose(hosts.b);
  hosts.arrive(hosts.b, mad_from(1, 2, request(5000, 5000)));
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_EQ(hosts.lose(hosts.b), 1u);
  hosts.arrive(hosts.b, mad_from(1, 2, request(1, 1)));
  hosts.b.take(EventKind::kRequest);
}

TEST(IbManager, ARefusedTransportIsNamed) {
  Hosts hosts;
  auto req = request(1, 1);
  req.transport = wire::CmTransport::kRd;
  hosts.arrive(hosts.b, mad_from(1, 2, req));
  const auto answers = hosts.taken(hosts.b);
  ASSERT_EQ(answers.size(), 1u);
  const auto parsed = wire::parse_cm(answers[0].bytes);
  EXPECT_EQ(std::get<wire::CmRej>(parsed->message).reason, CmRejectReason::kInvalidTransportType);
}

TEST(IbManager, ADisconnectOfNobodyIsAnswered) {
  Hosts hosts;
  hosts.arrive(
      hosts.b,
      mad_from(1, 2, wire::CmDreq{CommunicationId{5}, CommunicationId{6}, Qpn{7}, {}}, 99));
  const auto answers = hosts.taken(hosts.b);
  ASSERT_EQ(answers.size(), 1u);
  const auto parsed = wire::parse_cm(answers[0].bytes);
  EXPECT_EQ(parsed->transaction_id, 99u);
  const auto& drep = std::get<wire::CmDrep>(parsed->message);
  EXPECT_EQ(drep.local_id, CommunicationId{6});
  EXPECT_EQ(drep.remote_id, CommunicationId{5});
}

TEST(IbManager, AReplyToNobodyIsRefused) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.a.manager.release(hosts.active, hosts.now);
  hosts.lose(hosts.a);  // its REJ
  hosts.settle();
  const Event event = hosts.b.take(EventKind::kRejected);
  EXPECT_EQ(std::get<wire::CmRej>(message_of(event)).reason,
            CmRejectReason::kInvalidCommunicationId);
  EXPECT_EQ(hosts.b.manager.size(), 0u);
}

TEST(IbManager, OnlyThePeersAddressSpeaksForAConnection) {
  Hosts hosts;
  hosts.establish();
  hosts.arrive(hosts.a, mad_from(3, 1, wire::CmDreq{hosts.passive, hosts.active, Qpn{0x11}, {}}));
  hosts.arrive(hosts.a, mad_from(3, 1, wire::CmRej{{}, hosts.active}));
  hosts.arrive(hosts.a,
               mad_from(2, 1, wire::CmDreq{CommunicationId{1}, hosts.active, Qpn{0x11}, {}}));
  EXPECT_TRUE(hosts.a.quiet());
  EXPECT_EQ(hosts.state(hosts.a, hosts.active), State::kEstablished);
  EXPECT_EQ(hosts.a.manager.counters().unknown_connection, 3u);
}

TEST(IbManager, APathLoadIsUnsupported) {
  Hosts hosts;
  hosts.establish();
  const auto status_of = [&](const wire::CmLap& lap) {
    hosts.arrive(hosts.a, mad_from(2, 1, lap));
    const auto answers = hosts.taken(hosts.a);
    EXPECT_EQ(answers.size(), 1u);
    return std::get<wire::CmApr>(wire::parse_cm(answers.at(0).bytes)->message).status;
  };
  EXPECT_EQ(status_of({hosts.passive, hosts.active}), wire::CmAprStatus::kUnsupported);
  EXPECT_EQ(status_of({hosts.passive, CommunicationId{1}}),
            wire::CmAprStatus::kInvalidCommunicationId);
  EXPECT_TRUE(hosts.a.quiet());
}

TEST(IbManager, APeerThatUsesAQueuePairAnewHasForgottenTheOldConnection) {
  Hosts hosts;
  hosts.establish();
  auto again = request(0x777, 0x11);  // the queue pair of the connection
  hosts.arrive(hosts.b, mad_from(1, 2, again));
  EXPECT_EQ(hosts.b.take(EventKind::kDisconnected).id, hosts.passive);
  hosts.b.take(EventKind::kRequest);
  EXPECT_EQ(hosts.b.manager.size(), 1u);
}

TEST(IbManager, APeerThatUsesANameAnewHasForgottenTheOldConnection) {
  Hosts hosts;
  hosts.establish();
  hosts.arrive(hosts.b, mad_from(1, 2, request(hosts.active.value(), 0x99)));
  EXPECT_EQ(hosts.b.take(EventKind::kDisconnected).id, hosts.passive);
  const Event event = hosts.b.take(EventKind::kRequest);
  EXPECT_EQ(hosts.b.manager.find(event.id)->remote_qpn(), Qpn{0x99});
}

TEST(IbManager, AQueuePairInTimewaitMayBeUsedAgain) {
  Hosts hosts;
  hosts.establish();
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.settle();
  hosts.b.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  hosts.settle();
  hosts.a.take(EventKind::kDisconnected);
  hosts.establish();
  EXPECT_EQ(hosts.state(hosts.b, hosts.passive), State::kEstablished);
}

TEST(IbManager, AnotherHostsQueuePairOfTheSameNumberIsAnother) {
  Hosts hosts;
  hosts.establish();
  hosts.arrive(hosts.b, mad_from(3, 2, request(0x777, 0x11)));
  hosts.b.take(EventKind::kRequest);
  EXPECT_EQ(hosts.state(hosts.b, hosts.passive), State::kEstablished);
}

TEST(IbManager, AManagerMayTalkToItself) {
  Hosts hosts;
  Manager& self = hosts.b.manager;
  auto params = Hosts::params();
  params.path = test::path_between(2, 2);
  const auto active = self.connect(params, hosts.now);
  hosts.deliver(hosts.b, hosts.b);
  const auto passive = hosts.b.take(EventKind::kRequest).id;
  EXPECT_TRUE(self.accept(passive, Hosts::answer(), hosts.now));
  hosts.deliver(hosts.b, hosts.b);
  hosts.b.take(EventKind::kReply);
  EXPECT_TRUE(self.ready(*active, {}));
  hosts.deliver(hosts.b, hosts.b);
  hosts.b.take(EventKind::kEstablished);
  EXPECT_TRUE(self.disconnect(passive, {}, hosts.now));
  hosts.deliver(hosts.b, hosts.b);
  EXPECT_EQ(hosts.b.take(EventKind::kDisconnected).id, *active);
  EXPECT_TRUE(self.disconnect(*active, {}, hosts.now));
  hosts.deliver(hosts.b, hosts.b);
  EXPECT_EQ(hosts.b.take(EventKind::kDisconnected).id, passive);
}

TEST(IbManager, TheEndOfAProcessEndsEverything) {
  Hosts hosts;
  hosts.establish();
  hosts.a.manager.connect(Hosts::params(Qpn{0x12}), hosts.now);
  hosts.deliver(hosts.a, hosts.b);
  hosts.b.take(EventKind::kRequest);
  hosts.a.manager.look_up({.service = test::kService, .path = test::path_between(1, 2)}, hosts.now);
  hosts.lose(hosts.a);
  hosts.a.manager.release_all(hosts.now);
  hosts.settle();
  hosts.b.drain_events();
  ASSERT_EQ(hosts.b.events.size(), 2u);  // in any order
  EXPECT_NE(hosts.b.events[0].kind, hosts.b.events[1].kind);
  for (const Event& event : hosts.b.events) {
    EXPECT_TRUE(event.kind == EventKind::kDisconnected || event.kind == EventKind::kRequestLost);
  }
}

TEST(IbManager, NonsenseIsCounted) {
  Hosts hosts;
  hosts.a.manager.on_mad(pattern(256), test::path_between(1, 2), hosts.now);
  hosts.a.manager.on_mad(pattern(100), test::path_between(1, 2), hosts.now);
  hosts.arrive(hosts.b, mad_from(1, 2, request(0, 1)));
  EXPECT_EQ(hosts.a.manager.counters().malformed, 2u);
  EXPECT_EQ(hosts.b.manager.counters().malformed, 1u);
  EXPECT_TRUE(hosts.a.quiet() && hosts.b.quiet());
}

// Lookups of datagram services.

LookupParams lookup_params() {
  LookupParams params;
  params.service = test::kService;
  params.path = test::path_between(1, 2);
  return params;
}

TEST(IbLookup, BringsTheQueuePairOfAService) {
  Hosts hosts;
  const ByteVector data = pattern(216);
  auto params = lookup_params();
  params.private_data = data;
  const auto id = hosts.a.manager.look_up(params, hosts.now);
  hosts.deliver(hosts.a, hosts.b);
  const Event asked = hosts.b.take(EventKind::kLookup);
  const auto req_message = message_of(asked);
  EXPECT_TRUE(std::ranges::equal(std::get<wire::CmSidrReq>(req_message).private_data, data));
  EXPECT_EQ(asked.listener, hosts.listener);
  const ByteVector back = pattern(136, 2);
  EXPECT_TRUE(hosts.b.manager.answer(
      asked.id, {.qpn = Qpn{0x23}, .qkey = Qkey{0x1234567}, .private_data = back}, hosts.now));
  hosts.settle();
  const Event answered = hosts.a.take(EventKind::kLookupAnswered);
  EXPECT_EQ(answered.id, *id);
  const auto message = message_of(answered);
  const auto& rep = std::get<wire::CmSidrRep>(message);
  EXPECT_EQ(rep.status, wire::CmSidrStatus::kValid);
  EXPECT_EQ(rep.qpn, Qpn{0x23});
  EXPECT_EQ(rep.qkey, Qkey{0x1234567});
  EXPECT_EQ(rep.service_id, test::kService);
  EXPECT_EQ(hosts.a.manager.size() + hosts.b.manager.size(), 0u);
  EXPECT_FALSE(hosts.earliest());
}

TEST(IbLookup, ASecondQuestionGetsTheSameAnswer) {
  Hosts hosts;
  [[maybe_unused]] const auto id = hosts.a.manager.look_up(lookup_params(), hosts.now);
  hosts.deliver(hosts.a, hosts.b);
  const Event asked = hosts.b.take(EventKind::kLookup);
  hosts.pass(milliseconds(150));  // asked twice more, and not shown twice
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_TRUE(hosts.b.manager.answer(asked.id, {.qpn = Qpn{0x23}}, hosts.now));
  hosts.lose(hosts.b);
  hosts.pass(seconds(1));
  hosts.a.take(EventKind::kLookupAnswered);
  EXPECT_TRUE(hosts.b.quiet());
}

TEST(IbLookup, SaysThatNobodyHasTheService) {
  Hosts hosts;
  auto params = lookup_params();
  params.service = wire::service_of(0x0111, 1);
  [[maybe_unused]] const auto id = hosts.a.manager.look_up(params, hosts.now);
  hosts.settle();
  EXPECT_TRUE(hosts.a.quiet());
  hosts.pass(milliseconds(201));
  const Event event = hosts.a.take(EventKind::kLookupAnswered);
  EXPECT_EQ(std::get<wire::CmSidrRep>(message_of(event)).status,
            wire::CmSidrStatus::kUnsupportedService);
}

TEST(IbLookup, ARequestThatIsGivenUpIsRefused) {
  Hosts hosts;
  [[maybe_unused]] const auto id = hosts.a.manager.look_up(lookup_params(), hosts.now);
  hosts.deliver(hosts.a, hosts.b);
  hosts.b.manager.release(hosts.b.take(EventKind::kLookup).id, hosts.now);
  hosts.settle();
  const Event event = hosts.a.take(EventKind::kLookupAnswered);
  EXPECT_EQ(std::get<wire::CmSidrRep>(message_of(event)).status, wire::CmSidrStatus::kRejected);
}

TEST(IbLookup, GivesUpOnSilence) {
  Hosts hosts;
  [[maybe_unused]] const auto id = hosts.a.manager.look_up(lookup_params(), hosts.now);
  hosts.lose(hosts.a);
  hosts.pass_in_silence(seconds(70));
  hosts.a.take(EventKind::kLookupUnreachable);
  EXPECT_EQ(hosts.a.manager.size(), 0u);
}

TEST(IbLookup, AFloodEndsAtTheBacklog) {
  Hosts hosts;
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    hosts.arrive(
        hosts.b,
        mad_from(1, 2, wire::CmSidrReq{CommunicationId{i}, Pkey{0xffff}, test::kService, {}}));
  }
  EXPECT_EQ(hosts.b.manager.size(), 8u);
}

TEST(IbLookup, OnlyTheAskedHostAnswers) {
  Hosts hosts;
  const auto id = hosts.a.manager.look_up(lookup_params(), hosts.now);
  hosts.lose(hosts.a);
  hosts.arrive(hosts.a, mad_from(3, 1, wire::CmSidrRep{.request_id = *id, .qpn = Qpn{6}}));
  EXPECT_TRUE(hosts.a.quiet());
  EXPECT_FALSE(hosts.a.manager.answer(*id, {}, hosts.now));
  hosts.a.manager.release(*id, hosts.now);
  EXPECT_EQ(hosts.a.manager.size(), 0u);
  EXPECT_FALSE(hosts.earliest());
}

TEST(IbAnswers, AreKeptForAWhile) {
  Answers answers;
  const Time now{seconds(5)};
  const RemoteName name{test::gid_of(1), 1, CommunicationId{1}};
  answers.remember(name, 7, {}, now);
  EXPECT_NE(answers.find(name, 7, now), nullptr);
  EXPECT_EQ(answers.find(name, 8, now), nullptr);
  answers.remember(name, 8, {}, now + seconds(5));
  EXPECT_EQ(answers.find(name, 7, now + seconds(5)), nullptr);
  EXPECT_NE(answers.find(name, 8, now + seconds(12)), nullptr);
  EXPECT_EQ(answers.find(name, 8, now + seconds(15)), nullptr);
  EXPECT_EQ(answers.size(), 0u);
}

}  // namespace
}  // namespace airdma::ibcm
