// SPDX-License-Identifier: MIT
// The judge is tshark. It does not know XRC beyond the opcode, nor the ICRC: that is looked at in
// tests/interop.
#include "trace/roce_tap.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "tests/unit/trace/tshark.h"
#include "wire/roce_packet.h"

namespace airdma::trace {
namespace {

using Strings = std::vector<std::string>;
using Buffer = std::vector<std::byte>;

wire::IpAddress v4(std::uint8_t last) {
  wire::IpAddress address{};
  address[10] = address[11] = std::byte{0xff};
  address[12] = std::byte{10};
  address[15] = std::byte{last};
  return address;
}
wire::IpAddress v6(std::uint8_t first, std::uint8_t last) {
  wire::IpAddress address{};
  address[0] = std::byte{first};
  address[15] = std::byte{last};
  return address;
}

wire::RocePacket packet_of(const wire::RoceOpcodeInfo& info, std::uint32_t psn) {
  wire::RocePacket packet;
  packet.info = &info;
  packet.pkey = Pkey{0xffff};
  packet.destination = Qpn{0x1234};
  packet.psn = Psn{psn};
  packet.ack_request = info.is_request;
  packet.qkey = Qkey{0x11111111};
  packet.source = Qpn{0x77};
  packet.remote = {0x7f0000001000, Stag{0x1a07}, 100};
  packet.atomic = {0x7f0000001000, Stag{0x1a07}, 1, 0};
  return packet;
}

std::size_t payload_of(const wire::RoceOpcodeInfo& info) {
  if (info.operation == wire::Operation::kAtomicWrite) return 8;
  return info.may_carry_payload ? 101 : 0;
}

class RoceTapTest : public TsharkTest {
 protected:
  RoceTapTest() : file_(*PcapngFile::open(path_)), tap_(file_, clock()) {}

  void record(const wire::RocePacket& packet, const RocePath& path, std::size_t payload_bytes) {
    wire::RocePacket padded = packet;
    padded.pad_bytes = wire::roce_pad_bytes(payload_bytes);
    std::array<std::byte, wire::kMaxRoceHeaderBytes> headers;
    const std::size_t length = wire::emit_roce_headers(headers, padded);
    const Buffer payload(payload_bytes, std::byte{0x5a});
    const std::size_t half = payload.size() / 2;
    const std::array<Bytes, 2> pieces{Bytes(payload).first(half), Bytes(payload).subspan(half)};
    tap_.record(tap_.now(), FrameDirection::kOutbound, path, Bytes(headers).first(length), pieces,
                padded.pad_bytes);
  }

  /// Nothing that a reader would be warned of. 0x00600000 is tshark's severity "warning".
  void expect_clean() {
    EXPECT_EQ(fields("_ws.expert.message", "_ws.malformed || _ws.expert.severity >= 0x00600000"),
              Strings{});
    EXPECT_EQ(fields("frame.number", "udp.checksum.status!=1"), Strings{});
    EXPECT_EQ(fields("frame.number", "ip && ip.checksum.status!=1"), Strings{});
  }

