// SPDX-License-Identifier: MIT
// Connections of the InfiniBand connection manager, message by message.
#include "engine/cm/ib_connection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/engine/cm/ib_hosts.h"

namespace airdma::ibcm {
namespace {

using namespace test;
using wire::CmRejectReason;

template <class Message>
Message in(const Event& event) {
  const auto message = message_of(event);
  EXPECT_TRUE(std::holds_alternative<Message>(message));
  const auto* found = std::get_if<Message>(&message);
  return found != nullptr ? *found : Message{};
}

template <class Message>
Message in(const OutMad& mad) {
  const auto parsed = wire::parse_cm(mad.bytes);
  EXPECT_TRUE(parsed && std::holds_alternative<Message>(parsed->message));
  const auto* found = parsed ? std::get_if<Message>(&parsed->message) : nullptr;
  return found != nullptr ? *found : Message{};
}

TEST(IbConnection, OpensAndCloses) {
  Hosts hosts;
  hosts.establish();
  EXPECT_EQ(hosts.state(hosts.a, hosts.active), State::kEstablished);
  EXPECT_EQ(hosts.state(hosts.b, hosts.passive), State::kEstablished);
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.settle();
  hosts.b.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.a.quiet());
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  hosts.settle();
  hosts.a.take(EventKind::kDisconnected);
  EXPECT_EQ(hosts.log, (Log{"REQ", "REP", "RTU", "DREQ", "DREP"}));
  hosts.pass(seconds(10));
  hosts.a.take(EventKind::kTimewaitOver);
  hosts.b.take(EventKind::kTimewaitOver);
  EXPECT_EQ(hosts.a.manager.size() + hosts.b.manager.size(), 0u);
  EXPECT_FALSE(hosts.earliest());
}

TEST(IbConnection, AsksWithEverythingThePeerNeeds) {
  Hosts hosts;
  const ByteVector data = pattern(10);
  auto params = Hosts::params();
  params.private_data = data;
  params.transport = wire::CmTransport::kUc;
  params.srq = true;
  params.rnr_retry_count = 2;
  params.retry_count = 5;
  params.path.hop_limit = 7;
  params.path.traffic_class = 8;
  params.path.flow_label = 9;
  const auto id = hosts.a.manager.connect(params, hosts.now);
  hosts.deliver(hosts.a, hosts.b);
  const Event event = hosts.b.take(EventKind::kRequest);
  const auto req = in<wire::CmReq>(event);
  EXPECT_EQ(req.local_id, *id);
  EXPECT_EQ(req.service_id, test::kService);
  EXPECT_EQ(req.local_qpn, Qpn{0x11});
  EXPECT_EQ(req.starting_psn, Psn{100});
  EXPECT_EQ(req.transport, wire::CmTransport::kUc);
  EXPECT_TRUE(req.srq);
  EXPECT_EQ(req.responder_resources, 3);
  EXPECT_EQ(req.initiator_depth, 4);
  EXPECT_EQ(req.retry_count, 5);
  EXPECT_EQ(req.rnr_retry_count, 2);
  EXPECT_EQ(req.primary.local_gid, test::gid_of(1).bytes);
  EXPECT_EQ(req.primary.remote_gid, test::gid_of(2).bytes);
  EXPECT_EQ(req.primary.hop_limit, 7);
  EXPECT_EQ(req.primary.traffic_class, 8);
  EXPECT_EQ(req.primary.flow_label, 9u);
  EXPECT_EQ(req.primary.ack_timeout, 17);
  EXPECT_TRUE(std::ranges::equal(req.private_data.first(10), data));
  EXPECT_EQ(event.path.source, test::gid_of(2));
  EXPECT_EQ(event.path.destination, test::gid_of(1));
  EXPECT_EQ(event.listener, hosts.listener);
}

TEST(IbConnection, AnswersWithEverythingThePeerNeeds) {
  Hosts hosts;
  hosts.ask();
  const ByteVector data = pattern(196);
  auto answer = Hosts::answer();
  answer.private_data = data;
  answer.srq = true;
  EXPECT_TRUE(hosts.b.manager.accept(hosts.passive, answer, hosts.now));
  hosts.deliver(hosts.b, hosts.a);
  const Event replied = hosts.a.take(EventKind::kReply);
  const auto rep = in<wire::CmRep>(replied);  // names bytes of the event
  EXPECT_EQ(rep.local_id, hosts.passive);
  EXPECT_EQ(rep.remote_id, hosts.active);
  EXPECT_EQ(rep.local_qpn, Qpn{0x22});
  EXPECT_EQ(rep.starting_psn, Psn{200});
  EXPECT_EQ(rep.responder_resources, 4);
  EXPECT_EQ(rep.initiator_depth, 3);
  EXPECT_EQ(rep.local_ca_guid, test::kGuidB);
  EXPECT_TRUE(rep.srq);
  EXPECT_TRUE(std::ranges::equal(rep.private_data, data));
}

TEST(IbConnection, NamesAnXrcTargetWhereXrcHasIt) {
  Hosts hosts;
  auto params = Hosts::params();
  params.transport = wire::CmTransport::kXrc;
  const auto id = hosts.a.manager.connect(params, hosts.now);
  hosts.deliver(hosts.a, hosts.b);
  const auto passive = hosts.b.take(EventKind::kRequest).id;
  EXPECT_TRUE(hosts.b.manager.accept(passive, Hosts::answer(), hosts.now));
  const auto mads = hosts.taken(hosts.b);
  ASSERT_EQ(mads.size(), 1u);
  EXPECT_EQ(in<wire::CmRep>(mads[0]).local_eecn, 0x22u);
  EXPECT_EQ(in<wire::CmRep>(mads[0]).local_qpn, Qpn{0});
  hosts.arrive(hosts.a, mads[0]);
  EXPECT_EQ(hosts.a.manager.find(*id)->remote_qpn(), Qpn{0x22});
}

TEST(IbConnection, RefusesDataThatDoesNotFit) {
  Hosts hosts;
  const ByteVector data = pattern(300);
  auto params = Hosts::params();
  params.private_data = Bytes(data).first(93);
  EXPECT_FALSE(hosts.a.manager.connect(params, hosts.now));
  hosts.ask();
  auto answer = Hosts::answer();
  answer.private_data = Bytes(data).first(197);
  EXPECT_FALSE(hosts.b.manager.accept(hosts.passive, answer, hosts.now));
  EXPECT_FALSE(hosts.b.manager.reject(hosts.passive, CmRejectReason::kConsumer, {},
                                      Bytes(data).first(149), hosts.now));
  EXPECT_FALSE(hosts.b.manager.reject(hosts.passive, CmRejectReason::kConsumer,
                                      Bytes(data).first(73), {}, hosts.now));
  EXPECT_TRUE(hosts.b.manager.accept(hosts.passive, Hosts::answer(), hosts.now));
  hosts.deliver(hosts.b, hosts.a);
  EXPECT_FALSE(hosts.a.manager.ready(hosts.active, Bytes(data).first(225)));
  EXPECT_TRUE(hosts.a.manager.ready(hosts.active, {}));
  EXPECT_FALSE(hosts.a.manager.disconnect(hosts.active, Bytes(data).first(221), hosts.now));
}

TEST(IbConnection, AsksAgainUntilSomeoneHears) {
  Hosts hosts;
  hosts.active = *hosts.a.manager.connect(Hosts::params(), hosts.now);
  EXPECT_EQ(hosts.lose(hosts.a), 1u);
  EXPECT_EQ(hosts.pass_in_silence(milliseconds(49)), 0u);
  EXPECT_EQ(hosts.pass_in_silence(milliseconds(1)), 1u);
  EXPECT_EQ(hosts.pass_in_silence(milliseconds(99)), 0u);
  hosts.pass(milliseconds(1));
  hosts.b.take(EventKind::kRequest);
}

TEST(IbConnection, GivesUpOnSilence) {
  Hosts hosts;
  hosts.active = *hosts.a.manager.connect(Hosts::params(), hosts.now);
  hosts.lose(hosts.a);
  const std::size_t sent = hosts.pass_in_silence(seconds(68));
  EXPECT_GT(sent, 15u);
  EXPECT_LT(sent, 30u);
  EXPECT_TRUE(hosts.a.quiet());
  hosts.pass_in_silence(seconds(2));
  hosts.a.take(EventKind::kUnreachable);
  EXPECT_EQ(hosts.log.back(), "REJ");
  EXPECT_EQ(hosts.a.manager.size(), 0u);
}

TEST(IbConnection, TellsAnAskerThatTheProgramIsSlow) {
  Hosts hosts;
  hosts.ask();
  hosts.pass(milliseconds(50));
  EXPECT_EQ(hosts.log, (Log{"REQ", "REQ", "MRA"}));
  // Now it has patience: no more than one question per response timeout.
  hosts.pass(seconds(60));
  EXPECT_LT(hosts.log.size(), 3u + 2 * 16u);
  // And gives up much later than without.
  hosts.pass(seconds(60));
  EXPECT_TRUE(hosts.a.quiet());
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_TRUE(hosts.b.manager.accept(hosts.passive, Hosts::answer(), hosts.now));
  hosts.settle();
  hosts.a.take(EventKind::kReply);
}

TEST(IbConnection, RepeatsALostReply) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.lose(hosts.b);
  hosts.pass(milliseconds(50));
  hosts.a.take(EventKind::kReply);
  EXPECT_TRUE(hosts.a.quiet());
}

