// SPDX-License-Identifier: MIT
// MPA setup against the frames that the kernel's siw put on a wire (names of the captures in the
// comments), and its answers to peers that do not behave.
#include "engine/cm/mpa_connection.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace airdma::mpa {
namespace {

constexpr std::string_view kRequestKey = "4d504120494420526571204672616d65";
constexpr std::string_view kReplyKey = "4d504120494420526570204672616d65";

std::vector<std::byte> unhex(std::string_view text) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return out;
}
std::vector<std::byte> request(std::string_view rest) {
  return unhex(std::string(kRequestKey) + std::string(rest));
}
std::vector<std::byte> reply(std::string_view rest) {
  return unhex(std::string(kReplyKey) + std::string(rest));
}
std::vector<std::byte> data(std::size_t count) {
  return std::vector<std::byte>(count, std::byte{0x5a});
}
bool same(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

Offer siw(std::uint16_t depth) {
  return {.crc = CrcPolicy::kOff, .peer_to_peer = false, .ird = depth, .ord = depth};
}

/// One connection of a capture, as the side with `initiator`/`responder` policies would decide.
struct Exchange {
  const char* capture;
  Offer initiator;
  Offer responder;
  std::string_view request;  // after the key
  std::string_view reply;
  SetupState initiator_ends = SetupState::kEstablished;
  SetupState responder_ends = SetupState::kEstablished;
  bool crc = false;
  Rtr rtr = Rtr::kNone;
};

Offer with(Offer offer, CrcPolicy crc) {
  offer.crc = crc;
  return offer;
}
Offer peer_to_peer(Offer offer) {
  offer.peer_to_peer = true;
  return offer;
}
Offer revision1(Offer offer) {
  offer.revision = 1;
  return offer;
}

const Exchange kExchanges[] = {
    {"siw-rping-v4", siw(1), siw(1), "1002000400010001", "1002000400010001"},
    {"siw-write-100", siw(0), siw(0), "1002000400000000", "1002000400000000"},
    {"siw-read-100", siw(128), siw(128), "1002000400800080", "1002000400800080"},
    {"siw-crc-rping-v4", with(siw(1), CrcPolicy::kRequire), with(siw(1), CrcPolicy::kRequire),
     "5002000400010001", "5002000400010001", SetupState::kEstablished, SetupState::kEstablished,
     true},
    {"siw-crc-client-only", with(siw(1), CrcPolicy::kPrefer), siw(1), "5002000400010001",
     "5002000400010001", SetupState::kEstablished, SetupState::kEstablished, true},
    {"siw-crc-server-only", siw(1), with(siw(1), CrcPolicy::kPrefer), "1002000400010001",
     "1002000400010001"},
    {"siw-crc-strict-reject", with(siw(1), CrcPolicy::kRequire), with(siw(1), CrcPolicy::kRefuse),
     "5002000400010001", "3002000400000000", SetupState::kRejected, SetupState::kFailed},
    {"siw-mpa1-client", revision1(siw(1)), siw(1), "00010000", "00010000"},
    {"siw-p2p-rtr", peer_to_peer(siw(1)), siw(1), "100200048001c001", "1002000480018001",
     SetupState::kEstablished, SetupState::kEstablished, false, Rtr::kWrite},
};

class Captured : public testing::TestWithParam<Exchange> {};

TEST_P(Captured, InitiatorSendsTheSameRequestAndDecidesTheSame) {
  const Exchange& exchange = GetParam();
  Initiator initiator(exchange.initiator, {});
  EXPECT_EQ(initiator.take_transmit(), request(exchange.request));
  EXPECT_TRUE(initiator.take_transmit().empty());
  const auto answer = reply(exchange.reply);
  EXPECT_EQ(initiator.on_bytes(answer), answer.size());
  EXPECT_EQ(initiator.state(), exchange.initiator_ends);
  if (exchange.initiator_ends != SetupState::kEstablished) return;
  EXPECT_EQ(initiator.agreement().crc, exchange.crc);
  EXPECT_EQ(initiator.agreement().rtr, exchange.rtr);
}

TEST_P(Captured, ResponderSendsTheSameReplyAndDecidesTheSame) {
  const Exchange& exchange = GetParam();
  Responder responder;
  const auto asked = request(exchange.request);
  EXPECT_EQ(responder.on_bytes(asked), asked.size());
  ASSERT_EQ(responder.state(), SetupState::kRequested);
  responder.accept(exchange.responder, {});
  EXPECT_EQ(responder.take_transmit(), reply(exchange.reply));
  EXPECT_EQ(responder.state(), exchange.responder_ends);
  if (exchange.responder_ends != SetupState::kEstablished) return;
  EXPECT_EQ(responder.agreement().crc, exchange.crc);
  EXPECT_EQ(responder.agreement().rtr, exchange.rtr);
}

INSTANTIATE_TEST_SUITE_P(Siw, Captured, testing::ValuesIn(kExchanges), [](const auto& param) {
  std::string name;
  for (const char* c = param.param.capture; *c != '\0'; ++c) name += *c == '-' ? '_' : *c;
  return name;
});

// siw-privdata: 40 bytes each way, READs in one direction only.
TEST(MpaConnection, CarriesPrivateDataAndOneWayDepths) {
  const auto pd_request = data(40);
  Initiator initiator({.crc = CrcPolicy::kOff, .peer_to_peer = false, .ird = 0, .ord = 1},
                      pd_request);
  Responder responder;
  const auto sent = initiator.take_transmit();
  EXPECT_TRUE(same(Bytes(sent).first(24), request("1002002c00000001")));
  EXPECT_EQ(responder.on_bytes(sent), sent.size());
  EXPECT_EQ(responder.request().ird, 0);
  EXPECT_EQ(responder.request().ord, 1);
  EXPECT_EQ(responder.request().private_data, pd_request);
  const auto pd_reply = data(40);
  responder.accept({.ird = 1, .ord = 1}, pd_reply);
  const auto answer = responder.take_transmit();
  EXPECT_TRUE(same(Bytes(answer).first(24), reply("1002002c00010000")));
  initiator.on_bytes(answer);
  EXPECT_EQ(initiator.state(), SetupState::kEstablished);
  EXPECT_TRUE(same(initiator.private_data(), pd_reply));
  EXPECT_EQ(initiator.agreement().ord, 1);
  EXPECT_EQ(initiator.agreement().ird, 0);
  EXPECT_EQ(responder.agreement().ord, 0);
  EXPECT_EQ(responder.agreement().ird, 1);
}

TEST(MpaConnection, WorksWithEveryCutAndLeavesWhatFollows) {
  const auto pd = data(255);
  Initiator sender({}, pd);
  auto stream = sender.take_transmit();
  const std::size_t frame_bytes = stream.size();
  stream.push_back(std::byte{0x77});
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    Responder responder;
    std::size_t used = responder.on_bytes(Bytes(stream).first(cut));
    used += responder.on_bytes(Bytes(stream).subspan(cut));
    EXPECT_EQ(used, frame_bytes) << cut;
    ASSERT_EQ(responder.state(), SetupState::kRequested) << cut;
    EXPECT_EQ(responder.request().private_data, pd) << cut;
  }
}