  PcapngFile file_;
  RoceTap tap_;
};

TEST_F(RoceTapTest, TsharkReadsEveryOpcode) {
  const RocePath over_v4{.source = v4(1), .destination = v4(2), .source_port = 50000};
  const RocePath over_v6{.source = v6(0xfd, 1), .destination = v6(0xfd, 2), .source_port = 50001};
  Strings opcodes;
  Strings numbers;
  std::uint32_t psn = 0xfffff0;
  for (const wire::RoceOpcodeInfo& info : wire::kRoceOpcodes) {
    if (!info.known) continue;
    for (const RocePath& path : {over_v4, over_v6}) {
      psn = (psn + 1) & 0xffffff;
      record(packet_of(info, psn), path, payload_of(info));
      opcodes.push_back(std::to_string(info.opcode));
      numbers.push_back(std::to_string(psn));
    }
  }
  EXPECT_EQ(fields("infiniband.bth.opcode"), opcodes);
  EXPECT_EQ(fields("infiniband.bth.psn"), numbers);
  EXPECT_EQ(fields("infiniband.bth.destqp"), Strings(opcodes.size(), "0x001234"));
  expect_clean();
}

TEST_F(RoceTapTest, TsharkReadsTheExtendedHeaders) {
  const RocePath path{.source = v4(1), .destination = v4(2), .source_port = 50000};
  using wire::PacketCode;
  using wire::Service;
  const auto info = [](PacketCode code) { return &wire::roce_info(Service::kRc, code); };
  record(packet_of(*info(PacketCode::kWriteOnlyImmediate), 1), path, 100);
  wire::RocePacket nak = packet_of(*info(PacketCode::kAcknowledge), 2);
  nak.acknowledgement = wire::Acknowledgement::nak(wire::NakCode::kRemoteAccess, AckMsn{5});
  record(nak, path, 0);
  record(packet_of(wire::roce_info(Service::kUd, PacketCode::kSendOnly), 3), path, 4096);
  EXPECT_EQ(fields("infiniband.reth.dmalen"), Strings{"100"});
  EXPECT_EQ(fields("infiniband.reth.r_key"), Strings{"0x00001a07"});
  EXPECT_EQ(fields("infiniband.aeth.syndrome.error_code"), Strings{"2"});
  EXPECT_EQ(fields("infiniband.aeth.msn"), Strings{"5"});
  EXPECT_EQ(fields("infiniband.deth.srcqp"), Strings{"0x00000077"});
  EXPECT_EQ(fields("udp.length"), (Strings{"144", "28", std::to_string(8 + 20 + 4096 + 4)}));
  expect_clean();
}

TEST_F(RoceTapTest, ShowsThePathOfAPacket) {
  const wire::RocePacket packet =
      packet_of(wire::roce_info(wire::Service::kUd, wire::PacketCode::kSendOnly), 0);
  record(packet,
         {.source = v4(1),
          .destination = v4(2),
          .source_port = 51234,
          .traffic_class = 0x6b,
          .hop_limit = 3},
         8);
  record(packet,
         {.source = v6(0xfd, 1),
          .destination = v6(0xff, 0x42),
          .traffic_class = 0xb8,
          .hop_limit = 1,
          .flow_label = 0xabcde},
         8);
  EXPECT_EQ(fields("udp.srcport"), (Strings{"51234", "49152"}));
  EXPECT_EQ(fields("udp.dstport"), (Strings{"4791", "4791"}));
  EXPECT_EQ(fields("ip.dsfield"), Strings{"0x6b"});
  EXPECT_EQ(fields("ip.ttl"), Strings{"3"});
  EXPECT_EQ(fields("ip.dst"), Strings{"10.0.0.2"});
  EXPECT_EQ(fields("ipv6.tclass"), Strings{"0x000000b8"});
  EXPECT_EQ(fields("ipv6.hlim"), Strings{"1"});
  EXPECT_EQ(fields("ipv6.flow"), Strings{"0x0abcde"});
  EXPECT_EQ(fields("eth.dst", "ipv6"), Strings{"33:33:00:00:00:42"});
  expect_clean();
}

class RoceTapWithoutTshark : public RoceTapTest {
 protected:
  void SetUp() override {}
  [[nodiscard]] std::uint64_t frames() const { return summarize(path_)->frames; }
};

TEST_F(RoceTapWithoutTshark, RecordsNoPacketThatIsNone) {
  const RocePath path{.source = v4(1), .destination = v4(2)};
  const Buffer bytes(5000);
  const auto record = [&](std::size_t headers, std::size_t payload) {
    tap_.record(1, FrameDirection::kInbound, path, Bytes(bytes).first(headers),
                std::array{Bytes(bytes).first(payload)});
  };
  record(12, 5000);
  record(11, 0);
  record(0, 0);
  EXPECT_EQ(frames(), 0u);
  record(12, 0);
  record(44, 4096);
  EXPECT_EQ(frames(), 2u);
}

TEST_F(RoceTapWithoutTshark, ItsMarkIsTheFiles) {
  auto same = PcapngFile::open(path_);
  EXPECT_EQ(RoceTap(*same, clock()).mark(), tap_.mark());
  auto other = PcapngFile::open(path_ + "2");
  EXPECT_NE(RoceTap(*other, clock()).mark(), tap_.mark());
  EXPECT_NE(tap_.mark(), 0u);
}

TEST_F(RoceTapWithoutTshark, IsOffWithoutTheVariable) {
  const auto is_on = [](const char* trace) {
    const pid_t child = ::fork();  // the variable is read once in a process
    if (child == 0) {
      ::unsetenv("AIRDMA_TRACE");
      if (trace != nullptr) ::setenv("AIRDMA_TRACE", trace, 1);
      ::_exit(process_roce_tap() != nullptr ? 7 : 0);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status) == 7;
  };
  EXPECT_FALSE(is_on(nullptr));
  EXPECT_FALSE(is_on("/nonexistent/trace.pcapng"));
  EXPECT_TRUE(is_on(path_.c_str()));
}

}  // namespace
}  // namespace airdma::trace