TEST(IbConnection, AnswersARepeatedRequestWithTheSameReply) {
  Hosts hosts;
  hosts.active = *hosts.a.manager.connect(Hosts::params(), hosts.now);
  const auto req = hosts.taken(hosts.a);
  hosts.arrive(hosts.b, req[0]);
  hosts.passive = hosts.b.take(EventKind::kRequest).id;
  EXPECT_TRUE(hosts.b.manager.accept(hosts.passive, Hosts::answer(), hosts.now));
  const auto first = hosts.taken(hosts.b);
  hosts.arrive(hosts.b, req[0]);
  const auto second = hosts.taken(hosts.b);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[0].bytes, second[0].bytes);
  EXPECT_TRUE(hosts.b.quiet());
}

TEST(IbConnection, RepeatsALostReadyToUse) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.deliver(hosts.b, hosts.a);
  EXPECT_TRUE(hosts.a.manager.ready(hosts.active, {}));
  hosts.lose(hosts.a);
  EXPECT_TRUE(hosts.b.quiet());
  hosts.pass(milliseconds(50));
  EXPECT_EQ(hosts.log, (Log{"REQ", "REP", "RTU", "REP", "RTU"}));
  hosts.b.take(EventKind::kEstablished);
}

TEST(IbConnection, TellsAReplierThatTheProgramIsSlow) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.deliver(hosts.b, hosts.a);
  hosts.a.take(EventKind::kReply);
  hosts.pass(seconds(100));  // the program takes its time
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_EQ(hosts.log[3], "MRA");
  EXPECT_TRUE(hosts.a.manager.ready(hosts.active, {}));
  hosts.settle();
  hosts.b.take(EventKind::kEstablished);
}

