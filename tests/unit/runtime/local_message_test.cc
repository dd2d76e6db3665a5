// SPDX-License-Identifier: MIT
#include "runtime/local_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace airdma::runtime {
namespace {

std::vector<std::byte> message(const std::vector<std::size_t>& lengths, bool strayed = false) {
  rocev2::PacketOrigin origin{.source = model::Gid::from_v4({10, 0, 0, 1}),
                              .destination = model::Gid::from_v4({10, 0, 0, 2}),
                              .traffic_class = 3,
                              .hop_limit = 4,
                              .flow_label = 5};
  LocalMessageHeader header(origin, strayed);
  std::size_t total = 0;
  for (const std::size_t length : lengths) {
    header.add(length);
    total += length;
  }
  std::vector<std::byte> bytes(header.bytes() + total);
  std::memcpy(bytes.data(), &header, header.bytes());
  for (std::size_t i = 0; i < total; ++i) bytes[header.bytes() + i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(LocalMessage, ReadsWhatWasWritten) {
  const auto bytes = message({12, 0, 300}, true);
  const auto read = LocalMessage::read(bytes);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->count, 3u);
  EXPECT_EQ(read->packets[0].size(), 12u);
  EXPECT_EQ(read->packets[2].size(), 300u);
  EXPECT_EQ(read->packets[2][0], std::byte{12});
  EXPECT_EQ(read->origin.source, model::Gid::from_v4({10, 0, 0, 1}));
  EXPECT_EQ(read->origin.destination, model::Gid::from_v4({10, 0, 0, 2}));
  EXPECT_EQ(read->origin.traffic_class, 3);
  EXPECT_EQ(read->origin.hop_limit, 4);
  EXPECT_EQ(read->origin.flow_label, 5u);
  EXPECT_TRUE(read->strayed);
}

TEST(LocalMessage, RefusesWhatDoesNotAddUp) {
  const auto whole = message({100, 200});
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(LocalMessage::read(Bytes(whole).first(bytes))) << bytes;
  }
  auto longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(LocalMessage::read(longer));
  auto other = whole;
  other[0] ^= std::byte{1};
  EXPECT_FALSE(LocalMessage::read(other)) << "another version";
  auto many = whole;
  many[4] = std::byte{65};
  EXPECT_FALSE(LocalMessage::read(many));
}

TEST(LocalMessage, SurvivesAnything) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    auto bytes = message({20, 40, 60});
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (const auto read = LocalMessage::read(bytes)) {
      for (std::size_t i = 0; i < read->count; ++i) {
        const auto& packet = read->packets[i];
        EXPECT_GE(packet.data(), bytes.data());
        EXPECT_LE(packet.data() + packet.size(), bytes.data() + bytes.size());
      }
    }
  }
}

}  // namespace
}  // namespace airdma::runtime
