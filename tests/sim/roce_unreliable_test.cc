// SPDX-License-Identifier: MIT
// UC and UD in a network that loses, doubles, delays and reorders: what arrives is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/packet_pair.h"
#include "tests/sim/random.h"
#include "tests/sim/seeds.h"

namespace airdma::sim {
namespace {

using model::QpType;
using model::SendOpcode;
using model::WcStatus;
using std::chrono::microseconds;

constexpr std::uint64_t kBase = 0x10000;
constexpr std::uint32_t kMtu = 256;
constexpr std::size_t kMessages = 40;
constexpr std::uint32_t kMost = 1200;  // bytes of a message
constexpr std::size_t kGrh = 40;

/// One way, from a to b; each message says which it is, and is known by that.
class UnreliableWorld {
 public:
  UnreliableWorld(std::uint64_t seed, QpType type)
      : random_(seed),
        type_(type),
        a_(1, config(type), 64),
        b_(2, config(type), 64),
        source_(a_.table, kKey, kBase, kMessages * kMost),
        sink_(b_.table, kKey, kBase, 2 * kMessages * kMost) {
    rocev2::QpAttributes attributes = usual_attributes();
    attributes.path_mtu = kMtu;
    attributes.sq_psn = attributes.rq_psn = Psn{0xfffff0};
    a_.connect(attributes, 2, now_);
    b_.connect(attributes, 1, now_);
    fill(source_.bytes(), static_cast<std::uint32_t>(seed));
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      std::memcpy(source_.bytes().data() + i * kMost, &i, sizeof i);
      lengths_.push_back(static_cast<std::uint32_t>(
          random_.between(sizeof i, type == QpType::kUd ? kMtu : kMost)));
      writes_.push_back(type == QpType::kUc && random_.one_in(3));
    }
  }

  std::string run() {
    for (std::uint32_t i = 0; i < kMessages && failure_.empty(); ++i) {
      post(i);
      if (random_.one_in(3)) step();
    }
    while (failure_.empty() && (a_.endpoint.may_transmit() || !flying_.empty())) step();
    if (failure_.empty() && a_.completions.size() != kMessages) failure_ = "sends are left";
    for (const auto& wc : a_.completions) {
      if (wc.status != WcStatus::kSuccess) failure_ = "a send failed";
    }
    if (failure_.empty() && b_.endpoint.state() != model::QpState::kRts) failure_ = "it failed";
    return failure_;
  }

 private:
  struct Flying {
    Time at{};
    PacketBytes bytes;
  };

  static rocev2::EndpointConfig config(QpType type) {
    rocev2::EndpointConfig made;
    made.type = type;
    made.datagram_bytes = kMtu;
    return made;
  }
  [[nodiscard]] std::uint64_t place_of_write(std::uint32_t i) const {
    return (kMessages + i) * kMost;
  }

  void post(std::uint32_t i) {
    if (random_.one_in(8) == false) {
      b_.post_receive(receives_, {{kBase + receives_ % kMessages * kMost, kMost, kKey}});
      ++receives_;
    }
    Post post{.wr_id = i, .sges = {{kBase + i * kMost, lengths_[i], kKey}}};
    if (writes_[i]) {
      post.opcode = SendOpcode::kWriteWithImm;
      post.remote_addr = kBase + place_of_write(i);
      post.immediate = i;
    }
    post.remote_qpn = Qpn{2};
    post.remote_qkey = Qkey{0x11};
    post.address.source = host(1);
    post.address.destination = host(2);
    a_.post(post);
  }

  void fly(PacketBytes bytes) {
    if (random_.one_in(12)) return;
    if (random_.one_in(12)) fly(bytes);
    const Time at = now_ + microseconds(random_.below(random_.one_in(12) ? 300 : 3));
    flying_.push_back({.at = at, .bytes = std::move(bytes)});
  }

  void step() {
    for (PacketBytes& bytes : a_.transmit(now_)) fly(std::move(bytes));
    now_ += microseconds(random_.below(20));
    std::stable_sort(flying_.begin(), flying_.end(),
                     [](const Flying& x, const Flying& y) { return x.at < y.at; });
    while (!flying_.empty() && flying_.front().at <= now_) {
      b_.receive(flying_.front().bytes, 1, now_);
      flying_.erase(flying_.begin());
      for (const model::Completion& wc : b_.completions) arrived(wc);
      b_.completions.clear();
    }
  }

  void arrived(const model::Completion& wc) {
    if (wc.wr_id != next_receive_++) return fail("receives out of order");
    if (wc.status != WcStatus::kSuccess) return fail("a receive failed");
    const std::size_t grh = type_ == QpType::kUd ? kGrh : 0;
    const bool write = wc.opcode == model::WcOpcode::kReceiveRdmaWithImm;
    std::size_t at = wc.wr_id % kMessages * kMost + grh;
    std::uint32_t i = wc.immediate;
    if (write) {
      at = place_of_write(i);
    } else {
      std::memcpy(&i, sink_.bytes().data() + at, sizeof i);
    }
    if (i >= kMessages || writes_[i] != write) return fail("a message nobody sent");
    if (wc.byte_len != lengths_[i] + grh) return fail("a message has the wrong length");
    if (std::memcmp(sink_.bytes().data() + at, source_.bytes().data() + i * kMost, lengths_[i]) !=
        0)
      return fail("a message has wrong bytes");
    // Datagrams may come twice and in any order.
    if (type_ == QpType::kUc && next_message_ > i) return fail("a message came twice, or late");
    next_message_ = i + 1;
  }

  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  Random random_;
  QpType type_;
  Time now_{};
  PacketSide a_;
  PacketSide b_;
  Buffer source_;
  Buffer sink_;
  std::vector<std::uint32_t> lengths_;
  std::vector<bool> writes_;
  std::vector<Flying> flying_;
  std::uint64_t receives_ = 0;
  std::uint64_t next_receive_ = 0;
  std::uint32_t next_message_ = 0;
  std::string failure_;
};

class UnreliableSeeds : public testing::TestWithParam<QpType> {};

TEST_P(UnreliableSeeds, BringNothingWrong) {
  for_each_seed(200, [](std::uint64_t seed) { return UnreliableWorld(seed, GetParam()).run(); });
}

INSTANTIATE_TEST_SUITE_P(Types, UnreliableSeeds, testing::Values(QpType::kUc, QpType::kUd),
                         [](const auto& type) { return type.param == QpType::kUc ? "Uc" : "Ud"; });

}  // namespace
}  // namespace airdma::sim