TEST(IbConnection, GivesUpOnAnAskerThatLeft) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.lose(hosts.b);
  hosts.a.manager.release(hosts.active, hosts.now);
  hosts.lose(hosts.a);
  hosts.pass_in_silence(seconds(120));
  hosts.b.take(EventKind::kUnreachable);
  EXPECT_EQ(hosts.b.manager.size(), 0u);
}

TEST(IbConnection, CarriesARefusal) {
  Hosts hosts;
  hosts.ask();
  const ByteVector data = pattern(148);
  EXPECT_TRUE(
      hosts.b.manager.reject(hosts.passive, CmRejectReason::kConsumer, {}, data, hosts.now));
  hosts.settle();
  const Event event = hosts.a.take(EventKind::kRejected);
  EXPECT_EQ(in<wire::CmRej>(event).reason, CmRejectReason::kConsumer);
  EXPECT_TRUE(std::ranges::equal(in<wire::CmRej>(event).private_data, data));
  EXPECT_EQ(hosts.a.manager.size() + hosts.b.manager.size(), 0u);
}

TEST(IbConnection, RepeatsARefusalWithoutAskingTheProgramAgain) {
  Hosts hosts;
  hosts.ask();
  EXPECT_TRUE(hosts.b.manager.reject(hosts.passive, CmRejectReason::kConsumer, {}, {}, hosts.now));
  hosts.lose(hosts.b);
  hosts.pass(milliseconds(50));
  hosts.a.take(EventKind::kRejected);
  EXPECT_TRUE(hosts.b.quiet());
}

