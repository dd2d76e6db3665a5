// SPDX-License-Identifier: MIT
// The judge is tshark, a program nobody here wrote: what it reads in our files must be what the
// bytes say.
#include "trace/tcp_tap.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/trace/tshark.h"
#include "wire/crc32c.h"
#include "wire/mpa.h"

namespace airdma::trace {
namespace {

using Buffer = std::vector<std::byte>;

struct Segment {
  bool from_initiator;
  Buffer bytes;
};

std::vector<Segment> load_segments(const std::string& name) {
  std::ifstream in(std::string(AIRDMA_SOURCE_DIR "/tests/unit/trace/data/") + name);
  std::vector<Segment> segments;
  for (std::string side, hex; in >> side;) {
    if (side == "#") {
      std::getline(in, hex);
      continue;
    }
    in >> hex;
    Segment segment{side == "I", {}};
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      segment.bytes.push_back(std::byte(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

sockaddr_storage socket_address(const char* text, std::uint16_t port) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
  }
  return storage;
}

Host host(const char* text, std::uint16_t port) { return Host::from(socket_address(text, port)); }

Buffer fpdu(const Buffer& ulpdu) {
  Buffer out(wire::fpdu_bytes(ulpdu.size()));
  out[0] = std::byte(ulpdu.size() >> 8);
  out[1] = std::byte(ulpdu.size() & 0xff);
  std::ranges::copy(ulpdu, out.begin() + 2);
  const std::size_t covered = out.size() - wire::kFpduCrcBytes;
  wire::store_fpdu_crc(&out[covered], wire::crc32c(Bytes(out).first(covered)));
  return out;
}

/// An RDMA Write of one DDP segment, last flag set (RFC 5041 4.1, RFC 5040 4.2).
Buffer write_fpdu(std::size_t payload_bytes) {
  Buffer ulpdu{std::byte{0xc1}, std::byte{0x40}};
  ulpdu.resize(14 + payload_bytes, std::byte{0x5a});
  return fpdu(ulpdu);
}

class TcpTapTest : public TsharkTest {
 protected:
  /// Nothing that a reader would be warned of. 0x00600000 is tshark's severity "warning".
  void expect_clean(std::size_t fpdus) {
    using None = std::vector<std::string>;
    EXPECT_EQ(fields("_ws.expert.message", "_ws.malformed || _ws.expert.severity >= 0x00600000"),
              None{});
    EXPECT_EQ(fields("frame.number", "tcp.analysis.flags"), None{});
    EXPECT_EQ(fields("frame.number", "ip.checksum.status==0 || tcp.checksum.status==0"), None{});
    const std::string text = tshark("-O iwarp_mpa");
    EXPECT_EQ(times(text, "Good CRC32"), fpdus);
    EXPECT_EQ(times(text, "Bad CRC32"), 0u);
  }
};

const std::vector<std::string> kRpingOpcodes = [] {
  std::vector<std::string> opcodes;
  for (int i = 0; i < 3; ++i) {
    for (const char* op : {"0x03", "0x01", "0x02", "0x03", "0x03", "0x00", "0x03"}) {
      opcodes.emplace_back(op);
    }
  }
  return opcodes;
}();

class ReplayTest : public TcpTapTest,
                   public testing::WithParamInterface<std::tuple<const char*, const char*, bool>> {
};

TEST_P(ReplayTest, TsharkReadsTheCapturedConversation) {
  const auto [here, there, initiator] = GetParam();
  const std::vector<Segment> segments = load_segments("rping-crc.txt");
  ASSERT_EQ(segments.size(), 23u);
  Result<PcapngFile> file = PcapngFile::open(path_);
  ASSERT_TRUE(file);
  TcpTap tap(*file, host(here, initiator ? 40000 : 7174), host(there, initiator ? 7174 : 40000),
             initiator, clock());
  std::mt19937 random(7);
  for (const Segment& segment : segments) {
    for (Bytes rest = segment.bytes; !rest.empty();) {
      const std::size_t part = std::min<std::size_t>(1 + random() % 30, rest.size());
      segment.from_initiator == initiator ? tap.sent(rest.first(part))
                                          : tap.received(rest.first(part));
      rest = rest.subspan(part);
    }
  }
  tap.closed(false);
  EXPECT_EQ(fields("iwarp_rdma.opcode"), kRpingOpcodes);
  EXPECT_EQ(fields("iwarp_mpa.rev"), (std::vector<std::string>{"2", "2"}));
  EXPECT_EQ(fields("tcp.flags.fin", "tcp.flags.fin==1").size(), 2u);
  EXPECT_EQ(fields("tcp.srcport", "tcp.flags.syn==1 && tcp.flags.ack==0"),
            std::vector<std::string>{"40000"});
  expect_clean(21);
}

INSTANTIATE_TEST_SUITE_P(Sides, ReplayTest,
                         testing::Values(std::tuple{"127.0.0.1", "127.0.0.1", true},
                                         std::tuple{"127.0.0.1", "127.0.0.1", false},
                                         std::tuple{"fd77::11", "fd77::12", true},
                                         std::tuple{"fd77::12", "fd77::11", false}));

TEST_F(TcpTapTest, LargestFpdusAndEmptyOnesAreWhole) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    std::filesystem::remove(path_);
    Result<PcapngFile> file = PcapngFile::open(path_);
    ASSERT_TRUE(file);
    TcpTap tap(*file, host(address, 40000), host(address, 7174), true, clock());
    const std::vector<Segment> opening = load_segments("rping-crc.txt");
    tap.sent(opening[0].bytes);
    tap.received(opening[1].bytes);
    for (const std::size_t payload : {65535u - 14, 65460u, 65440u, 0u, 1u, 65000u}) {
      tap.sent(write_fpdu(payload));
    }
    tap.received(fpdu(Buffer{std::byte{0x41}, std::byte{0x43}, std::byte{0}, std::byte{0},
                             std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},
                             std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0},
                             std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}}));
    tap.closed(false);
    EXPECT_EQ(fields("iwarp_rdma.opcode"),
              (std::vector<std::string>{"0x00", "0x00", "0x00", "0x00", "0x00", "0x00", "0x03"}));
    expect_clean(7);
  }
}