TEST(MpaConnection, WorksByteByByte) {
  Initiator initiator({.ird = 4, .ord = 4}, {});
  Responder responder;
  for (std::byte byte : initiator.take_transmit()) EXPECT_EQ(responder.on_bytes({&byte, 1}), 1u);
  ASSERT_EQ(responder.state(), SetupState::kRequested);
  responder.accept({.ird = 4, .ord = 4}, {});
  for (std::byte byte : responder.take_transmit()) EXPECT_EQ(initiator.on_bytes({&byte, 1}), 1u);
  EXPECT_EQ(initiator.state(), SetupState::kEstablished);
  std::byte next{};
  EXPECT_EQ(initiator.on_bytes({&next, 1}), 0u);
}

TEST(MpaConnection, TakesTheLongestPrivateDataOnTheWireAndNoMore) {
  Responder longest;
  auto stream = request("00010200");
  const auto pd = data(512);
  stream.insert(stream.end(), pd.begin(), pd.end());
  EXPECT_EQ(longest.on_bytes(stream), stream.size());
  EXPECT_EQ(longest.request().private_data, pd);
  Responder longer;
  longer.on_bytes(request("00010201"));
  EXPECT_EQ(longer.state(), SetupState::kFailed);
  EXPECT_EQ(longer.error(), SetupError::kBadLength);
}

