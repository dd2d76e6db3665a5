// SPDX-License-Identifier: MIT
// A peer that does anything, against a RoCEv2 queue pair of any type with memory, receives and
// work of its own: requester and responder together.
// Input: a byte of options, then commands of one byte each, taken modulo their number:
//   0 n bytes   give them as a packet            1 b8      a request made from 8 bytes, PSN near
//   2 b8        a response made from 8 bytes     3         post a receive
//   4 b1        post a send of this opcode       5         poll and send
//   6           let time pass                    7         the memory is deregistered
//   8           the program fails it             9         SQD, or RTS again
//   10          RESET, and RTS again             11        a payload cannot be read
// n is two bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "engine/rocev2/endpoint.h"
#include "fuzz/check.h"
#include "fuzz/subject.h"
#include "model/memory.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace {

using namespace airdma;
using fuzz::Commands;
using fuzz::GuardedMemory;

constexpr std::uint64_t kBase = GuardedMemory::kBase;
constexpr Stag kKey = GuardedMemory::kKey;
constexpr PdId kPd = GuardedMemory::kPd;

class Domain final : public rocev2::XrcReceives {
 public:
  Outcome take(Srqn number, model::ReceiveQueue& queue, PdId& pd) override {
    if (number.value() > 2) return Outcome::kNoSuchQueue;
    if (number.value() == 2) return Outcome::kEmpty;
    model::ReceiveWqe& wqe = queue.slot(0);
    wqe.sge_count = 1;
    wqe.sges[0] = {.addr = kBase, .length = 700, .lkey = kKey};
    wqe.length = 700;
    queue.publish(1);
    ++taken;
    pd = kPd;
    return Outcome::kTaken;
  }
  std::optional<PdId> domain(Srqn number) override {
    return number.value() > 2 ? std::nullopt : std::optional(kPd);
  }
  std::uint64_t taken = 0;
};

class Subject {
 public:
  explicit Subject(std::uint8_t options)
      : config_(config_of(options)),
        sends_(8, 2, 16, config_.type == model::QpType::kUd),
        receives_(8, 2, 0),
        memory_(table_, 2048),
        endpoint_(config_, table_, sends_, receives_) {
    connect();
  }

  void packet(Bytes bytes) {
    const auto parsed = wire::parse_roce_packet(bytes);
    if (parsed) {
      endpoint_.on_packet(*parsed, origin(), now_);
    } else {
      endpoint_.on_unreadable(parsed.error(), origin(), now_);
    }
  }
  /// A packet that is well made as far as its opcode lets it be.
  void made(const std::array<std::uint8_t, 8>& from, bool request) {
    wire::RocePacket made;
    const unsigned service = static_cast<unsigned>(service_) << 5;
    made.info = wire::find_roce_opcode(static_cast<std::uint8_t>(service | (from[0] & 31)));
    if (made.info == nullptr || made.info->is_request != request) return;
    const auto attributes = endpoint_.attributes();
    const Psn near = request ? attributes.rq_psn : attributes.sq_psn.previous();
    made.psn = near.next(static_cast<std::uint32_t>(static_cast<std::int8_t>(from[1]) / 8));
    made.pkey = Pkey{0xffff};
    made.ack_request = (from[2] & 1) != 0;
    made.fecn = (from[2] & 2) != 0;
    made.srqn = Srqn{static_cast<std::uint32_t>(from[2] >> 2 & 3)};
    made.qkey = Qkey{static_cast<std::uint32_t>(from[2] >> 7)};
    made.remote = {.address = kBase + from[3] * 9u,
                   .rkey = (from[4] & 15) == 15 ? Stag{0xbad} : kKey,
                   .bytes = from[5] * 5u};
    made.atomic = {.address = kBase + from[3] * 8u, .rkey = kKey, .swap_or_add = from[5]};
    made.acknowledgement = {.kind = static_cast<wire::AckKind>(from[6] & 3),
                            .value = static_cast<std::uint8_t>(from[6] >> 3 & 31),
                            .msn = {}};
    made.invalidate = kKey;
    const std::size_t sizes[] = {0, 1, 40, 255, 256, 257, 256, 256};
    std::vector<std::byte> payload(made.info->may_carry_payload ? sizes[from[7] & 7] : 0);
    made.payload = payload;
    endpoint_.on_packet(made, origin(), now_);
  }
  void post_receive() {
    if (service_ == wire::Service::kXrc || receives_.free_slots() == 0) return;
    model::ReceiveWqe& wqe = receives_.slot(0);
    wqe.sge_count = 2;
    wqe.sges[0] = {.addr = kBase, .length = 3, .lkey = kKey};
    wqe.sges[1] = {.addr = kBase + 100, .length = 500, .lkey = kKey};
    wqe.length = 503;
    receives_.publish(1);
    ++posted_;
  }
  void post_send(std::uint8_t opcode) {
    if (config_.xrc_receives != nullptr || sends_.free_slots() == 0) return;
    model::SendWqe& wqe = sends_.slot(0);
    wqe.opcode = static_cast<model::SendOpcode>(opcode % 11);
    wqe.signaled = true;
    wqe.fence = (opcode & 0x80) != 0;
    wqe.sge_count = 1;
    const bool atomic = opcode % 11 == 5 || opcode % 11 == 6;
    wqe.length = atomic ? 8 : (opcode >> 4) * 150u;
    wqe.sges[0] = {.addr = kBase + 10, .length = wqe.length, .lkey = kKey};
    wqe.rkey = kKey;
    sends_.publish(1);
    ++posted_;
  }
  void poll(bool unreadable) {
    for (int i = 0; i < 8; ++i) {
      batch_.clear();
      if (!endpoint_.poll_transmit(batch_, now_)) break;
      for (const rocev2::OutPacket& out : batch_.packets()) {
        std::size_t bytes = 0;
        for (const Bytes piece : batch_.pieces(out)) {
          bytes += piece.size();
          FUZZ_CHECK(std::count(piece.begin(), piece.end(), std::byte{}) <= 4096);
        }
        FUZZ_CHECK(bytes == out.payload_bytes && bytes <= 256 + 768);
        if (unreadable) endpoint_.on_unsent(out, now_);
        unreadable = false;
      }
    }
    batch_.clear();
  }
  void pass_time() {
    now_ += std::chrono::milliseconds(9);
    endpoint_.on_deadline(now_);
  }
  void withdraw() { memory_.withdraw(); }
  void fail() { endpoint_.fail(now_); }
  void hold() {
    rocev2::QpAttributes attributes;
    const auto state = endpoint_.state();
    if (state != model::QpState::kRts && state != model::QpState::kSqd &&
        state != model::QpState::kSqe) {
      return;
    }
    attributes.state = state == model::QpState::kRts ? model::QpState::kSqd : model::QpState::kRts;
    endpoint_.modify(attributes, model::kQpAttrState, now_);
  }
  void reset() {
    check();
    endpoint_.modify({}, model::kQpAttrState, now_);
    check();
    posted_ = completed_ = domain_.taken = 0;
    connect();
  }