TEST_F(TcpTapTest, LongOneWayStreamIsAcknowledged) {
  Result<PcapngFile> file = PcapngFile::open(path_);
  ASSERT_TRUE(file);
  TcpTap tap(*file, host("127.0.0.1", 40000), host("127.0.0.1", 7174), true, clock());
  const std::vector<Segment> opening = load_segments("rping-crc.txt");
  tap.sent(opening[0].bytes);
  tap.received(opening[1].bytes);
  const Buffer fpdu = write_fpdu(60000);
  for (int i = 0; i < 100; ++i) tap.sent(fpdu);
  tap.closed(false);
  EXPECT_EQ(fields("iwarp_rdma.opcode").size(), 100u);
  EXPECT_GE(fields("frame.number", "tcp.srcport==7174 && tcp.len==0").size(), 5u);
  expect_clean(100);
}

TEST_F(TcpTapTest, BrokenCrcIsSeen) {
  // The check above can fail: one flipped bit is reported.
  Result<PcapngFile> file = PcapngFile::open(path_);
  ASSERT_TRUE(file);
  TcpTap tap(*file, host("127.0.0.1", 40000), host("127.0.0.1", 7174), true, clock());
  const std::vector<Segment> opening = load_segments("rping-crc.txt");
  tap.sent(opening[0].bytes);
  tap.received(opening[1].bytes);
  Buffer bad = write_fpdu(100);
  bad[50] ^= std::byte{1};
  tap.sent(bad);
  EXPECT_EQ(times(tshark("-O iwarp_mpa"), "Bad CRC32"), 1u);
}

TEST_F(TcpTapTest, ResetShowsAndEndsTheRecording) {
  Result<PcapngFile> file = PcapngFile::open(path_);
  ASSERT_TRUE(file);
  TcpTap tap(*file, host("127.0.0.1", 7174), host("127.0.0.1", 40000), false, clock());
  const std::vector<Segment> opening = load_segments("rping-crc.txt");
  tap.received(Bytes(opening[0].bytes).first(10));
  tap.closed(true);
  tap.closed(false);
  tap.sent(opening[1].bytes);
  EXPECT_EQ(fields("tcp.len"), (std::vector<std::string>{"0", "0", "0", "10", "0"}));
  EXPECT_EQ(fields("tcp.srcport", "tcp.flags.reset==1"), std::vector<std::string>{"7174"});
}

class OpenTcpTapTest : public TcpTapTest {
 protected:
  void SetUp() override {}  // needs no tshark

  /// Runs `body` in a process of its own, as the variable is read once; its exit status.
  int in_child(const char* trace, const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (trace != nullptr) ::setenv("AIRDMA_TRACE", trace, 1);
      ::_exit(body() ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  sockaddr_storage client_ = socket_address("127.0.0.1", 40000);
  sockaddr_storage server_ = socket_address("127.0.0.1", 7174);
};

TEST_F(OpenTcpTapTest, IsOffWithoutTheVariable) {
  EXPECT_EQ(in_child(nullptr, [&] { return open_tcp_tap(client_, server_, true) == nullptr; }), 0);
}

TEST_F(OpenTcpTapTest, IsOffWhenTheFileCannotBeUsed) {
  const auto body = [&] { return open_tcp_tap(client_, server_, true) == nullptr; };
  EXPECT_EQ(in_child("/nonexistent/trace.pcapng", body), 0);
}

TEST_F(OpenTcpTapTest, OneEndOfAConnectionRecordsIt) {
  // Both ends in this process, then one here and one in another; other connections are free.
  const auto body = [&] {
    const auto client = open_tcp_tap(client_, server_, true);
    const bool silent_here = open_tcp_tap(server_, client_, false) == nullptr;
    const int elsewhere =
        in_child(nullptr, [&] { return open_tcp_tap(server_, client_, false) == nullptr; });
    const auto reversed = open_tcp_tap(client_, server_, false);
    return client && silent_here && elsewhere == 0 && reversed;
  };
  EXPECT_EQ(in_child(path_.c_str(), body), 0);
  const Result<TraceSummary> summary = summarize(path_);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->frames, 6u);
}

TEST_F(OpenTcpTapTest, TheRightToRecordEndsWithTheTap) {
  const auto body = [&] {
    for (int i = 0; i < 3; ++i) {
      if (open_tcp_tap(client_, server_, true) == nullptr) return false;
    }
    return true;
  };
  EXPECT_EQ(in_child(path_.c_str(), body), 0);
}

}  // namespace
}  // namespace airdma::trace
