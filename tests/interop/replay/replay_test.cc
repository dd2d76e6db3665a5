// SPDX-License-Identifier: MIT
// The replay must be able to fail: captures with one thing changed, cut short, or of no interest.
#include "tests/interop/replay/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/interop/replay/synthetic.h"

namespace airdma::interop {
namespace {

namespace fs = std::filesystem;
using wire::Opcode;

std::vector<Connection> connections_of(const std::string& name) {
  auto connections = read_connections(std::string(AIRDMA_CAPTURES) + "/" + name);
  EXPECT_TRUE(connections.has_value());
  return connections ? *connections : std::vector<Connection>{};
}

unsigned failures(const Connection& connection) {
  return replay_connections("test", {connection}).failed;
}
std::string text(const Connection& connection) {
  return replay_connections("test", {connection}).text;
}

ByteVector& stream_of(Connection& connection, Direction direction) {
  return direction == Direction::kFromClient ? connection.client_stream : connection.server_stream;
}

/// The connection with one byte of one direction changed.
Connection changed(const Connection& connection, Direction direction, std::uint64_t offset,
                   std::uint8_t flip) {
  Connection copy = connection;
  stream_of(copy, direction)[offset] ^= std::byte{flip};
  return copy;
}

/// The connection as a capture of its first `count` segments shows it.
Connection cut_short(const Connection& connection, std::size_t count) {
  Connection copy = connection;
  copy.segments.resize(count);
  rebuild_streams(copy);
  return copy;
}

// Changes.

TEST(Replay, FailsWhenAnyByteIsChangedUnderCrc) {
  const Connection original = connections_of("siw-crc-client-only.pcap").at(0);
  ASSERT_EQ(failures(original), 0u) << text(original);
  const Conversation conversation = read_conversation(original);
  for (const Role role : {Role::kInitiator, Role::kResponder}) {
    const Half& half = conversation.half(role);
    for (std::uint64_t at = half.mpa_bytes; at < half.raw.size(); ++at) {
      EXPECT_GT(failures(changed(original, half.direction, at, 0x10)), 0u)
          << name_of(role) << " byte " << at;
    }
  }
}

/// Whether a segment is its message's last: a WRITE may as well be two, and the last message of a
/// stream may be one that was broken off.
bool last_is_program_choice(const FpduStream& stream, const Fpdu& fpdu) {
  const auto lane = stream.lane(Lane::kRequest);
  const bool last = !lane.empty() && fpdu.end == lane.back()->end;
  return last || static_cast<Opcode>(fpdu.header.opcode) == Opcode::kWrite;
}

/// Bits that say what the program wanted, so that any value may be right.
bool is_program_choice(const Fpdu& fpdu, std::size_t at) {
  const auto opcode = static_cast<Opcode>(fpdu.header.opcode);
  if (at >= fpdu.header.bytes()) return true;                          // payload
  if (fpdu.header.tagged && at >= 2) return opcode == Opcode::kWrite;  // STag, tagged offset
  return false;
}

// Without CRCs nothing but the rules of DDP and RDMAP can tell.
TEST(Replay, FailsWhenAHeaderIsChanged) {
  const Connection original = connections_of("siw-rping-v4-S4001.pcap").at(0);
  const Conversation conversation = read_conversation(original);
  std::size_t tried = 0;
  for (const Role role : {Role::kInitiator, Role::kResponder}) {
    const Half& half = conversation.half(role);
    for (const Fpdu& fpdu : half.fpdus.fpdus) {
      for (std::size_t at = 0; at < fpdu.header.bytes(); ++at) {
        if (is_program_choice(fpdu, at)) continue;
        for (const int flip : {0x01, 0x20, 0x40}) {
          if (at == 0 && flip == 0x40 && last_is_program_choice(half.fpdus, fpdu)) continue;
          const Connection bad =
              changed(original, half.direction, fpdu.begin + wire::kFpduLengthBytes + at,
                      static_cast<std::uint8_t>(flip));
          const RoleReport report = replay(read_conversation(bad), role);
          EXPECT_EQ(report.verdict, Verdict::kFail)
              << fpdu.text() << " header byte " << at << " flip " << flip;
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 500u);
}

TEST(Replay, FailsWhenALengthIsChanged) {
  const Connection original = connections_of("siw-rping-v4.pcap").at(0);
  const Conversation conversation = read_conversation(original);
  for (const Role role : {Role::kInitiator, Role::kResponder}) {
    const Half& half = conversation.half(role);
    for (const Fpdu& fpdu : half.fpdus.fpdus) {
      EXPECT_GT(failures(changed(original, half.direction, fpdu.begin + 1, 0x04)), 0u)
          << fpdu.text();
    }
  }
}

TEST(Replay, NamesPlaceAndBothSidesOfADifference) {
  const Connection original = connections_of("siw-rping-v4.pcap").at(0);
  const Conversation conversation = read_conversation(original);
  const Fpdu& first = conversation.initiator.fpdus.fpdus.at(0);
  constexpr std::size_t kMsnByte = wire::kFpduLengthBytes + 13;
  const Connection bad =
      changed(original, conversation.initiator.direction, first.begin + kMsnByte, 0x02);
  const RoleReport report = replay(read_conversation(bad), Role::kInitiator);
  ASSERT_EQ(report.verdict, Verdict::kFail);
  EXPECT_EQ(report.difference.offset, first.begin);
  EXPECT_NE(report.difference.expected.find("msn=3"), std::string::npos);
  EXPECT_NE(report.difference.ours.find("msn=1"), std::string::npos);
  EXPECT_NE(to_text(report).find("FAIL"), std::string::npos);
}

TEST(Replay, FailsWhenTheReplyIsChanged) {
  const Connection original = connections_of("siw-rping-v4.pcap").at(0);
  const Conversation conversation = read_conversation(original);
  const Direction reply = conversation.responder.direction;
  constexpr std::uint64_t kFlags = 16;
  EXPECT_GT(failures(changed(original, reply, kFlags, 0x20)), 0u);      // R
  EXPECT_GT(failures(changed(original, reply, kFlags, 0x10)), 0u);      // S
  EXPECT_GT(failures(changed(original, reply, kFlags, 0x40)), 0u);      // C
  EXPECT_GT(failures(changed(original, reply, kFlags + 1, 0x03)), 0u);  // revision 1
  EXPECT_GT(failures(changed(original, reply, kFlags + 4, 0x80)), 0u);  // A, which was not offered
}

TEST(Replay, FailsWhenATerminateSaysSomethingElse) {
  const Connection original = connections_of("siw-term-write-bounds.pcap").at(1);
  ASSERT_EQ(failures(original), 0u) << text(original);
  const Conversation conversation = read_conversation(original);
  const Fpdu& terminate = conversation.responder.fpdus.fpdus.back();
  ASSERT_EQ(static_cast<Opcode>(terminate.header.opcode), Opcode::kTerminate);
  const std::uint64_t control = terminate.begin + wire::kFpduLengthBytes + terminate.header.bytes();
  for (const std::uint64_t at : {control, control + 1}) {
    const Connection bad = changed(original, conversation.responder.direction, at, 0x02);
    EXPECT_EQ(replay(read_conversation(bad), Role::kResponder).verdict, Verdict::kFail)
        << text(bad);
  }
}

// Cuts.

TEST(Replay, AcceptsEveryCaptureCutShortAnywhere) {
  for (const auto& entry : fs::directory_iterator(AIRDMA_CAPTURES)) {
    if (!entry.path().filename().string().starts_with("siw-")) continue;
    for (const Connection& connection : connections_of(entry.path().filename().string())) {
      for (std::size_t count = 1; count <= connection.segments.size(); ++count) {
        const Connection part = cut_short(connection, count);
        ASSERT_EQ(failures(part), 0u) << entry.path() << " cut after " << count << text(part);
      }
    }
  }
}

TEST(Replay, AcceptsAStreamThatEndsInsideAnFpdu) {
  const Connection original = connections_of("siw-rping-v4-S4001.pcap").at(0);
  for (std::size_t i = 2; i < original.segments.size(); ++i) {
    Connection part = cut_short(original, i + 1);
    ByteVector& last = part.segments.back().bytes;
    for (const std::size_t keep : {std::size_t{1}, last.size() / 2, last.size() - 1}) {
      if (keep == 0 || keep >= last.size()) continue;
      Connection shorter = part;
      shorter.segments.back().bytes.resize(keep);
      shorter.segments.back().fin = false;
      rebuild_streams(shorter);
      EXPECT_EQ(failures(shorter), 0u) << i << " " << keep << text(shorter);
    }
  }
}

TEST(Replay, LeavesOutWhatStartsMidway) {
  Connection late = connections_of("siw-rping-v4.pcap").at(0);
  const auto data = [](const Segment& segment) { return !segment.bytes.empty(); };
  // Without the two MPA frames.
  for (int i = 0; i < 2; ++i) late.segments.erase(std::ranges::find_if(late.segments, data));
  rebuild_streams(late);
  EXPECT_EQ(kind_of(late), ConnectionKind::kMidway);
  EXPECT_NE(text(late).find("no iWARP connection"), std::string::npos);
}

TEST(Replay, LeavesOutOtherProtocols) {
  Connection other;
  const std::string hello = "GET / HTTP/1.1\r\n\r\n";
  other.client.address = other.server.address = ByteVector(4);
  other.segments.push_back({.direction = Direction::kFromClient, .bytes = {}});
  for (const char c : hello) other.segments[0].bytes.push_back(static_cast<std::byte>(c));
  rebuild_streams(other);
  EXPECT_EQ(kind_of(other), ConnectionKind::kNotIwarp);
}

// What no capture of siw has: conversations of two of our own engines.

class Synthetic : public testing::TestWithParam<SyntheticOptions> {};

TEST_P(Synthetic, PassesInBothRoles) {
  const Connection connection = synthetic_connection(GetParam());
  const FileReport report = replay_connections("synthetic", {connection});
  EXPECT_EQ(report.failed, 0u) << report.text;
  EXPECT_EQ(report.passed, 2u) << report.text;
}

TEST_P(Synthetic, FailsWithADamagedHeader) {
  const Connection connection = synthetic_connection(GetParam());
  const Conversation conversation = read_conversation(connection);
  for (const Role role : {Role::kInitiator, Role::kResponder}) {
    const Half& half = conversation.half(role);
    if (half.markers) continue;  // the byte may be a marker's
    const auto& fpdus = half.fpdus.fpdus;
    for (std::size_t i = 0; i < fpdus.size(); i += 1 + fpdus.size() / 16) {
      const Fpdu& fpdu = fpdus[i];
      const Connection bad = changed(connection, half.direction, fpdu.begin + 2, 0x01);
      EXPECT_GT(failures(bad), 0u) << fpdu.text();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Synthetic,
    testing::Values(
        SyntheticOptions{}, SyntheticOptions{.crc = false}, SyntheticOptions{.peer_to_peer = true},
        SyntheticOptions{.initiator_markers = true}, SyntheticOptions{.responder_markers = true},
        SyntheticOptions{.initiator_markers = true, .responder_markers = true, .crc = false},
        SyntheticOptions{.cut = 7}, SyntheticOptions{.max_ulpdu = 64000}));

}  // namespace
}  // namespace airdma::interop