  void check() {
    completed_ += endpoint_.completions().size();
    endpoint_.clear_completions();
    while (endpoint_.poll_event()) {
    }
    memory_.check();
    const std::size_t left =
        (sends_.tail() - sends_.head()) + (receives_.tail() - receives_.head());
    if (endpoint_.state() != model::QpState::kReset) {
      FUZZ_CHECK(completed_ + left == posted_ + domain_.taken);
    }
    if (endpoint_.state() == model::QpState::kError) FUZZ_CHECK(left == 0);
  }

 private:
  rocev2::EndpointConfig config_of(std::uint8_t options) {
    constexpr model::QpType kTypes[] = {
        model::QpType::kRc,         model::QpType::kUc, model::QpType::kUd, model::QpType::kXrcSend,
        model::QpType::kXrcReceive, model::QpType::kRc, model::QpType::kRc, model::QpType::kRc};
    constexpr wire::Service kServices[] = {
        wire::Service::kRc,  wire::Service::kUc, wire::Service::kUd, wire::Service::kXrc,
        wire::Service::kXrc, wire::Service::kRc, wire::Service::kRc, wire::Service::kRc};
    service_ = kServices[options & 7];
    rocev2::EndpointConfig config{.type = kTypes[options & 7], .qpn = Qpn{1}, .pd = kPd};
    if (config.type == model::QpType::kXrcReceive) config.xrc_receives = &domain_;
    config.datagram_bytes = 1024;
    return config;
  }
  static model::Gid host(std::uint8_t number) { return model::Gid::from_v4({10, 0, 0, number}); }
  static rocev2::PacketOrigin origin() {
    return {.source = host(2), .destination = host(1), .traffic_class = 3};
  }
  void connect() {
    rocev2::QpAttributes attributes;
    attributes.remote_access = 14;
    attributes.path_mtu = 256;
    attributes.address.source = host(1);
    attributes.address.destination = host(2);
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 2;
    attributes.timeout = 8;
    attributes.retry_count = 2;
    attributes.rnr_retry = 2;
    attributes.sq_psn = Psn{0xfffffe};
    attributes.rq_psn = Psn{3};
    for (const auto state : {model::QpState::kInit, model::QpState::kRtr, model::QpState::kRts}) {
      attributes.state = state;
      endpoint_.modify(attributes, ~model::QpAttrMask{0}, now_);
    }
  }

  Domain domain_;
  wire::Service service_ = wire::Service::kRc;
  rocev2::EndpointConfig config_;
  model::MemoryTable table_;
  model::SendQueue sends_;
  model::ReceiveQueue receives_;
  GuardedMemory memory_;
  rocev2::PacketBatch batch_;
  rocev2::Endpoint endpoint_;
  Time now_{};
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
};

std::array<std::uint8_t, 8> take_eight(Commands& input) {
  std::array<std::uint8_t, 8> all{};
  for (std::uint8_t& byte : all) byte = input.byte();
  return all;
}

void command(Subject& subject, unsigned code, Commands& input) {
  switch (code % 12) {
    case 0:
      return subject.packet(input.counted_bytes());
    case 1:
      return subject.made(take_eight(input), true);
    case 2:
      return subject.made(take_eight(input), false);
    case 3:
      return subject.post_receive();
    case 4:
      return subject.post_send(input.byte());
    case 5:
      return subject.poll(false);
    case 6:
      return subject.pass_time();
    case 7:
      return subject.withdraw();
    case 8:
      return subject.fail();
    case 9:
      return subject.hold();
    case 10:
      return subject.reset();
    default:
      return subject.poll(true);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  airdma::fuzz::run_commands<Subject>(airdma::fuzz::input(data, size), command);
  return 0;
}