TEST(IbConnection, AnActiveSideMayRefuseTheReply) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.deliver(hosts.b, hosts.a);
  hosts.a.take(EventKind::kReply);
  EXPECT_TRUE(hosts.a.manager.reject(hosts.active, CmRejectReason::kConsumer, {}, {}, hosts.now));
  hosts.settle();
  hosts.b.take(EventKind::kRejected);
  EXPECT_EQ(hosts.a.manager.size() + hosts.b.manager.size(), 0u);
}

TEST(IbConnection, SaysThatNobodyListens) {
  Hosts hosts;
  auto params = Hosts::params();
  params.service = wire::service_of(0x0106, 1);
  [[maybe_unused]] const auto id = hosts.a.manager.connect(params, hosts.now);
  hosts.settle();
  EXPECT_TRUE(hosts.a.quiet());  // it may be about to listen
  hosts.pass(milliseconds(201));
  const Event event = hosts.a.take(EventKind::kRejected);
  EXPECT_EQ(in<wire::CmRej>(event).reason, CmRejectReason::kInvalidServiceId);
  EXPECT_EQ(hosts.a.manager.size() + hosts.b.manager.size(), 0u);
}

TEST(IbConnection, FindsAListenerThatComesAMomentLater) {
  Hosts hosts;
  hosts.b.manager.stop_listening(hosts.listener, hosts.now);
  hosts.pass(EndedServices::kWait);  // so long that nothing waits there
  [[maybe_unused]] const auto id = hosts.a.manager.connect(Hosts::params(), hosts.now);
  hosts.settle();
  hosts.pass(milliseconds(10));
  hosts.b.manager.listen(test::kService, {}, 8);
  hosts.pass(milliseconds(41));
  hosts.b.take(EventKind::kRequest);
}

TEST(IbConnection, HearsFromItsOwnHostThatNobodyListens) {
  Hosts hosts;
  const auto id = hosts.a.manager.connect(Hosts::params(), hosts.now);
  for (int refusal = 0; refusal < 4; ++refusal) {
    EXPECT_TRUE(hosts.a.quiet());
    EXPECT_GE(hosts.lose(hosts.a), 1u);
    hosts.a.manager.on_refused(*id, hosts.now);
    hosts.now += milliseconds(150);
    hosts.a.manager.on_deadline(hosts.now);
  }
  EXPECT_EQ(in<wire::CmRej>(hosts.a.take(EventKind::kRejected)).reason,
            CmRejectReason::kInvalidServiceId);
}

TEST(IbConnection, TriesAgainWhereTheOldConnectionStands) {
  Hosts hosts;
  hosts.active = *hosts.a.manager.connect(Hosts::params(), hosts.now);
  const auto req = hosts.taken(hosts.a);
  const auto refuse = [&] {
    OutMad out{.bytes = {}, .destination = test::path_between(2, 1), .id = {}};
    const wire::CmRej rej{
        {}, hosts.active, wire::CmAnswered::kReq, CmRejectReason::kStaleConnection, {}, {}};
    EXPECT_TRUE(wire::emit_cm(out.bytes, {1, rej}));
    hosts.arrive(hosts.a, out);
  };
  refuse();
  EXPECT_TRUE(hosts.a.quiet());
  hosts.pass(milliseconds(50));
  hosts.b.take(EventKind::kRequest);
  for (int again = 0; again < 7; ++again) refuse();
  EXPECT_EQ(in<wire::CmRej>(hosts.a.take(EventKind::kRejected)).reason,
            CmRejectReason::kStaleConnection);
}

TEST(IbConnection, EndsARequestWhoseSenderGaveUp) {
  Hosts hosts;
  hosts.ask();
  hosts.a.manager.release(hosts.active, hosts.now);
  hosts.settle();
  hosts.b.take(EventKind::kRequestLost);
  EXPECT_EQ(hosts.b.manager.size(), 0u);
  EXPECT_FALSE(hosts.b.manager.accept(hosts.passive, Hosts::answer(), hosts.now));
}

TEST(IbConnection, GivesUpARequestByThePeersNameForIt) {
  Hosts hosts;
  hosts.ask();
  hosts.pass(milliseconds(50));  // asked again, and told to wait
  hosts.a.manager.release(hosts.active, hosts.now);
  const auto mads = hosts.taken(hosts.a);
  ASSERT_EQ(mads.size(), 1u);
  EXPECT_EQ(in<wire::CmRej>(mads[0]).remote_id, hosts.passive);
  hosts.arrive(hosts.b, mads[0]);
  hosts.b.take(EventKind::kRequestLost);
}

