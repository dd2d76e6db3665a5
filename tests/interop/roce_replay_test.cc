// SPDX-License-Identifier: MIT
// Captures of the kernel's rxe through our engines: its requests to our responder, whose answers
// are compared with rxe's; and its program's work to our requester, whose packets are compared with
// rxe's, fed by rxe's answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "tests/interop/capture.h"
#include "tests/sim/packet_pair.h"

namespace airdma::interop {
namespace {

using model::QpState;
using model::SendOpcode;
using model::WcStatus;
using rocev2::PacketOrigin;
using sim::PacketBytes;
using wire::Operation;
using wire::RocePacket;

constexpr std::uint16_t kRocePort = 4791;
constexpr std::size_t kIcrcBytes = 4;
constexpr PdId kPd = sim::kPd;

model::Gid gid_of(const ByteVector& address) {
  model::Gid gid;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(address.data());
  if (address.size() == 4) return model::Gid::from_v4({bytes[0], bytes[1], bytes[2], bytes[3]});
  std::copy_n(bytes, 16, gid.bytes.begin());
  return gid;
}

struct Recorded {
  PacketOrigin origin;
  PacketBytes bytes;
  RocePacket packet;  // its payload lies in `bytes`
};

/// The packets of one service between the two queue pairs of a capture.
struct Flow {
  std::vector<std::unique_ptr<Recorded>> packets;
  std::set<std::pair<model::Gid, std::uint32_t>> ends;  // address and QPN that packets went to
};

/// `qpn`: of both ends, in a capture of several connections.
Flow read_flow(const std::string& name, wire::Service service, std::optional<Qpn> qpn = {}) {
  Flow flow;
  const auto frames = read_frames(std::string(AIRDMA_CAPTURES) + "/" + name + ".pcap");
  if (!frames) return flow;
  for (const Datagram& datagram : udp_datagrams(*frames)) {
    if (datagram.destination.port != kRocePort || datagram.bytes.size() < kIcrcBytes) continue;
    auto recorded = std::make_unique<Recorded>();
    recorded->bytes = {datagram.bytes.begin(), datagram.bytes.end() - kIcrcBytes};
    const auto packet = wire::parse_roce_packet(recorded->bytes);
    if (!packet || packet->info->service != service || packet->destination == Qpn{1}) continue;
    if (qpn && packet->destination != *qpn) continue;
    recorded->packet = *packet;
    recorded->origin.source = gid_of(datagram.source.address);
    recorded->origin.destination = gid_of(datagram.destination.address);
    recorded->origin.hop_limit = datagram.hop_limit;
    flow.ends.emplace(recorded->origin.destination, packet->destination.value());
    flow.packets.push_back(std::move(recorded));
  }
  return flow;
}

/// One end of the flow: requests of the other, and its answers.
struct Side {
  model::Gid here;
  model::Gid there;
  std::uint32_t qpn = 0;  // of the end here
  std::uint32_t peer = 0;
};

std::vector<Side> sides(const Flow& flow) {
  if (flow.ends.size() == 1) {  // nobody answers
    const PacketOrigin& origin = flow.packets.front()->origin;
    return {{origin.destination, origin.source, flow.ends.begin()->second, 0}};
  }
  if (flow.ends.size() != 2) return {};
  const auto& [a, a_qpn] = *flow.ends.begin();
  const auto& [b, b_qpn] = *flow.ends.rbegin();
  if (a == b) return {};
  return {{a, b, a_qpn, b_qpn}, {b, a, b_qpn, a_qpn}};
}

bool comes_to(const Recorded& recorded, const Side& side) {
  return recorded.origin.destination == side.here;
}

std::uint32_t mtu_of(const Flow& flow) {
  std::size_t most = 0;
  for (const auto& recorded : flow.packets) {
    most = std::max(most, recorded->packet.payload.size());
  }
  return most <= 256 && most != 100 ? 256 : 1024;
}

/// What an answer says.
using Answer = std::tuple<std::uint8_t, std::uint32_t, wire::AckKind, std::uint8_t, std::uint32_t,
                          std::uint64_t, std::vector<std::byte>>;
Answer answer_of(const RocePacket& packet) {
  const bool aeth = packet.info->has(wire::kHasAeth);
  const auto& its = packet.acknowledgement;
  return {packet.info->opcode,
          packet.psn.value(),
          aeth ? its.kind : wire::AckKind::kAck,
          aeth && its.kind == wire::AckKind::kNak ? its.value : std::uint8_t{0},
          aeth ? its.msn.value() : 0,
          packet.info->has(wire::kHasAtomicAckEth) ? packet.original : 0,
          {packet.payload.begin(), packet.payload.end()}};
}

/// Memory that a peer names, by key.
class RemoteMemory {
 public:
  explicit RemoteMemory(model::MemoryTable& table) : table_(table) {}
  void include(Stag key, std::uint64_t address, std::uint64_t bytes) {
    if (bytes == 0) return;
    auto [found, fresh] = ranges_.try_emplace(key.value(), address, address + bytes);
    found->second.first = std::min(found->second.first, address);
    found->second.second = std::max(found->second.second, address + bytes);
  }
  void publish() {
    for (const auto& [key, range] : ranges_) {
      buffers_.emplace(key, std::make_unique<sim::Buffer>(table_, Stag{key}, range.first,
                                                          range.second - range.first));
    }
  }
  std::byte* at(Stag key, std::uint64_t address) {
    sim::Buffer& buffer = *buffers_.at(key.value());
    return buffer.bytes().data() + (address - buffer.base());
  }

