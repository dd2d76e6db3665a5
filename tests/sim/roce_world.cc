// SPDX-License-Identifier: MIT
#include "tests/sim/roce_world.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "wire/print.h"

namespace airdma::sim {

using model::QpState;
using model::WcStatus;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

Scale choose_scale(Random& random) {
  const bool large = random.one_in(16);
  return {.max_message = large ? 100000u : random.pick({64u, 700u, 5000u}),
          .source_bytes = std::size_t{128} * 1024,
          .sink_bytes = large ? std::size_t{2} << 20 : std::size_t{160} << 10,
          .long_one_in = 4,
          .write_is_placed = true};
}

}  // namespace

RoceWorld::Player::Player(std::uint8_t number, const Scale& scale, Random& random)
    : side(number, {}, Program::kDepth, Program::kMaxSge),
      program(side.table, side.sq, side.rq, scale, random) {}

RoceWorld::RoceWorld(std::uint64_t seed, Trouble trouble)
    : Exchange(seed, choose_scale), trouble_(trouble), v6_(seed % 2 == 0) {
  for (std::size_t i = 0; i < 2; ++i) {
    players_[i] = std::make_unique<Player>(static_cast<std::uint8_t>(i + 1), scale_, random_);
  }
  stormy_ = trouble == Trouble::kStorm || (trouble >= Trouble::kSilence && random_.one_in(3));
  lossy_ = trouble == Trouble::kLoss;
  connect();
}

void RoceWorld::connect() {
  rocev2::QpAttributes attributes = usual_attributes();
  attributes.path_mtu = random_.pick({256u, 256u, 512u, 1024u, 4096u});
  attributes.timeout = static_cast<std::uint8_t>(random_.between(8, 14));
  attributes.min_rnr_timer = static_cast<std::uint8_t>(random_.between(1, 14));
  const auto psn = [&] { return Psn{static_cast<std::uint32_t>(random_.next())}; };
  const auto depth = [&] { return static_cast<std::uint8_t>(random_.between(1, 8)); };
  attributes.sq_psn = random_.one_in(3) ? Psn{0xffffff} : psn();
  attributes.rq_psn = psn();
  attributes.max_rd_atomic = depth();
  attributes.max_dest_rd_atomic = depth();
  player(0).side.v6 = player(1).side.v6 = v6_;
  player(0).side.connect(attributes, 2, now_);
  std::swap(attributes.sq_psn, attributes.rq_psn);
  std::swap(attributes.max_rd_atomic, attributes.max_dest_rd_atomic);
  player(1).side.connect(attributes, 1, now_);
}

std::string RoceWorld::endpoints() const {
  return std::string(players_[0]->side.endpoint.failure()) + "; " +
         players_[1]->side.endpoint.failure();
}

bool RoceWorld::may_fail_with(WcStatus status) const {
  return trouble_ == Trouble::kWithdraw || status == WcStatus::kRetryExceeded;
}

// The network.

void RoceWorld::trace(std::size_t to, const PacketBytes& bytes) const {
  const auto at = std::chrono::duration_cast<microseconds>(now_.time_since_epoch()).count();
  std::fprintf(stderr, "%8lld us to %zu: %s\n", static_cast<long long>(at), to,
               wire::roce_to_text(bytes).c_str());
}

void RoceWorld::fly(std::size_t to, PacketBytes bytes) {
  if (trace_) trace(to, bytes);
  if (cut_) return;
  Time at = now_ + microseconds(20);
  if (lossy_ && random_.one_in(50)) return;
  if (stormy_) {
    if (random_.one_in(10)) return;
    at += microseconds(random_.below(random_.one_in(10) ? 3000 : 30));
    if (random_.one_in(10)) fly(to, bytes);
  }
  flying_.push_back({.at = at, .to = to, .bytes = std::move(bytes)});
}

void RoceWorld::transmit(std::size_t from) {
  for (PacketBytes& bytes : player(from).side.transmit(now_)) fly(1 - from, std::move(bytes));
}

/// To the next thing that happens by itself.
void RoceWorld::pass_time() {
  std::optional<Time> next;
  const auto consider = [&](std::optional<Time> at) {
    if (at && (!next || *at < *next)) next = at;
  };
  for (const Flying& packet : flying_) consider(packet.at);
  for (auto& player : players_) consider(player->side.endpoint.next_deadline());
  if (!next) return;
  now_ = std::max(now_, *next);
  for (auto& player : players_) player->side.endpoint.on_deadline(now_);
  deliver();
  for (std::size_t i = 0; i < 2; ++i) transmit(i);
}