TEST(IbConnection, LearnsFromTrafficThatItIsUp) {
  Hosts hosts;
  hosts.ask_and_accept();
  EXPECT_TRUE(hosts.b.manager.traffic_seen(hosts.passive));
  hosts.b.take(EventKind::kEstablished);
  EXPECT_FALSE(hosts.b.manager.traffic_seen(hosts.passive));
}

TEST(IbConnection, LearnsFromADisconnectThatItWasUp) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.deliver(hosts.b, hosts.a);
  hosts.a.take(EventKind::kReply);
  EXPECT_TRUE(hosts.a.manager.ready(hosts.active, {}));
  hosts.lose(hosts.a);
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.settle();
  hosts.b.take(EventKind::kEstablished);
  hosts.b.take(EventKind::kDisconnected);
}

TEST(IbConnection, RepeatsALostDisconnect) {
  Hosts hosts;
  hosts.establish();
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  hosts.lose(hosts.b);
  hosts.pass(milliseconds(50));
  hosts.a.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.settle();
  hosts.b.take(EventKind::kDisconnected);
}

// Its program may have work under way; the peer asks again, and does not wait for ever.
TEST(IbConnection, ADisconnectWaitsForTheProgram) {
  Hosts hosts;
  hosts.establish();
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.pass(seconds(4));
  hosts.b.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.a.quiet() && hosts.b.quiet());
  EXPECT_EQ(hosts.state(hosts.b, hosts.passive), State::kDreqReceived);
  hosts.pass(seconds(5));
  hosts.a.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  EXPECT_EQ(hosts.state(hosts.b, hosts.passive), State::kTimewait);
  EXPECT_FALSE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
}

TEST(IbConnection, AnswersARepeatedDisconnect) {
  Hosts hosts;
  hosts.establish();
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.deliver(hosts.a, hosts.b);
  hosts.b.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  hosts.lose(hosts.b);
  hosts.pass(milliseconds(50));
  hosts.a.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.b.quiet());
}

TEST(IbConnection, BothMayDisconnectAtOnce) {
  Hosts hosts;
  hosts.establish();
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  hosts.settle();
  hosts.a.take(EventKind::kDisconnected);
  hosts.b.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.a.quiet() && hosts.b.quiet());
}

TEST(IbConnection, AProcessThatIsGoneIsAsIfItHadDisconnected) {
  Hosts hosts;
  hosts.establish();
  const auto remote = hosts.b.manager.find(hosts.passive)->remote_id();
  const auto peers = hosts.b.manager.peers_of(remote.value() >> 20);
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].first, hosts.passive);
  EXPECT_TRUE(hosts.b.manager.peers_of((remote.value() >> 20) + 1).empty());
  hosts.b.manager.on_peer_gone(hosts.passive, hosts.now);
  hosts.b.take(EventKind::kDisconnected);
  hosts.b.manager.on_peer_gone(hosts.passive, hosts.now);
  EXPECT_TRUE(hosts.b.quiet());
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  EXPECT_EQ(hosts.state(hosts.b, hosts.passive), State::kTimewait);
}

TEST(IbConnection, ADisconnectThatNobodyCanAnswerIsOver) {
  Hosts hosts;
  hosts.establish();
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.lose(hosts.a);
  hosts.a.manager.on_peer_gone(hosts.active, hosts.now);
  hosts.a.take(EventKind::kDisconnected);
  EXPECT_EQ(hosts.state(hosts.a, hosts.active), State::kTimewait);
}

TEST(IbConnection, DisconnectsFromAPeerThatIsGone) {
  Hosts hosts;
  hosts.establish();
  EXPECT_TRUE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  hosts.lose(hosts.a);
  hosts.pass_in_silence(milliseconds(7900));
  EXPECT_TRUE(hosts.a.quiet());
  hosts.pass_in_silence(milliseconds(200));
  hosts.a.take(EventKind::kDisconnected);
}