 private:
  model::MemoryTable& table_;
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> ranges_;
  std::map<std::uint32_t, std::unique_ptr<sim::Buffer>> buffers_;
};

rocev2::QpAttributes attributes_of(const Flow& flow, const Side& side) {
  rocev2::QpAttributes attributes = sim::usual_attributes();
  attributes.path_mtu = mtu_of(flow);
  attributes.address.source = side.here;
  attributes.address.destination = side.there;
  attributes.remote_qpn = Qpn{side.peer};
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 128;
  attributes.qkey = flow.packets.front()->packet.qkey;
  bool receives = false;
  bool sends = false;
  for (const auto& recorded : flow.packets) {
    if (!recorded->packet.info->is_request) continue;
    bool& seen = comes_to(*recorded, side) ? receives : sends;
    Psn& psn = comes_to(*recorded, side) ? attributes.rq_psn : attributes.sq_psn;
    if (!seen) psn = recorded->packet.psn;
    seen = true;
  }
  return attributes;
}

model::QpType type_of(wire::Service service) {
  if (service == wire::Service::kUc) return model::QpType::kUc;
  return service == wire::Service::kUd ? model::QpType::kUd : model::QpType::kRc;
}

/// A queue pair of ours in the place of the one at `side`.
struct Stand {
  static constexpr std::uint32_t kDepth = 4096;
  static constexpr std::uint64_t kLocalBase = 0x10000;
  static constexpr std::uint32_t kReceiveBytes = 16384;

  Stand(const Flow& flow, const Side& its_side, wire::Service service)
      : side(its_side),
        sq(kDepth, 1, 0),
        rq(kDepth, 1, 0),
        endpoint({.type = type_of(service), .qpn = Qpn{its_side.qpn}, .pd = kPd}, table, sq, rq),
        memory(table),
        local(table, sim::kKey, kLocalBase, std::size_t{4} << 20) {
    rocev2::QpAttributes attributes = attributes_of(flow, side);
    for (const auto state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      attributes.state = state;
      endpoint.modify(attributes, ~model::QpAttrMask{0}, now);
    }
  }
  void post_receive() { sim::post_receive_to(rq, 0, {{kLocalBase, kReceiveBytes, sim::kKey}}); }
  void give(const Recorded& recorded) { endpoint.on_packet(recorded.packet, recorded.origin, now); }
  std::vector<PacketBytes> transmit() {
    std::vector<PacketBytes> sent;
    for (batch->clear(); endpoint.poll_transmit(*batch, now); batch->clear()) {
      for (const auto& packet : batch->packets()) sent.push_back(sim::flatten(*batch, packet));
    }
    batch->clear();
    for (const auto& wc : endpoint.completions()) completions.push_back(wc);
    endpoint.clear_completions();
    return sent;
  }