/// What has arrived, in the order of arrival; several packets may be received at once.
void RoceWorld::deliver() {
  std::stable_sort(flying_.begin(), flying_.end(),
                   [](const Flying& a, const Flying& b) { return a.at < b.at; });
  std::size_t count = 0;
  while (count < flying_.size() && flying_[count].at <= now_) ++count;
  if (random_.one_in(2)) count = std::min(count, random_.between(1, 8));
  const std::vector<Flying> arrived(
      std::make_move_iterator(flying_.begin()),
      std::make_move_iterator(flying_.begin() + static_cast<long>(count)));
  flying_.erase(flying_.begin(), flying_.begin() + static_cast<long>(count));
  for (const Flying& packet : arrived) {
    const auto from = static_cast<std::uint8_t>(2 - packet.to);
    player(packet.to).side.receive(packet.bytes, from, now_, random_.one_in(100) ? 3 : 0);
    if (random_.one_in(4)) transmit(packet.to);
  }
}

// The run.

void RoceWorld::take_all() {
  for (std::size_t i = 0; i < 2; ++i) {
    PacketSide& side = player(i).side;
    side.drain();
    for (const model::Completion& wc : side.completions) {
      take(player(i).program, player(1 - i).program, wc);
    }
    side.completions.clear();
  }
}

void RoceWorld::step() {
  const std::size_t i = random_.below(2);
  Player& one = player(i);
  Player& other = player(1 - i);
  switch (random_.below(8)) {
    case 0:
    case 1:
      if (may_post()) post_send(one.program, other.program);
      break;
    case 2:
      post_receive(one.program, other.program);
      break;
    case 3:
      transmit(i);
      break;
    default:
      pass_time();
  }
  take_all();
}

void RoceWorld::disturb() {
  Player& one = player(random_.below(2));
  switch (trouble_) {
    case Trouble::kCalm:
    case Trouble::kLoss:
    case Trouble::kStorm:
      return;
    case Trouble::kOutage: {
      // Shorter than the retries of any timeout that is in use.
      cut_ = true;
      const Time end = now_ + milliseconds(random_.between(1, 40));
      while (now_ < end && !failed()) {
        now_ += microseconds(500);
        pass_time();
        for (std::size_t i = 0; i < 2; ++i) transmit(i);
        take_all();
      }
      cut_ = false;
      return;
    }
    case Trouble::kSilence:
      cut_ = true;
      flying_.clear();
      break;
    case Trouble::kFail:
      one.side.endpoint.fail(now_);
      break;
    case Trouble::kWithdraw:
      (random_.one_in(2) ? one.program.sink : one.program.source).withdraw();
      break;
  }
  disturbed_ = true;
}

bool RoceWorld::over() const {
  return flying_.empty() && std::all_of(players_.begin(), players_.end(), [](const auto& player) {
           return !player->side.endpoint.next_deadline() && !player->side.endpoint.may_transmit();
         });
}

void RoceWorld::settle() {
  static constexpr std::size_t kPatience = 200000;
  do {
    for (std::size_t i = 0; i < 2; ++i) {
      Player& one = player(i);
      if (one.side.endpoint.state() == QpState::kRts && random_.one_in(3)) {
        post_receive(one.program, player(1 - i).program);
      }
      transmit(i);
    }
    pass_time();
    take_all();
    look_at_memory();
    if (++rounds_ > kPatience) return fail("the run does not end");
  } while (!over() && !failed());
}

void RoceWorld::check_end() {
  for (std::size_t i = 0; i < 2; ++i) {
    Player& one = player(i);
    const bool error = one.side.endpoint.state() == QpState::kError;
    if (error && !disturbed_) fail("a queue pair failed");
    if (!one.side.sq.empty()) fail("sends are left");
    if (error && !one.side.rq.empty()) fail("receives are left");
    check_memory(one.program);
    if (!disturbed_) check_rest(one.program, player(1 - i).program);
  }
  if (disturbed_) return;
  for (auto& one : players_) check_counter(one->program);
}

}  // namespace airdma::sim