TEST(MpaConnection, FailsOnWhatIsNoRequest) {
  const struct {
    std::vector<std::byte> bytes;
    SetupError error;
  } cases[] = {
      {unhex("474554202f"), SetupError::kBadKey},
      {reply("1002000400010001"), SetupError::kBadKey},
      {request("00000000"), SetupError::kBadRevision},
      {request("00030000"), SetupError::kBadRevision},
      {request("10020003000000"), SetupError::kBadLength},
      {request("2001000000"), SetupError::kBadFlags},
  };
  for (const auto& one : cases) {
    Responder responder;
    responder.on_bytes(one.bytes);
    EXPECT_EQ(responder.state(), SetupState::kFailed);
    EXPECT_EQ(responder.error(), one.error);
    EXPECT_EQ(responder.on_bytes(one.bytes), 0u);
    responder.accept({}, {});
    responder.reject({});
    EXPECT_TRUE(responder.take_transmit().empty());
  }
}

SetupError initiator_error(const Offer& offer, std::string_view rest) {
  Initiator initiator(offer, {});
  initiator.on_bytes(reply(rest));
  return initiator.state() == SetupState::kFailed ? initiator.error() : SetupError::kNone;
}

TEST(MpaConnection, FailsOnRepliesThatMakeNoSense) {
  EXPECT_EQ(initiator_error(siw(1), "00010000"), SetupError::kBadRevision);
  EXPECT_EQ(initiator_error(revision1(siw(1)), "1002000400010001"), SetupError::kBadRevision);
  EXPECT_EQ(initiator_error(with(siw(1), CrcPolicy::kRefuse), "5002000400010001"),
            SetupError::kCrcMismatch);
  EXPECT_EQ(initiator_error(siw(1), "10020004000100ff"), SetupError::kNoResources);
  // A set, but B: a frame that was not offered.
  EXPECT_EQ(initiator_error(peer_to_peer(siw(1)), "10020004c0010001"), SetupError::kNoMatchingRtr);
  Initiator initiator({}, {});
  initiator.on_bytes(request("10020004"));
  EXPECT_EQ(initiator.error(), SetupError::kBadKey);
}

TEST(MpaConnection, NoRtrWhenTheResponderDoesNotSayPeerToPeer) {
  Initiator initiator(peer_to_peer(siw(1)), {});
  initiator.on_bytes(reply("1002000400010001"));
  EXPECT_EQ(initiator.state(), SetupState::kEstablished);
  EXPECT_EQ(initiator.agreement().rtr, Rtr::kNone);
}

TEST(MpaConnection, ResponderTakesTheRtrThatIsOffered) {
  const struct {
    const char* request;
    const char* reply;
    Rtr rtr;
  } cases[] = {
      {"1002000480014001", "1002000480014001", Rtr::kRead},
      {"10020004c0010001", "10020004c0010001", Rtr::kSend},
      {"10020004c001c001", "1002000480018001", Rtr::kWrite},
      {"1002000480010001", "1002000400010001", Rtr::kNone},  // A alone offers nothing
  };
  for (const auto& one : cases) {
    Responder responder;
    responder.on_bytes(request(one.request));
    responder.accept(siw(1), {});
    EXPECT_EQ(responder.take_transmit(), reply(one.reply));
    EXPECT_EQ(responder.agreement().rtr, one.rtr);
  }
}

TEST(MpaConnection, DepthsAreBoundedByThePeer) {
  Responder responder;
  responder.on_bytes(request("1002000400020003"));  // ird 2, ord 3
  responder.accept({.ird = 1, .ord = 9, .max_ird = 16}, {});
  EXPECT_EQ(responder.agreement().ord, 2);
  EXPECT_EQ(responder.agreement().ird, 3);
  Responder poor;
  poor.on_bytes(request("1002000400020030"));
  poor.accept({.ird = 1, .ord = 9, .max_ird = 16}, {});
  EXPECT_EQ(poor.agreement().ird, 16);
  Initiator initiator({.peer_to_peer = false, .ird = 2, .ord = 48}, {});
  initiator.on_bytes(poor.take_transmit());
  EXPECT_EQ(initiator.agreement().ord, 16);
  EXPECT_EQ(initiator.agreement().ird, 2);
}

