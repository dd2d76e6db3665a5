// SPDX-License-Identifier: MIT
// The capture reader, on the kernel's captures and on damaged and reordered ones made here.
#include "tests/interop/capture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/support/bytes.h"
#include "wire/crc32c.h"
#include "wire/mpa.h"
#include "wire/print.h"

namespace airdma::interop {
namespace {

namespace fs = std::filesystem;
using test::from_hex;
using test::pattern;
using test::to_hex;

std::vector<std::string> capture_files() {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(AIRDMA_CAPTURES)) {
    if (!entry.path().filename().string().starts_with("siw-")) continue;
    files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::vector<Connection> connections_of(const std::string& name) {
  auto connections = read_connections(std::string(AIRDMA_CAPTURES) + "/" + name);
  EXPECT_TRUE(connections.has_value()) << connections.error();
  return connections ? std::move(*connections) : std::vector<Connection>{};
}

/// FPDUs after the MPA frame of one direction; checks each CRC when told to.
struct Fpdus {
  std::map<std::string, unsigned> by_name;
  unsigned bad_crcs = 0;
  std::size_t rest = 0;
};

Fpdus count_fpdus(Bytes stream, bool crc) {
  Fpdus count;
  while (!stream.empty()) {
    const wire::FpduParse parse = wire::parse_fpdu(stream);
    if (!parse.fpdu) break;
    const std::string text = wire::ulpdu_to_text(parse.fpdu->ulpdu);
    ++count.by_name[text.substr(0, text.find(' '))];
    if (crc && wire::crc32c(parse.fpdu->covered) != parse.fpdu->crc) ++count.bad_crcs;
    stream = stream.subspan(parse.fpdu->bytes);
  }
  count.rest = stream.size();
  return count;
}

/// Everything in a capture is MPA: both frames parse, and FPDUs follow to the last byte.
void expect_whole_mpa(const Connection& connection) {
  if (connection.client_stream.empty()) return;
  const auto request = wire::parse_mpa(connection.client_stream, wire::MpaFrameKind::kRequest);
  ASSERT_TRUE(request.frame.has_value());
  if (connection.server_stream.empty()) return;  // refused without a reply
  const auto reply = wire::parse_mpa(connection.server_stream, wire::MpaFrameKind::kReply);
  ASSERT_TRUE(reply.frame.has_value());
  const bool crc = request.frame->crc || reply.frame->crc;
  const bool reset = std::ranges::any_of(connection.segments, &Segment::rst);
  for (const auto& [stream, frame_bytes] :
       {std::pair(Bytes(connection.client_stream), request.frame_bytes),
        std::pair(Bytes(connection.server_stream), reply.frame_bytes)}) {
    const Fpdus fpdus = count_fpdus(stream.subspan(frame_bytes), crc);
    EXPECT_EQ(fpdus.bad_crcs, 0u);
    if (!reset) {
      EXPECT_EQ(fpdus.rest, 0u);
    }
    for (const auto& [name, n] : fpdus.by_name) EXPECT_NE(name.substr(0, 6), "OPCODE") << n;
  }
}

TEST(Captures, AreWholeMpaStreams) {
  const auto files = capture_files();
  EXPECT_GE(files.size(), 31u);
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const auto connections = read_connections(file);
    ASSERT_TRUE(connections.has_value()) << connections.error();
    EXPECT_FALSE(connections->empty());
    for (const Connection& connection : *connections) {
      EXPECT_EQ(connection.lost_bytes, 0u);
      expect_whole_mpa(connection);
    }
  }
}

TEST(Captures, HoldWhatTheirRecorderCounted) {
  const auto connections = connections_of("siw-write-9001.pcap");
  ASSERT_EQ(connections.size(), 2u);
  const auto& second = connections[1];
  const auto request = wire::parse_mpa(second.client_stream, wire::MpaFrameKind::kRequest);
  const Fpdus fpdus = count_fpdus(Bytes(second.client_stream).subspan(request.frame_bytes), false);
  EXPECT_EQ(fpdus.by_name, (std::map<std::string, unsigned>{{"WRITE", 35}}));
  EXPECT_EQ(std::ranges::count_if(second.segments, &Segment::fin), 2);
}

TEST(Captures, KeepIpv6Apart) {
  const auto connections = connections_of("siw-rping-v6.pcap");
  ASSERT_EQ(connections.size(), 1u);
  EXPECT_EQ(connections[0].client.address.size(), 16u);
  EXPECT_EQ(connections[0].server.port, 7174);
}

// The marked stream: what a receiver with markers has to do, one word at a time.

struct MarkedFpdus {
  std::vector<std::size_t> ulpdu_bytes;
  std::vector<unsigned> pointers;
  unsigned wrong_pointers = 0;
  unsigned bad_crcs = 0;
};

/// Takes one FPDU with its markers from the stream; false when it is not complete.
bool take_marked(Bytes& stream, wire::MarkerSchedule& schedule, MarkedFpdus& found) {
  ByteVector plain;
  ByteVector marked;
  const std::uint64_t start = schedule.position() + (schedule.due() ? wire::kMarkerBytes : 0);
  while (!wire::parse_fpdu(plain).fpdu) {
    if (stream.size() < 4) return false;
    const Bytes word = stream.first(4);
    stream = stream.subspan(4);
    marked.insert(marked.end(), word.begin(), word.end());
    if (schedule.due()) {
      const unsigned pointer =
          std::to_integer<unsigned>(word[2]) << 8 | std::to_integer<unsigned>(word[3]);
      found.pointers.push_back(pointer);
      found.wrong_pointers += pointer != schedule.fpdu_pointer(start);
    } else {
      plain.insert(plain.end(), word.begin(), word.end());
    }
    schedule.advance(4);
  }
  const auto fpdu = wire::parse_fpdu(plain).fpdu;
  found.ulpdu_bytes.push_back(fpdu->ulpdu.size());
  found.bad_crcs += wire::crc32c(Bytes(marked).first(marked.size() - 4)) != fpdu->crc;
  return true;
}

TEST(Markers, StandWhereTheScheduleSays) {
  const auto connections = connections_of("../made/mpa-markers.pcap");
  ASSERT_EQ(connections.size(), 1u);
  const auto reply = wire::parse_mpa(connections[0].server_stream, wire::MpaFrameKind::kReply);
  ASSERT_TRUE(reply.frame.has_value());
  Bytes stream = Bytes(connections[0].server_stream).subspan(reply.frame_bytes);
  wire::MarkerSchedule schedule;
  MarkedFpdus found;
  while (!stream.empty() && take_marked(stream, schedule, found)) {
  }
  EXPECT_TRUE(stream.empty());
  EXPECT_EQ(found.ulpdu_bytes, (std::vector<std::size_t>{100, 500, 390, 1000, 30, 464}));
  EXPECT_EQ(found.pointers, (std::vector<unsigned>{0, 400, 4, 516, 12}));
  EXPECT_EQ(found.wrong_pointers, 0u);
  EXPECT_EQ(found.bad_crcs, 0u);
}

// Packets made here: Ethernet, IPv4, TCP without options; no checksum is looked at.

struct Made {
  bool from_client = true;
  std::uint32_t sequence = 0;
  std::string flags;  // of "SAFR"
  ByteVector bytes;
};

void put(ByteVector& out, std::uint64_t value, unsigned bytes) {
  for (unsigned i = bytes; i-- > 0;) out.push_back(static_cast<std::byte>(value >> 8 * i));
}

Frame frame_of(const Made& made) {
  Frame frame;
  ByteVector& out = frame.bytes;
  out.resize(12);
  put(out, 0x0800, 2);
  put(out, 0x45000000 + 40 + made.bytes.size(), 4);
  put(out, 0x0000400040060000, 8);
  put(out, made.from_client ? 0x0a0000010a000002 : 0x0a0000020a000001, 8);
  put(out, made.from_client ? 0x13881389 : 0x13891388, 4);
  put(out, made.sequence, 4);
  put(out, 0, 4);
  const auto has = [&](char c) { return made.flags.find(c) != std::string::npos; };
  put(out,
      0x5000u | (has('F') ? 1u : 0u) | (has('S') ? 2u : 0u) | (has('R') ? 4u : 0u) |
          (has('A') ? 16u : 0u),
      2);
  put(out, 0, 6);
  out.insert(out.end(), made.bytes.begin(), made.bytes.end());
  out.resize(std::max<std::size_t>(out.size(), 60));  // Ethernet pads short frames
  frame.original_bytes = static_cast<std::uint32_t>(out.size());
  return frame;
}

std::vector<Connection> connections_of(const std::vector<Made>& packets) {
  std::vector<Frame> frames;
  for (const Made& made : packets) frames.push_back(frame_of(made));
  return tcp_connections(frames);
}

ByteVector part(const ByteVector& all, std::size_t at, std::size_t n) {
  return {all.begin() + static_cast<std::ptrdiff_t>(at),
          all.begin() + static_cast<std::ptrdiff_t>(at + n)};
}

TEST(Reassembly, PutsSegmentsInOrderAndDropsWhatItHas) {
  const ByteVector data = pattern(100);
  constexpr std::uint32_t kStart = 0xfffffff0;  // sequence numbers wrap on the way
  const auto at = [&](std::uint32_t offset, std::size_t n) {
    return Made{true, kStart + 1 + offset, "A", part(data, offset, n)};
  };
  const auto connections = connections_of(std::vector<Made>{
      {true, kStart, "S", {}},
      {false, 500, "SA", {}},
      at(0, 20),
      at(60, 40),  // early
      at(40, 20),  // early
      at(0, 20),   // again
      at(10, 30),  // half known; closes the gap
      at(90, 10),  // again
      {true, kStart + 101, "FA", {}},
      {true, kStart + 101, "FA", {}},
  });
  ASSERT_EQ(connections.size(), 1u);
  const Connection& connection = connections[0];
  EXPECT_EQ(to_hex(connection.client_stream), to_hex(data));
  EXPECT_EQ(connection.client.port, 5000);
  EXPECT_EQ(connection.retransmissions, 2u);
  EXPECT_EQ(connection.lost_bytes, 0u);
  std::vector<std::size_t> sizes;
  for (const Segment& segment : connection.segments) sizes.push_back(segment.bytes.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{0, 0, 20, 20, 20, 40, 0}));
  EXPECT_EQ(std::ranges::count_if(connection.segments, &Segment::fin), 1);
  EXPECT_EQ(std::ranges::count_if(connection.segments, &Segment::syn), 2);
}

TEST(Reassembly, SaysWhatNeverArrived) {
  const auto connections = connections_of(
      std::vector<Made>{{true, 0, "S", {}}, {true, 11, "A", pattern(5)}, {true, 99, "R", {}}});
  ASSERT_EQ(connections.size(), 1u);
  EXPECT_TRUE(connections[0].client_stream.empty());
  EXPECT_EQ(connections[0].lost_bytes, 5u);
  EXPECT_TRUE(connections[0].segments.back().rst);
}

TEST(Reassembly, BeginsAnotherConnectionAtAnotherSyn) {
  const auto connections = connections_of(std::vector<Made>{{true, 0, "S", {}},
                                                            {true, 0, "S", {}},
                                                            {true, 1, "A", from_hex("01")},
                                                            {true, 1000, "S", {}},
                                                            {false, 7, "SA", {}},
                                                            {true, 1001, "A", from_hex("02")},
                                                            {false, 8, "A", from_hex("03")}});
  ASSERT_EQ(connections.size(), 2u);
  EXPECT_EQ(to_hex(connections[0].client_stream), "01");
  EXPECT_EQ(to_hex(connections[1].client_stream), "02");
  EXPECT_EQ(to_hex(connections[1].server_stream), "03");
}

ByteVector pcap_of(const std::vector<Frame>& frames) {
  ByteVector out;
  put(out, 0xa1b2c3d4'00020004, 8);  // big-endian, as another machine would write it
  put(out, 0, 8);
  put(out, 65535, 4);
  put(out, 1, 4);
  for (const Frame& frame : frames) {
    put(out, 1, 4);
    put(out, 2, 4);
    put(out, frame.bytes.size(), 4);
    put(out, frame.bytes.size(), 4);
    out.insert(out.end(), frame.bytes.begin(), frame.bytes.end());
  }
  return out;
}

TEST(Files, MayHaveTheOtherByteOrder) {
  const Frame frame = frame_of({true, 5, "A", pattern(30)});
  const auto frames = read_frames(Bytes(pcap_of({frame, frame})));
  ASSERT_TRUE(frames.has_value()) << frames.error();
  ASSERT_EQ(frames->size(), 2u);
  EXPECT_EQ(frames->at(1).bytes, frame.bytes);
  EXPECT_EQ(frames->at(1).time_ns, 1'000'002'000u);
}

TEST(Files, MayBePcapng) {
  const ByteVector packet = pattern(6);
  ByteVector file = from_hex(
      "0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffffffffffff 1c000000"   // section, little-endian
      "01000000 1c000000 01000000 00000000 09000100 09000000 1c000000"  // interface, nanoseconds
      "06000000 28000000 00000000 01000000 02000000 06000000 06000000");
  file.insert(file.end(), packet.begin(), packet.end());
  const ByteVector tail = from_hex("0000 28000000 0500000010000000 aabbccdd 10000000");
  file.insert(file.end(), tail.begin(), tail.end());
  const auto frames = read_frames(Bytes(file));
  ASSERT_TRUE(frames.has_value()) << frames.error();
  ASSERT_EQ(frames->size(), 1u);
  EXPECT_EQ(frames->at(0).bytes, packet);
  EXPECT_EQ(frames->at(0).time_ns, 0x1'0000'0002u);
  for (std::size_t n = 0; n < file.size(); ++n) (void)read_frames(Bytes(file).first(n));
}

TEST(Files, MayBeDamaged) {
  EXPECT_FALSE(read_frames(Bytes(pattern(100))).has_value());
  EXPECT_FALSE(read_frames(std::string("/nonexistent.pcap")).has_value());
  ByteVector file = pcap_of({frame_of({true, 5, "SA", pattern(30)})});
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_EQ(read_frames(Bytes(file).first(n)).has_value(), n == 24) << n;
  }
  // Whatever one byte becomes, nothing is read out of bounds.
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (unsigned value : {0u, 0x7fu, 0xffu}) {
      const std::byte before = file[i];
      file[i] = static_cast<std::byte>(value);
      if (const auto frames = read_frames(Bytes(file))) (void)tcp_connections(*frames);
      file[i] = before;
    }
  }
}

}  // namespace
}  // namespace airdma::interop
