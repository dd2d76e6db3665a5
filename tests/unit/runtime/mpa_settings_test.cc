// SPDX-License-Identifier: MIT
// The user's choices, and how long FPDUs become.
#include "runtime/mpa_settings.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "runtime/stream_setup.h"

namespace airdma::runtime {
namespace {

std::map<std::string, std::string> environment;

MpaSettings settings_of(std::map<std::string, std::string> variables) {
  environment = std::move(variables);
  return read_mpa_settings([](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found != environment.end() ? found->second.c_str() : nullptr;
  });
}

TEST(MpaSettings, DefaultsWithoutVariables) {
  for (const MpaSettings& settings :
       {settings_of({}), settings_of({{"AIRDMA_MPA_CRC", ""}, {"AIRDMA_MPA_MAX_FPDU", ""}})}) {
    EXPECT_EQ(settings.crc, mpa::CrcPolicy::kPrefer);
    EXPECT_EQ(settings.fpdu.kind, FpduLimit::Kind::kAutomatic);
    EXPECT_FALSE(settings.markers);
    EXPECT_FALSE(settings.rtr);
    EXPECT_EQ(settings.revision, 2);
  }
}

TEST(MpaSettings, EveryWord) {
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_CRC", "on"}}).crc, mpa::CrcPolicy::kPrefer);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_CRC", "off"}}).crc, mpa::CrcPolicy::kOff);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_CRC", "require"}}).crc, mpa::CrcPolicy::kRequire);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_CRC", "refuse"}}).crc, mpa::CrcPolicy::kRefuse);
  EXPECT_TRUE(settings_of({{"AIRDMA_MPA_MARKERS", "on"}}).markers);
  EXPECT_FALSE(settings_of({{"AIRDMA_MPA_MARKERS", "off"}}).markers);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_RTR", "write"}}).rtr, mpa::Rtr::kWrite);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_RTR", "read"}}).rtr, mpa::Rtr::kRead);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_RTR", "send"}}).rtr, mpa::Rtr::kSend);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_RTR", "none"}}).rtr, mpa::Rtr::kNone);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_REVISION", "1"}}).revision, 1);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_REVISION", "2"}}).revision, 2);
  EXPECT_EQ(settings_of({{"AIRDMA_MPA_MAX_FPDU", "mss"}}).fpdu.kind, FpduLimit::Kind::kSegment);
}

TEST(MpaSettings, WhatIsNoValueCountsAsUnset) {
  for (const char* word : {"ON", "1", "yes", "off ", "0x10"}) {
    EXPECT_EQ(settings_of({{"AIRDMA_MPA_CRC", word}}).crc, mpa::CrcPolicy::kPrefer) << word;
    EXPECT_FALSE(settings_of({{"AIRDMA_MPA_MARKERS", word}}).markers) << word;
    EXPECT_FALSE(settings_of({{"AIRDMA_MPA_RTR", word}}).rtr) << word;
  }
  for (const char* word : {"0", "3", "11", "-1"}) {
    EXPECT_EQ(settings_of({{"AIRDMA_MPA_REVISION", word}}).revision, 2) << word;
  }
  for (const char* word :
       {"0", "135", "65537", "-1448", "1448 ", "1k", "MSS", "99999999999999999999"}) {
    EXPECT_EQ(settings_of({{"AIRDMA_MPA_MAX_FPDU", word}}).fpdu.kind, FpduLimit::Kind::kAutomatic)
        << word;
  }
}

TEST(MpaSettings, FpduBytesAreTakenFromTheLeastToTheMost) {
  for (const std::size_t bytes : {std::size_t{136}, std::size_t{1448}, std::size_t{65536}}) {
    const auto limit = settings_of({{"AIRDMA_MPA_MAX_FPDU", std::to_string(bytes)}}).fpdu;
    EXPECT_EQ(limit.kind, FpduLimit::Kind::kBytes);
    EXPECT_EQ(limit.bytes, bytes);
  }
}

TEST(MpaSettings, ReachTheOffer) {
  mpa::Offer offer;
  settings_of({{"AIRDMA_MPA_CRC", "off"},
               {"AIRDMA_MPA_MARKERS", "on"},
               {"AIRDMA_MPA_RTR", "read"},
               {"AIRDMA_MPA_REVISION", "1"}})
      .apply(offer);
  EXPECT_EQ(offer.crc, mpa::CrcPolicy::kOff);
  EXPECT_TRUE(offer.markers);
  EXPECT_EQ(offer.rtr, mpa::Rtr::kRead);
  EXPECT_EQ(offer.revision, 1);
  EXPECT_TRUE(offer.large_fpdus);
}

constexpr std::size_t kLarge = 64512 + 18;

TEST(FpduLength, IsOneSegmentForAPeerThatSaysNothing) {
  EXPECT_EQ(max_ulpdu({.segment_bytes = 1448}, {}), 1442u);
  EXPECT_EQ(max_ulpdu({.segment_bytes = 1447}, {}), 1438u);
  EXPECT_EQ(max_ulpdu({.segment_bytes = 8948}, {}), 8942u);
  // Three markers in a segment of 1448 bytes.
  EXPECT_EQ(max_ulpdu({.markers = true, .segment_bytes = 1448}, {}), 1430u);
  EXPECT_EQ(max_ulpdu({.segment_bytes = 0}, {}), 128u);
}

TEST(FpduLength, IsLargeWithinAHostAndForAPeerThatLikesIt) {
  EXPECT_EQ(max_ulpdu({.within_host = true, .segment_bytes = 32741}, {}), kLarge);
  EXPECT_EQ(max_ulpdu({.peer_takes_large = true, .segment_bytes = 1448}, {}), kLarge);
  EXPECT_EQ(max_ulpdu({.peer_takes_large = true, .markers = true, .segment_bytes = 1448}, {}),
            kLarge);
}

TEST(FpduLength, IsWhatTheUserSays) {
  const FpduRoom anything[] = {{.within_host = true, .segment_bytes = 1448},
                               {.peer_takes_large = true, .segment_bytes = 1448},
                               {.segment_bytes = 1448}};
  for (const FpduRoom& room : anything) {
    EXPECT_EQ(max_ulpdu(room, {FpduLimit::Kind::kSegment, 0}), 1442u);
    EXPECT_EQ(max_ulpdu(room, {FpduLimit::Kind::kBytes, 1024}), 1018u);
    EXPECT_EQ(max_ulpdu(room, {FpduLimit::Kind::kBytes, kLeastFpduBytes}), 130u);
    EXPECT_EQ(max_ulpdu(room, {FpduLimit::Kind::kBytes, kMostFpduBytes}), kLarge);
  }
}

}  // namespace
}  // namespace airdma::runtime