TEST(MpaConnection, DepthsLeftOutOfTheNegotiationStayAsTheyAre) {
  Responder responder;
  responder.on_bytes(request("100200043fff3fff"));
  responder.accept({.ird = 5, .ord = 6}, {});
  EXPECT_EQ(responder.agreement().ird, 5);
  EXPECT_EQ(responder.agreement().ord, 6);
  Initiator initiator({.ird = 7, .ord = 8}, {});
  initiator.on_bytes(reply("100200043fff3fff"));
  EXPECT_EQ(initiator.agreement().ird, 7);
  EXPECT_EQ(initiator.agreement().ord, 8);
}

TEST(MpaConnection, RejectionCarriesPrivateData) {
  Initiator initiator({}, {});
  Responder responder;
  responder.on_bytes(initiator.take_transmit());
  const auto why = data(3);
  responder.reject(why);
  EXPECT_EQ(responder.state(), SetupState::kRejected);
  initiator.on_bytes(responder.take_transmit());
  EXPECT_EQ(initiator.state(), SetupState::kRejected);
  EXPECT_TRUE(same(initiator.private_data(), why));
}

TEST(MpaConnection, RejectionInAnOlderRevisionIsARejection) {
  Initiator initiator({}, {});
  initiator.on_bytes(reply("20010000"));
  EXPECT_EQ(initiator.state(), SetupState::kRejected);
}

TEST(MpaConnection, RevisionOneLeavesReadsUnlimitedByWords) {
  Initiator initiator(revision1(siw(1)), {});
  initiator.on_bytes(reply("00010000"));
  EXPECT_EQ(initiator.agreement().ird, Offer{}.max_ird);
  Responder responder;
  responder.on_bytes(request("00010000"));
  responder.accept(siw(1), {});
  EXPECT_EQ(responder.agreement().ird, Offer{}.max_ird);
}

TEST(MpaConnection, CrcIsOnWhenEitherSideAsks) {
  // Who asked itself keeps its CRCs although the reply does not repeat it.
  Initiator asks(with(siw(1), CrcPolicy::kPrefer), {});
  asks.on_bytes(reply("1002000400010001"));
  EXPECT_TRUE(asks.agreement().crc);
  Initiator follows(siw(1), {});
  follows.on_bytes(reply("5002000400010001"));
  EXPECT_TRUE(follows.agreement().crc);
  Responder requires_crc;
  requires_crc.on_bytes(request("1002000400010001"));
  requires_crc.accept(with(siw(1), CrcPolicy::kRequire), {});
  EXPECT_TRUE(requires_crc.agreement().crc);
  EXPECT_EQ(requires_crc.take_transmit(), reply("5002000400010001"));
}

TEST(MpaConnection, NotesMarkersAndIgnoresReservedBits) {
  Responder responder;
  responder.on_bytes(request("9802000400010001"));
  EXPECT_TRUE(responder.request().markers);
  responder.accept(siw(1), {});
  EXPECT_TRUE(responder.agreement().send_markers);
  EXPECT_EQ(responder.take_transmit(), reply("1002000400010001"));
}

/// Runs both sides against each other, without private data.
struct Both {
  Both(const Offer& active, const Offer& passive) : initiator(active, {}) {
    const auto asked = initiator.take_transmit();
    EXPECT_EQ(responder.on_bytes(asked), asked.size());
    responder.accept(passive, {});
    const auto answer = responder.take_transmit();
    EXPECT_EQ(initiator.on_bytes(answer), answer.size());
  }
  Initiator initiator;
  Responder responder;
};

TEST(MpaConnection, EachSideDemandsItsOwnMarkers) {
  for (const bool active : {false, true}) {
    for (const bool passive : {false, true}) {
      const Both both({.markers = active}, {.markers = passive});
      EXPECT_EQ(both.initiator.agreement().receive_markers, active);
      EXPECT_EQ(both.responder.agreement().send_markers, active);
      EXPECT_EQ(both.responder.agreement().receive_markers, passive);
      EXPECT_EQ(both.initiator.agreement().send_markers, passive);
    }
  }
}