  Side side;
  Time now{};
  model::MemoryTable table;
  model::SendQueue sq;
  model::ReceiveQueue rq;
  rocev2::Endpoint endpoint;
  RemoteMemory memory;
  sim::Buffer local;
  std::unique_ptr<rocev2::PacketBatch> batch = std::make_unique<rocev2::PacketBatch>();
  std::vector<model::Completion> completions;
};

/// Whether rxe carried the request out, as its answers tell.
std::set<std::uint32_t> refused_psns(const Flow& flow, const Side& side) {
  std::set<std::uint32_t> psns;
  for (const auto& recorded : flow.packets) {
    const RocePacket& packet = recorded->packet;
    if (comes_to(*recorded, side) || packet.info->operation != Operation::kAcknowledge) continue;
    const auto& its = packet.acknowledgement;
    if (its.kind == wire::AckKind::kNak && !its.is_nak(wire::NakCode::kPsnSequence)) {
      psns.insert(packet.psn.value());
    }
  }
  return psns;
}

/// Gives the responder the memory that its peer names, with what rxe found there.
void lay_out_memory(Stand& stand, const Flow& flow) {
  const auto refused = refused_psns(flow, stand.side);
  std::map<std::uint32_t, std::pair<Stag, std::uint64_t>> counters;  // by PSN
  for (const auto& recorded : flow.packets) {
    const RocePacket& packet = recorded->packet;
    if (!comes_to(*recorded, stand.side) || refused.contains(packet.psn.value())) continue;
    if (packet.info->has(wire::kHasReth)) {
      stand.memory.include(packet.remote.rkey, packet.remote.address, packet.remote.bytes);
    }
    if (packet.info->has(wire::kHasAtomicEth)) {
      stand.memory.include(packet.atomic.rkey, packet.atomic.address, 8);
      counters.try_emplace(packet.psn.value(), packet.atomic.rkey, packet.atomic.address);
    }
  }
  stand.memory.publish();
  std::set<std::uint64_t> known;  // counters that have their first value
  for (const auto& recorded : flow.packets) {
    const RocePacket& packet = recorded->packet;
    const auto found = counters.find(packet.psn.value());
    if (packet.info->operation != Operation::kAtomicAcknowledge || found == counters.end())
      continue;
    const auto [key, address] = found->second;
    if (known.insert(address).second) {
      std::memcpy(stand.memory.at(key, address), &packet.original, 8);
    }
  }
}

/// rxe's program may have changed what is read: it is put where rxe found it.
void restore(Stand& stand, const Flow& flow, const RocePacket& read) {
  const std::uint32_t mtu = mtu_of(flow);
  for (const auto& recorded : flow.packets) {
    const RocePacket& packet = recorded->packet;
    if (packet.info->operation != Operation::kReadResponse) continue;
    const std::int32_t at = read.psn.distance_to(packet.psn);
    if (at < 0 || std::uint32_t(at) * mtu + packet.payload.size() > read.remote.bytes) continue;
    std::copy(packet.payload.begin(), packet.payload.end(),
              stand.memory.at(read.remote.rkey, read.remote.address + std::uint32_t(at) * mtu));
  }
}

void replay_responder(const Flow& flow, const Side& side) {
  Stand stand(flow, side, wire::Service::kRc);
  lay_out_memory(stand, flow);
  for (std::uint32_t i = 0; i < Stand::kDepth; ++i) stand.post_receive();
  std::set<Answer> expected;
  std::set<Answer> given;
  for (const auto& recorded : flow.packets) {
    if (!comes_to(*recorded, side)) {
      if (!recorded->packet.info->is_request) expected.insert(answer_of(recorded->packet));
      continue;
    }
    if (!recorded->packet.info->is_request) continue;
    if (recorded->packet.info->operation == Operation::kReadRequest) {
      restore(stand, flow, recorded->packet);
    }
    stand.give(*recorded);
    for (const PacketBytes& bytes : stand.transmit()) {
      given.insert(answer_of(sim::readable(bytes)));
    }
  }
  for (const Answer& answer : expected) {
    EXPECT_TRUE(given.contains(answer))
        << "opcode " << int(std::get<0>(answer)) << " psn " << std::get<1>(answer) << " msn "
        << std::get<4>(answer) << " bytes " << std::get<6>(answer).size();
  }
}

// The other role.

/// What a request packet asks for.
using Request = std::tuple<std::uint8_t, std::uint32_t, std::uint64_t, std::uint32_t, std::uint32_t,
                           std::uint32_t, std::vector<std::byte>>;
Request request_of(const RocePacket& packet) {
  const bool reth = packet.info->has(wire::kHasReth);
  const bool atomic = packet.info->has(wire::kHasAtomicEth);
  return {packet.info->opcode,
          packet.psn.value(),
          reth     ? packet.remote.address
          : atomic ? packet.atomic.address
                   : 0,
          reth     ? packet.remote.rkey.value()
          : atomic ? packet.atomic.rkey.value()
                   : 0,
          reth ? packet.remote.bytes : 0,
          packet.info->has(wire::kHasImmDt) ? packet.immediate : 0,
          {packet.payload.begin(), packet.payload.end()}};
}

std::optional<SendOpcode> opcode_of(const RocePacket& last) {
  const bool immediate = last.info->has(wire::kHasImmDt);
  switch (last.info->operation) {
    case Operation::kSend:
      return immediate ? SendOpcode::kSendWithImm : SendOpcode::kSend;
    case Operation::kWrite:
      return immediate ? SendOpcode::kWriteWithImm : SendOpcode::kWrite;
    case Operation::kReadRequest:
      return SendOpcode::kRead;
    case Operation::kCompareSwap:
      return SendOpcode::kCompareSwap;
    case Operation::kFetchAdd:
      return SendOpcode::kFetchAdd;
    default:
      return std::nullopt;
  }
}

/// Posts the work whose packets the end at `side` sent; the requests, as rxe made them.
std::vector<Request> post_work(Stand& stand, const Flow& flow) {
  std::vector<Request> expected;
  std::size_t at = 0;
  std::size_t begin = 0;
  sim::Post post;
  for (const auto& recorded : flow.packets) {
    const RocePacket& packet = recorded->packet;
    if (comes_to(*recorded, stand.side) || !packet.info->is_request) continue;
    expected.push_back(request_of(packet));
    if (packet.info->starts()) begin = at;
    if (packet.info->has(wire::kHasReth)) {
      post.remote_addr = packet.remote.address;
      post.rkey = packet.remote.rkey;
    }
    if (packet.info->has(wire::kHasAtomicEth)) {
      const bool swap = packet.info->operation == Operation::kCompareSwap;
      post.remote_addr = packet.atomic.address;
      post.rkey = packet.atomic.rkey;
      post.compare_add = swap ? packet.atomic.compare : packet.atomic.swap_or_add;
      post.swap = packet.atomic.swap_or_add;
    }
    std::copy(packet.payload.begin(), packet.payload.end(),
              stand.local.bytes().begin() + static_cast<long>(at));
    at += packet.payload.size();
    if (!packet.info->ends()) continue;
    std::size_t bytes = at - begin;
    if (packet.info->operation == Operation::kReadRequest) bytes = packet.remote.bytes;
    if (packet.info->has(wire::kHasAtomicEth)) bytes = 8;
    at = begin + bytes;
    post.opcode = *opcode_of(packet);
    post.immediate = packet.immediate;
    post.solicited = packet.solicited;
    post.sges = {{.addr = Stand::kLocalBase + begin,
                  .length = static_cast<std::uint32_t>(bytes),
                  .lkey = sim::kKey}};
    sim::post_to(stand.sq, post);
    post = {};
  }
  return expected;
}

void replay_requester(const Flow& flow, const Side& side) {
  Stand stand(flow, side, wire::Service::kRc);
  const std::vector<Request> expected = post_work(stand, flow);
  const std::uint64_t posted = stand.sq.tail();
  std::vector<Request> made;
  const auto collect = [&] {
    for (const PacketBytes& bytes : stand.transmit()) {
      const RocePacket packet = sim::readable(bytes);
      if (packet.info->is_request) made.push_back(request_of(packet));
    }
  };
  collect();
  for (const auto& recorded : flow.packets) {
    if (!comes_to(*recorded, side) || recorded->packet.info->is_request) continue;
    stand.give(*recorded);
    collect();
  }
  EXPECT_EQ(made.size(), expected.size());
  EXPECT_TRUE(made == expected);
  ASSERT_EQ(stand.completions.size(), posted);
  for (const auto& wc : stand.completions) EXPECT_EQ(wc.status, WcStatus::kSuccess);
  EXPECT_TRUE(stand.endpoint.sends_drained());
}

class Replay : public testing::TestWithParam<const char*> {};

TEST_P(Replay, ResponderAnswersAsRxe) {
  const Flow flow = read_flow(GetParam(), wire::Service::kRc);
  const auto both = sides(flow);
  ASSERT_EQ(both.size(), 2u);
  for (const Side& side : both) replay_responder(flow, side);
}

class RequesterReplay : public Replay {};

TEST_P(RequesterReplay, AsksAsRxe) {
  const Flow flow = read_flow(GetParam(), wire::Service::kRc);
  for (const Side& side : sides(flow)) replay_requester(flow, side);
}

std::string test_name(const testing::TestParamInfo<const char*>& name) {
  std::string text = name.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// The first one was refused: what its program asked for beyond that is not known.
constexpr const char* kCaptures[] = {
    "rxe-nak-write-bounds", "rxe-privdata-imm",   "rxe-rc-cmpswap",    "rxe-rc-fetchadd",
    "rxe-rc-pingpong",      "rxe-rc-read-100",    "rxe-rc-read-5001",  "rxe-rc-send-100",
    "rxe-rc-send-5001",     "rxe-rc-write-100",   "rxe-rc-write-5001", "rxe-rc-write-mtu256",
    "rxe-rping-v4",         "rxe-rping-v4-S5001", "rxe-rping-v6",      "rxe-ucmatose-v4"};

/// Packets are missing that were sent again.
INSTANTIATE_TEST_SUITE_P(RxeLost, Replay, testing::Values("rxe-loss-write", "rxe-loss-atomic"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Rxe, Replay, testing::ValuesIn(kCaptures), test_name);
INSTANTIATE_TEST_SUITE_P(Rxe, RequesterReplay,
                         testing::ValuesIn(std::begin(kCaptures) + 1, std::end(kCaptures)),
                         test_name);

TEST(Replay, BothConnectionsOfOneCapture) {
  for (const Qpn qpn : {Qpn{0x1c}, Qpn{0x1d}}) {
    const Flow flow = read_flow("rxe-cm-write-5001", wire::Service::kRc, qpn);
    const auto both = sides(flow);
    ASSERT_EQ(both.size(), 2u);
    for (const Side& side : both) {
      replay_responder(flow, side);
      replay_requester(flow, side);
    }
  }
}

/// Deviation: rxe says "operational error" of a message that is longer than its receive. The
/// standard's word is "invalid request".
TEST(Replay, AMessageThatIsTooLongIsRefused) {
  const Flow flow = read_flow("rxe-nak-send-toolong", wire::Service::kRc);
  const auto both = sides(flow);
  ASSERT_EQ(both.size(), 2u);
  for (const Side& side : both) {
    Stand stand(flow, side, wire::Service::kRc);
    sim::post_receive_to(stand.rq, 0, {{Stand::kLocalBase, 64, sim::kKey}});
    std::vector<RocePacket> answers;
    std::vector<PacketBytes> bytes;
    bool asked = false;
    for (const auto& recorded : flow.packets) {
      if (!comes_to(*recorded, side) || !recorded->packet.info->is_request) continue;
      asked = true;
      stand.give(*recorded);
      for (PacketBytes& answer : stand.transmit()) bytes.push_back(std::move(answer));
    }
    if (!asked) continue;
    ASSERT_FALSE(bytes.empty());
    EXPECT_TRUE(sim::readable(bytes[0]).acknowledgement.is_nak(wire::NakCode::kInvalidRequest));
    EXPECT_EQ(sim::readable(bytes[0]).psn, attributes_of(flow, side).rq_psn);
    ASSERT_EQ(stand.completions.size(), 1u);
    EXPECT_EQ(stand.completions[0].status, WcStatus::kLocalLengthError);
    EXPECT_EQ(stand.endpoint.state(), QpState::kError);
  }
}

class UdReplay : public testing::TestWithParam<const char*> {};

TEST_P(UdReplay, EveryDatagramMeetsAReceive) {
  constexpr std::size_t kHeaderBytes = 40;
  const Flow flow = read_flow(GetParam(), wire::Service::kUd);
  ASSERT_FALSE(flow.packets.empty());
  for (const auto& [here, qpn] : flow.ends) {
    const Side side{.here = here, .there = {}, .qpn = qpn, .peer = 0};
    Stand stand(flow, side, wire::Service::kUd);
    std::vector<const Recorded*> given;
    for (const auto& recorded : flow.packets) {
      if (!comes_to(*recorded, side)) continue;
      stand.post_receive();
      stand.give(*recorded);
      (void)stand.transmit();
      given.push_back(recorded.get());
      ASSERT_EQ(stand.completions.size(), given.size());
      const RocePacket& packet = recorded->packet;
      const model::Completion& wc = stand.completions.back();
      EXPECT_EQ(wc.status, WcStatus::kSuccess);
      EXPECT_EQ(wc.byte_len, kHeaderBytes + packet.payload.size());
      EXPECT_EQ(wc.immediate, packet.info->has(wire::kHasImmDt) ? packet.immediate : 0u);
      EXPECT_TRUE(std::equal(packet.payload.begin(), packet.payload.end(),
                             stand.local.bytes().begin() + kHeaderBytes));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rxe, UdReplay,
                         testing::Values("rxe-ud-send-1001", "rxe-udaddy", "rxe-mckey"), test_name);

class UcReplay : public testing::TestWithParam<const char*> {};

TEST_P(UcReplay, OurResponderTakesEveryMessage) {
  const Flow flow = read_flow(GetParam(), wire::Service::kUc);
  const auto both = sides(flow);
  std::size_t messages = 0;
  for (const Side& side : both) {
    Stand stand(flow, side, wire::Service::kUc);
    lay_out_memory(stand, flow);
    for (int i = 0; i < 100; ++i) stand.post_receive();
    std::size_t sends = 0;
    for (const auto& recorded : flow.packets) {
      if (!comes_to(*recorded, side)) continue;
      stand.give(*recorded);
      const RocePacket& packet = recorded->packet;
      if (packet.info->ends() && packet.info->operation == Operation::kSend) ++sends;
      if (packet.info->operation == Operation::kWrite && packet.info->has(wire::kHasReth)) {
        EXPECT_EQ(std::memcmp(stand.memory.at(packet.remote.rkey, packet.remote.address),
                              packet.payload.data(), packet.payload.size()),
                  0);
        ++messages;
      }
    }
    (void)stand.transmit();
    EXPECT_EQ(stand.completions.size(), sends);
    EXPECT_EQ(stand.endpoint.state(), QpState::kRts);
    messages += sends;
  }
  EXPECT_GT(messages, 0u);
}

INSTANTIATE_TEST_SUITE_P(Rxe, UcReplay, testing::Values("rxe-uc-send-5001", "rxe-uc-write-5001"),
                         test_name);

}  // namespace
}  // namespace airdma::interop
