// SPDX-License-Identifier: MIT
// The program is run by an interpreter of the instructions that it uses.
#include "runtime/steering_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "runtime/mad_route.h"
#include "wire/ib_cm.h"
#include "wire/ib_cm_layout.h"
#include "wire/mad.h"
#include "wire/roce_packet.h"

namespace airdma::runtime {
namespace {

constexpr std::uint32_t kNoSocket = 0xffffffff;
constexpr std::uint32_t kRandom = 7;

/// Nothing when the program does what the kernel would refuse.
class Machine {
 public:
  explicit Machine(const std::vector<sock_filter>& program) : program_(program) {}

  std::optional<std::uint32_t> run(const std::vector<std::byte>& packet) const {
    std::uint32_t value = 0;
    for (std::size_t at = 0; at < program_.size(); ++at) {
      const sock_filter& one = program_[at];
      switch (one.code) {
        case BPF_LD | BPF_H | BPF_ABS:
        case BPF_LD | BPF_W | BPF_ABS: {
          const bool random = one.k == static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_RANDOM);
          const std::size_t bytes = (one.code & BPF_H) != 0 ? 2 : 4;
          if (!random && one.k + bytes > packet.size()) return 0;  // the kernel's answer
          value = random ? kRandom : load(packet, one.k, bytes);
          break;
        }
        case BPF_ALU | BPF_K | BPF_AND:
          value &= one.k;
          break;
        case BPF_ALU | BPF_K | BPF_RSH:
          value >>= one.k;
          break;
        case BPF_ALU | BPF_K | BPF_MOD:
          if (one.k == 0) return std::nullopt;
          value %= one.k;
          break;
        case BPF_JMP | BPF_JA:
          at += one.k;
          break;
        case BPF_JMP | BPF_JEQ | BPF_K:
          at += value == one.k ? one.jt : one.jf;
          break;
        case BPF_RET | BPF_K:
          return one.k;
        case BPF_RET | BPF_A:
          return value;
        default:
          return std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  static std::uint32_t load(const std::vector<std::byte>& packet, std::size_t at,
                            std::size_t bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value = value << 8 | std::to_integer<std::uint32_t>(packet[at + i]);
    }
    return value;
  }
  const std::vector<sock_filter>& program_;
};

std::vector<std::byte> packet_for(Qpn qpn, std::size_t payload_bytes = 0) {
  std::vector<std::byte> bytes(12 + payload_bytes);
  wire::RocePacket packet;
  packet.info = &wire::kRoceOpcodes[0x07];
  packet.destination = qpn;
  EXPECT_EQ(wire::emit_roce_headers(bytes, packet), 12u);
  return bytes;
}

template <class Message>
std::vector<std::byte> management(wire::CmAttribute attribute, const Message& message) {
  std::vector<std::byte> bytes = packet_for(Qpn(1), 8 + wire::kMadBytes);
  wire::MadHeader header;
  header.management_class = wire::kMadClassCm;
  header.attribute_id = static_cast<std::uint16_t>(attribute);
  std::memcpy(bytes.data() + 20, &header, sizeof header);
  std::memcpy(bytes.data() + 20 + sizeof header, &message, sizeof message);
  return bytes;
}

SteeringTable table() {
  SteeringTable result;
  result.add("airdma/udp/300/2/0");
  result.add("airdma/udp/17/0/1");
  result.add("airdma/udp/4000/1/-");
  result.add("airdma/cmo/1061c15/17");
  result.add("airdma/cmo/1110050/4000");
  result.add("airdma/qpn/17");
  result.sort();
  return result;
}

TEST(SteeringTable, ReadsTheNamesItWrites) {
  SteeringTable written;
  written.add(SteeringTable::name_of(300, {2, 0}));
  written.add(SteeringTable::name_of(17, {0, 1}));
  written.add(SteeringTable::name_of(4000, {1, std::nullopt}));
  written.add(SteeringTable::name_of({0x01061c15, 17}));
  written.add(SteeringTable::name_of({0x01110050, 4000}));
  written.sort();
  EXPECT_EQ(written, table());
  EXPECT_EQ(written.blocks.front().indices, (SteeringIndices{0, 1}));
}

TEST(SteeringTable, IgnoresOtherNames) {
  for (const char* name :
       {"airdma/udp/", "airdma/udp/1", "airdma/udp/1/2", "airdma/udp/x/1/2", "airdma/udp/1/2/x",
        "airdma/udp/1//2", "airdma/udp/99999999999/1/2", "airdma/cmo/", "airdma/cmo/12",
        "airdma/cmo/zz/1", "airdma/other", "somebody"}) {
    SteeringTable result;
    result.add(name);
    EXPECT_EQ(result, SteeringTable{}) << name;
  }
}

TEST(SteeringProgram, BringsPacketsToTheOwnerOfTheNumber) {
  const auto v4 = steering_program(table(), false);
  const Machine machine(v4);
  EXPECT_EQ(machine.run(packet_for(Qpn(300 << 12))), 2u);
  EXPECT_EQ(machine.run(packet_for(Qpn(300 << 12 | 0xfff))), 2u);
  EXPECT_EQ(machine.run(packet_for(Qpn(17 << 12 | 5))), 0u);
  EXPECT_EQ(machine.run(packet_for(Qpn(4000 << 12 | 1))), 1u);
  EXPECT_EQ(machine.run(packet_for(Qpn(18 << 12))), kNoSocket);
  EXPECT_EQ(machine.run(packet_for(Qpn(0xffffff))), kNoSocket);
  const auto v6 = steering_program(table(), true);
  EXPECT_EQ(Machine(v6).run(packet_for(Qpn(300 << 12))), 0u);
  EXPECT_EQ(Machine(v6).run(packet_for(Qpn(4000 << 12))), kNoSocket);
}

TEST(SteeringProgram, LooksAtNumbersAlone) {
  auto packet = packet_for(Qpn(17 << 12 | 5));
  packet[4] = std::byte{0xff};  // congestion marks
  const auto program = steering_program(table(), false);
  EXPECT_EQ(Machine(program).run(packet), 0u);
  EXPECT_EQ(Machine(program).run({}), 0u);
  EXPECT_EQ(Machine(program).run(std::vector<std::byte>(7)), 0u);
}

TEST(SteeringProgram, BringsProbesWhereTheyAsk) {
  std::byte probe[SteeringProbe::kBytes];
  SteeringProbe{.index = 77, .sender = 1, .round = 2}.write(probe);
  const auto program = steering_program(SteeringTable{}, false);
  EXPECT_EQ(Machine(program).run({probe, probe + sizeof probe}), 77u);
  const auto read = SteeringProbe::read(probe, sizeof probe);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->index, 77u);
  EXPECT_EQ(read->sender, 1u);
  EXPECT_EQ(read->round, 2u);
  EXPECT_FALSE(SteeringProbe::read(probe, sizeof probe - 1));
  EXPECT_FALSE(SteeringProbe::read(packet_for(Qpn(5), 8).data(), sizeof probe));
}

TEST(SteeringProgram, BringsManagementToItsProcess) {
  namespace layout = wire::cm_layout;
  using wire::CmAttribute;
  const auto program = steering_program(table(), false);
  const Machine machine(program);
  layout::Req request{};
  request.service_id = 0x01061c15;
  EXPECT_EQ(machine.run(management(CmAttribute::kReq, request)), 0u);
  request.service_id = 0x01061c16;
  EXPECT_EQ(machine.run(management(CmAttribute::kReq, request)), kRandom % 3);
  layout::SidrReq lookup{};
  lookup.service_id = 0x01110050;
  EXPECT_EQ(machine.run(management(CmAttribute::kSidrReq, lookup)), 1u);
  layout::SidrRep answer{};
  answer.request_id = 300u << 20 | 9;
  EXPECT_EQ(machine.run(management(CmAttribute::kSidrRep, answer)), 2u);
  for (const auto attribute : {CmAttribute::kRep, CmAttribute::kRtu, CmAttribute::kRej,
                               CmAttribute::kDreq, CmAttribute::kDrep, CmAttribute::kMra}) {
    layout::Ids ids{};
    ids.local_id = 17u << 20 | 9;
    ids.remote_id = 4000u << 20 | 9;
    EXPECT_EQ(machine.run(management(attribute, ids)), 1u);
    ids.remote_id = 5u << 20;
    EXPECT_EQ(machine.run(management(attribute, ids)), kNoSocket);
  }
}

TEST(SteeringProgram, StaysWithinTheKernelsLimits) {
  SteeringTable many;
  for (std::uint32_t i = 1; i < 4095; ++i) {
    many.add(SteeringTable::name_of(i, {i, i}));
    many.add(SteeringTable::name_of({0x01060000 + i, i}));
  }
  many.sort();
  const auto program = steering_program(many, false);
  EXPECT_LE(program.size(), 2200u);
  EXPECT_EQ(Machine(program).run(packet_for(Qpn(3 << 12))), 3u);
  EXPECT_EQ(Machine(program).run(packet_for(Qpn(4000 << 12))), kNoSocket);
}

// The program and the processes agree on where a datagram belongs.
TEST(MadRoute, AgreesWithTheProgram) {
  namespace layout = wire::cm_layout;
  const auto route_of = [](const std::vector<std::byte>& packet) {
    return route_mad(Bytes(packet).subspan(20));
  };
  layout::Req request{};
  request.service_id = 0x01061c15;
  const auto to_service = route_of(management(wire::CmAttribute::kReq, request));
  ASSERT_TRUE(to_service && to_service->service);
  EXPECT_EQ(*to_service->service, 0x01061c15u);
  request.service_id = 0x1000000001061c15;
  EXPECT_FALSE(route_of(management(wire::CmAttribute::kReq, request)));
  layout::Ids ids{};
  ids.remote_id = 4000u << 20 | 9;
  const auto to_block = route_of(management(wire::CmAttribute::kDreq, ids));
  ASSERT_TRUE(to_block && !to_block->service);
  EXPECT_EQ(to_block->block, 4000u);
  EXPECT_EQ(route_of(management(wire::CmAttribute::kRej, ids))->block, 4000u);
  EXPECT_FALSE(route_of(management(wire::CmAttribute::kRej, ids))->nameless);
  EXPECT_TRUE(route_of(management(wire::CmAttribute::kRej, layout::Ids{}))->nameless);
  auto other = management(wire::CmAttribute::kDreq, ids);
  other[21] = std::byte{3};  // subnet administration
  EXPECT_FALSE(route_mad(Bytes(other).subspan(20)));
  EXPECT_FALSE(route_mad(Bytes(other).subspan(21)));
}

}  // namespace
}  // namespace airdma::runtime