TEST(MpaConnection, LargeFpdusAreWelcomedPerSide) {
  for (const bool active : {false, true}) {
    for (const bool passive : {false, true}) {
      const Both both({.large_fpdus = active}, {.large_fpdus = passive});
      EXPECT_EQ(both.responder.agreement().large_fpdus, active);
      EXPECT_EQ(both.initiator.agreement().large_fpdus, passive);
    }
  }
  Initiator initiator({.crc = CrcPolicy::kOff, .peer_to_peer = false, .large_fpdus = true}, {});
  EXPECT_EQ(initiator.take_transmit(), request("1802000400000000"));
}

// A peer that answers with the flags of the request, as kernel siw does, has not said so.
TEST(MpaConnection, OnlyAReplySaysThatNothingBehindItIsMissed) {
  const Both both({.large_fpdus = true, .reads_from_the_start = true},
                  {.large_fpdus = true, .reads_from_the_start = true});
  EXPECT_TRUE(both.initiator.agreement().reads_from_the_start);
  const Both echo({.large_fpdus = true, .reads_from_the_start = true}, {.large_fpdus = true});
  EXPECT_TRUE(echo.initiator.agreement().large_fpdus);
  EXPECT_FALSE(echo.initiator.agreement().reads_from_the_start);
}

TEST(MpaConnection, RtrFollowsBothWishes) {
  const struct {
    std::optional<Rtr> active, passive;
    Rtr agreed;
  } cases[] = {
      {std::nullopt, std::nullopt, Rtr::kWrite}, {std::nullopt, Rtr::kRead, Rtr::kRead},
      {std::nullopt, Rtr::kSend, Rtr::kWrite},   {std::nullopt, Rtr::kNone, Rtr::kNone},
      {Rtr::kWrite, std::nullopt, Rtr::kWrite},  {Rtr::kRead, std::nullopt, Rtr::kRead},
      {Rtr::kSend, std::nullopt, Rtr::kSend},    {Rtr::kNone, std::nullopt, Rtr::kNone},
      {Rtr::kSend, Rtr::kWrite, Rtr::kSend},     {Rtr::kRead, Rtr::kWrite, Rtr::kRead},
      {Rtr::kRead, Rtr::kNone, Rtr::kNone},      {Rtr::kNone, Rtr::kRead, Rtr::kNone},
      {Rtr::kWrite, Rtr::kRead, Rtr::kWrite},
  };
  for (const auto& one : cases) {
    const Both both({.rtr = one.active}, {.rtr = one.passive});
    EXPECT_EQ(both.initiator.state(), SetupState::kEstablished);
    EXPECT_EQ(both.initiator.agreement().rtr, one.agreed);
    EXPECT_EQ(both.responder.agreement().rtr, one.agreed);
  }
}

TEST(MpaConnection, CrcPoliciesMeet) {
  using enum CrcPolicy;
  const struct {
    CrcPolicy active, passive;
    SetupState ends;  // at the initiator
    bool crc;
  } cases[] = {
      {kOff, kOff, SetupState::kEstablished, false},
      {kOff, kPrefer, SetupState::kEstablished, false},
      {kOff, kRequire, SetupState::kEstablished, true},
      {kOff, kRefuse, SetupState::kEstablished, false},
      {kPrefer, kOff, SetupState::kEstablished, true},
      {kPrefer, kPrefer, SetupState::kEstablished, true},
      {kPrefer, kRequire, SetupState::kEstablished, true},
      {kPrefer, kRefuse, SetupState::kRejected, false},
      {kRequire, kOff, SetupState::kEstablished, true},
      {kRequire, kRefuse, SetupState::kRejected, false},
      {kRefuse, kOff, SetupState::kEstablished, false},
      {kRefuse, kPrefer, SetupState::kEstablished, false},
      {kRefuse, kRequire, SetupState::kFailed, false},
      {kRefuse, kRefuse, SetupState::kEstablished, false},
  };
  for (const auto& one : cases) {
    const Both both({.crc = one.active}, {.crc = one.passive});
    EXPECT_EQ(both.initiator.state(), one.ends);
    if (one.ends != SetupState::kEstablished) continue;
    EXPECT_EQ(both.initiator.agreement().crc, one.crc);
    EXPECT_EQ(both.responder.agreement().crc, one.crc);
  }
}

}  // namespace
}  // namespace airdma::mpa