TEST(IbConnection, ADreqForSomeoneElsesQueuePairIsIgnored) {
  Hosts hosts;
  hosts.establish();
  OutMad out{.bytes = {}, .destination = test::path_between(2, 1), .id = {}};
  const wire::CmDreq dreq{hosts.passive, hosts.active, Qpn{0x12}, {}};
  ASSERT_TRUE(wire::emit_cm(out.bytes, {1, dreq}));
  hosts.arrive(hosts.a, out);
  EXPECT_TRUE(hosts.a.quiet());
  EXPECT_EQ(hosts.state(hosts.a, hosts.active), State::kEstablished);
}

TEST(IbConnection, ARefusalEndsWhatWasEstablished) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.deliver(hosts.b, hosts.a);
  hosts.a.take(EventKind::kReply);
  EXPECT_TRUE(hosts.a.manager.ready(hosts.active, {}));
  hosts.b.manager.release(hosts.passive, hosts.now);
  hosts.settle();
  hosts.a.take(EventKind::kDisconnected);
  EXPECT_TRUE(hosts.b.quiet());
}

TEST(IbConnection, DisconnectBeforeTheReadyToUseIsARefusal) {
  Hosts hosts;
  hosts.ask_and_accept();
  hosts.lose(hosts.b);
  EXPECT_TRUE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  hosts.b.take(EventKind::kDisconnected);
  hosts.settle();
  hosts.a.take(EventKind::kRejected);
}

TEST(IbConnection, ReleaseTellsThePeerInEveryState) {
  const auto log_of = [](auto prepare, bool passive) {
    Hosts hosts;
    prepare(hosts);
    hosts.log.clear();
    Hosts* all = &hosts;
    (passive ? all->b : all->a).manager.release(passive ? all->passive : all->active, all->now);
    hosts.settle();
    // The other end, if it still has a connection.
    (passive ? all->a : all->b)
        .manager.disconnect(passive ? all->active : all->passive, {}, all->now);
    hosts.settle();
    hosts.pass(seconds(20));
    EXPECT_EQ(hosts.a.manager.size() + hosts.b.manager.size(), 0u);
    EXPECT_TRUE((passive ? all->b : all->a).quiet());
    return hosts.log;
  };
  const auto ask = [](Hosts& hosts) { hosts.ask(); };
  const auto accepted = [](Hosts& hosts) {
    hosts.ask_and_accept();
    hosts.lose(hosts.b);
  };
  const auto replied = [](Hosts& hosts) {
    hosts.ask_and_accept();
    hosts.deliver(hosts.b, hosts.a);
    hosts.a.take(EventKind::kReply);
  };
  const auto up = [](Hosts& hosts) { hosts.establish(); };
  EXPECT_EQ(log_of(ask, false), (Log{"REJ"}));
  EXPECT_EQ(log_of(ask, true), (Log{"REJ"}));
  EXPECT_EQ(log_of(accepted, true), (Log{"REJ"}));
  EXPECT_EQ(log_of(replied, false), (Log{"REJ"}));
  EXPECT_EQ(log_of(up, false), (Log{"DREQ", "DREP"}));
  EXPECT_EQ(log_of(up, true), (Log{"DREQ", "DREP"}));
}

TEST(IbConnection, CallsOfAnotherStateAreRefused) {
  Hosts hosts;
  hosts.ask();
  EXPECT_FALSE(hosts.a.manager.ready(hosts.active, {}));
  EXPECT_FALSE(hosts.a.manager.accept(hosts.active, Hosts::answer(), hosts.now));
  EXPECT_FALSE(hosts.a.manager.disconnect(hosts.active, {}, hosts.now));
  EXPECT_FALSE(hosts.b.manager.ready(hosts.passive, {}));
  EXPECT_FALSE(hosts.b.manager.disconnect(hosts.passive, {}, hosts.now));
  EXPECT_TRUE(hosts.b.manager.accept(hosts.passive, Hosts::answer(), hosts.now));
  EXPECT_FALSE(hosts.b.manager.accept(hosts.passive, Hosts::answer(), hosts.now));
  EXPECT_FALSE(hosts.b.manager.reject(hosts.passive, CmRejectReason::kConsumer, {}, {}, hosts.now));
  EXPECT_FALSE(hosts.a.manager.ready(CommunicationId{1}, {}));
  hosts.a.manager.release(CommunicationId{1}, hosts.now);
  hosts.a.manager.on_refused(CommunicationId{1}, hosts.now);
}

}  // namespace
}  // namespace airdma::ibcm
