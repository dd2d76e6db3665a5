// SPDX-License-Identifier: MIT
#include "tests/sim/roce_world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "wire/print.h"

namespace airdma::sim {

using model::QpState;
using model::QpType;
using model::SendOpcode;
using model::WcOpcode;
using model::WcStatus;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t kSourceBytes = std::size_t{128} * 1024;
constexpr std::uint64_t kSourceBase = 0x100000;
constexpr std::uint64_t kSinkBase = 0x7f0000000000;
constexpr Stag kSourceKey{0x1111};
constexpr Stag kSinkKey{0x2222};
constexpr std::uint32_t kDepth = 16;
constexpr std::size_t kMaxSge = 3;
constexpr std::size_t kSpareReceives = 3;  // posted beyond what the peer sends
constexpr std::size_t kCounterBytes = 8;   // each player's counter is at the end of its sink
constexpr std::byte kHandedOver{0xa5};     // what a program does with memory that is its own again

bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::kFetchAdd || opcode == SendOpcode::kCompareSwap;
}
bool is_send(SendOpcode opcode) {
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm;
}

/// Pieces of a contiguous range, so that gathering and scattering happen.
std::vector<model::Sge> pieces(Random& random, std::uint64_t base, std::uint32_t length, Stag key) {
  std::vector<model::Sge> sges;
  const std::size_t count = random.between(length == 0 ? 0 : 1, kMaxSge);
  std::uint32_t done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const auto piece =
        last ? length - done
             : static_cast<std::uint32_t>(random.below(std::size_t{length} - done + 1));
    sges.push_back({.addr = base + done, .length = piece, .lkey = key});
    done += piece;
  }
  return sges;
}

/// Filling megabytes byte by byte would be most of a run.
void fill_fast(std::vector<std::byte>& bytes, Random& random) {
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
}

rocev2::EndpointConfig config_of(QpType type) {
  rocev2::EndpointConfig config;
  config.type = type;
  return config;
}

}  // namespace

RoceWorld::Player::Player(Random& random, std::uint8_t number, QpType type, std::size_t sink_bytes)
    : side(number, config_of(type), kDepth, kMaxSge),
      source(side.table, kSourceKey, kSourceBase, kSourceBytes, model::kAccessRemoteRead),
      sink(side.table, kSinkKey, kSinkBase, sink_bytes),
      busy(sink_bytes) {
  fill_fast(source.bytes(), random);
  fill_fast(sink.bytes(), random);
  std::fill_n(sink.bytes().end() - kCounterBytes, kCounterBytes, std::byte{0});
  std::fill_n(busy.end() - kCounterBytes, kCounterBytes, true);
  image = sink.bytes();
}

RoceWorld::RoceWorld(std::uint64_t seed, Trouble trouble, QpType type)
    : random_(seed),
      trouble_(trouble),
      type_(type),
      max_message_(random_.one_in(16) ? 100000u : random_.pick({64u, 700u, 5000u})),
      posts_left_(random_.between(1, 60)),
      sink_bytes_(max_message_ > 5000 ? std::size_t{2} << 20 : std::size_t{160} << 10) {
  for (std::size_t i = 0; i < 2; ++i) {
    players_[i] =
        std::make_unique<Player>(random_, static_cast<std::uint8_t>(i + 1), type, sink_bytes_);
  }
  stormy_ = trouble == Trouble::kStorm || (trouble >= Trouble::kSilence && random_.one_in(3));
  lossy_ = trouble == Trouble::kLoss;
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
  player(0).side.connect(attributes, 2, now_);
  std::swap(attributes.sq_psn, attributes.rq_psn);
  std::swap(attributes.max_rd_atomic, attributes.max_dest_rd_atomic);
  player(1).side.connect(attributes, 1, now_);
}

void RoceWorld::fail(const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = what;
  for (const auto& player : players_) {
    failure_ += std::string("; ") + player->side.endpoint.failure();
  }
}

// Posting.

void RoceWorld::reserve(Player& owner, std::size_t offset, std::size_t length) {
  std::fill_n(owner.busy.begin() + static_cast<long>(offset), length, true);
}

/// The program has its memory back, and uses it. Whatever comes late must not touch it.
void RoceWorld::hand_over(Player& owner, std::size_t offset, std::size_t length) {
  if (disturbed_) return;
  const auto at = static_cast<long>(offset);
  std::fill_n(owner.busy.begin() + at, length, false);
  std::fill_n(owner.image.begin() + at, length, kHandedOver);
  std::fill_n(owner.sink.bytes().begin() + at, length, kHandedOver);
}

void RoceWorld::choose_memory(Player& player, Player& peer, SendRecord& record) {
  record.length = static_cast<std::uint32_t>(random_.one_in(4) ? random_.below(max_message_ + 1)
                                                               : random_.below(65));
  if (is_atomic(record.post.opcode)) return choose_counter(player, record);
  const std::uint32_t length = record.length;
  const bool read = record.post.opcode == SendOpcode::kRead;
  Player& owner = read ? player : peer;  // of the memory that changes
  record.target = owner.sink_used;
  record.source = random_.below(kSourceBytes - length + 1);
  if (read) {
    record.post.sges = pieces(random_, kSinkBase + record.target, length, kSinkKey);
    record.post.remote_addr = kSourceBase + record.source;
    record.post.rkey = kSourceKey;
  } else {
    record.post.sges = pieces(random_, kSourceBase + record.source, length, kSourceKey);
    record.post.remote_addr = kSinkBase + record.target;
    record.post.rkey = kSinkKey;
  }
  if (is_send(record.post.opcode)) return;
  owner.sink_used += length;
  reserve(owner, record.target, length);
}

/// An atomic on the peer's counter; its old value goes to a place of its own.
void RoceWorld::choose_counter(Player& player, SendRecord& record) {
  record.length = kCounterBytes;
  record.target = player.sink_used;
  player.sink_used += kCounterBytes;
  reserve(player, record.target, kCounterBytes);
  record.post.sges = pieces(random_, kSinkBase + record.target, record.length, kSinkKey);
  record.post.remote_addr = kSinkBase + sink_bytes_ - kCounterBytes;
  record.post.rkey = kSinkKey;
  record.post.compare_add = random_.below(4);
  record.post.swap = random_.below(4);
}

void RoceWorld::post_send(Player& player, Player& peer) {
  if (player.side.sq.free_slots() == 0) return;
  // Room for what the operation may change, and for the receives that are still to be posted.
  const std::size_t receives = kSpareReceives + 1 + player.messages - peer.receives.size();
  const std::size_t needed = (receives + 1) * max_message_;
  if (player.sink_used + (kSpareReceives + 2) * max_message_ > sink_bytes_ - kCounterBytes) return;
  if (peer.sink_used + needed > sink_bytes_ - kCounterBytes) return;
  SendRecord record;
  record.post.opcode = random_.pick(
      {SendOpcode::kSend, SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kWrite,
       SendOpcode::kWrite, SendOpcode::kWriteWithImm, SendOpcode::kRead, SendOpcode::kRead,
       SendOpcode::kFetchAdd, SendOpcode::kCompareSwap});
  choose_memory(player, peer, record);
  record.post.wr_id = player.sends.size();
  record.post.signaled = !random_.one_in(3);
  record.post.fence = random_.one_in(6);
  record.post.solicited = random_.one_in(3);
  record.post.immediate = static_cast<std::uint32_t>(random_.next());
  record.consumes_receive =
      is_send(record.post.opcode) || record.post.opcode == SendOpcode::kWriteWithImm;
  if (record.consumes_receive) ++player.messages;
  player.side.post(record.post);
  player.sends.push_back(record);
}

void RoceWorld::post_receive(Player& player, const Player& peer) {
  if (player.side.rq.free_slots() == 0) return;
  if (player.receives.size() == peer.messages + kSpareReceives) return;
  if (player.sink_used + max_message_ > sink_bytes_ - kCounterBytes) return;
  const ReceiveRecord record{.offset = player.sink_used, .capacity = max_message_};
  player.sink_used += max_message_;
  reserve(player, record.offset, record.capacity);
  player.side.post_receive(player.receives.size(),
                           pieces(random_, kSinkBase + record.offset, record.capacity, kSinkKey));
  player.receives.push_back(record);
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

// Completions.

void RoceWorld::take(Player& player, Player& peer) {
  player.side.drain();
  for (const model::Completion& wc : player.side.completions) {
    if (wc.receive) {
      take_receive(player, peer, wc);
    } else {
      take_send(player, peer, wc);
    }
  }
  player.side.completions.clear();
}

void RoceWorld::take_send(Player& player, Player& peer, const model::Completion& wc) {
  if (wc.wr_id >= player.sends.size()) return fail("completion of a send nobody posted");
  if (wc.wr_id < player.next_send) return fail("send completed twice or out of order");
  for (; player.next_send < wc.wr_id; ++player.next_send) {
    const SendRecord& skipped = player.sends[player.next_send];
    if (skipped.post.signaled) return fail("signaled send was skipped");
    sent(player, peer, skipped);  // in silence, but a success: a failure is always reported
  }
  const SendRecord& record = player.sends[player.next_send++];
  if (wc.status == WcStatus::kSuccess) {
    if (!record.post.signaled) return fail("unsignaled success was reported");
    if (player.blamed) return fail("success after a failure");
    if (wc.byte_len != record.length) return fail("wc's length");
    return sent(player, peer, record);
  }
  if (!disturbed_) return fail("send failed: " + std::to_string(int(wc.status)));
  if (wc.status == WcStatus::kFlushError) return;
  if (player.blamed) return fail("a second work request failed for a reason of its own");
  player.blamed = true;
  if (trouble_ != Trouble::kWithdraw && wc.status != WcStatus::kRetryExceeded) {
    fail("send has a wrong status: " + std::to_string(int(wc.status)));
  }
}

/// A send was carried out, as its program is told.
void RoceWorld::sent(Player& player, Player& peer, const SendRecord& record) {
  const auto source = peer.source.bytes().begin() + static_cast<long>(record.source);
  const auto sink = player.sink.bytes().begin() + static_cast<long>(record.target);
  if (record.post.opcode == SendOpcode::kRead) {
    if (!std::equal(sink, sink + record.length, source)) return fail("READ brought wrong bytes");
    return hand_over(player, record.target, record.length);
  }
  if (is_atomic(record.post.opcode)) {
    std::uint64_t brought = 0;
    std::memcpy(&brought, player.sink.bytes().data() + record.target, sizeof brought);
    if (brought != peer.counter) return fail("an atomic brought a wrong value");
    if (record.post.opcode == SendOpcode::kFetchAdd) {
      peer.counter += record.post.compare_add;
    } else if (peer.counter == record.post.compare_add) {
      peer.counter = record.post.swap;
    }
    return hand_over(player, record.target, record.length);
  }
  if (record.post.opcode != SendOpcode::kWrite || type_ != QpType::kRc) return;
  const auto target = peer.sink.bytes().begin() + static_cast<long>(record.target);
  if (!std::equal(target, target + record.length,
                  player.source.bytes().begin() + static_cast<long>(record.source))) {
    return fail("WRITE brought wrong bytes");
  }
  hand_over(peer, record.target, record.length);
}

void RoceWorld::take_receive(Player& player, Player& peer, const model::Completion& wc) {
  if (wc.wr_id != player.next_receive) return fail("receive completed twice or out of order");
  const ReceiveRecord& receive = player.receives[player.next_receive++];
  if (wc.status != WcStatus::kSuccess) {
    if (!disturbed_) fail("receive failed: " + std::to_string(int(wc.status)));
    return;
  }
  while (peer.next_message < peer.sends.size() && !peer.sends[peer.next_message].consumes_receive) {
    ++peer.next_message;
  }
  if (peer.next_message == peer.sends.size()) return fail("receive of a message nobody sent");
  check_message(player, receive, peer.sends[peer.next_message++], wc);
}

void RoceWorld::check_message(Player& player, const ReceiveRecord& receive,
                              const SendRecord& message, const model::Completion& wc) {
  const bool after_write = message.post.opcode == SendOpcode::kWriteWithImm;
  const bool immediate = after_write || message.post.opcode == SendOpcode::kSendWithImm;
  if (wc.opcode != (after_write ? WcOpcode::kReceiveRdmaWithImm : WcOpcode::kReceive)) {
    return fail("receive's opcode");
  }
  if (wc.byte_len != message.length) return fail("receive's length");
  if ((wc.flags == model::kWcWithImmediate) != immediate) return fail("receive's flags");
  if (immediate && wc.immediate != message.post.immediate) return fail("immediate data");
  if (wc.solicited != message.post.solicited) return fail("solicited");
  Player& sender = &player == players_[0].get() ? *players_[1] : *players_[0];
  const auto expected = sender.source.bytes().begin() + static_cast<long>(message.source);
  const auto got = player.sink.bytes().begin() +
                   static_cast<long>(after_write ? message.target : receive.offset);
  if (!std::equal(got, got + message.length, expected)) fail("message brought wrong bytes");
  if (after_write) hand_over(player, message.target, message.length);
  hand_over(player, receive.offset, receive.capacity);
}

// The run.

void RoceWorld::step() {
  const std::size_t i = random_.below(2);
  Player& one = player(i);
  Player& other = player(1 - i);
  switch (random_.below(8)) {
    case 0:
    case 1:
      if (posts_left_ != 0) {
        --posts_left_;
        post_send(one, other);
      }
      break;
    case 2:
      post_receive(one, other);
      break;
    case 3:
      transmit(i);
      break;
    default:
      pass_time();
  }
  take(one, other);
  take(other, one);
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
      while (now_ < end && failure_.empty()) {
        now_ += microseconds(500);
        pass_time();
        for (std::size_t i = 0; i < 2; ++i) transmit(i);
        for (std::size_t i = 0; i < 2; ++i) take(player(i), player(1 - i));
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
      (random_.one_in(2) ? one.sink : one.source).withdraw();
      break;
  }
  disturbed_ = true;
}

bool RoceWorld::over() const {
  return flying_.empty() && std::all_of(players_.begin(), players_.end(), [](const auto& player) {
           return !player->side.endpoint.next_deadline() && !player->side.endpoint.may_transmit();
         });
}

/// Runs on without new sends until nothing moves.
void RoceWorld::settle() {
  static constexpr std::size_t kPatience = 200000;
  do {
    for (std::size_t i = 0; i < 2; ++i) {
      Player& one = player(i);
      if (one.side.endpoint.state() == QpState::kRts && random_.one_in(3)) {
        post_receive(one, player(1 - i));
      }
      transmit(i);
    }
    pass_time();
    for (std::size_t i = 0; i < 2; ++i) take(player(i), player(1 - i));
    if (++rounds_ > kPatience) return fail("the run does not end");
  } while (!over() && failure_.empty());
}

void RoceWorld::check_end() {
  for (std::size_t i = 0; i < 2; ++i) {
    Player& one = player(i);
    PacketSide& side = one.side;
    const bool failed = side.endpoint.state() == QpState::kError;
    if (!one.sink.idle() || !one.source.idle()) fail("a region is still pinned");
    if (failed && !disturbed_) fail("a queue pair failed");
    if (!side.sq.empty()) fail("sends are left");
    if (failed && !side.rq.empty()) fail("receives are left");
    for (std::size_t at = 0; at < sink_bytes_; ++at) {
      if (!one.busy[at] && one.sink.bytes()[at] != one.image[at]) {
        return fail("memory changed where it must not, at " + std::to_string(at));
      }
    }
    if (disturbed_) continue;
    for (; one.next_send < one.sends.size(); ++one.next_send) {
      const SendRecord& last = one.sends[one.next_send];
      if (last.post.signaled) return fail("a send did not complete");
      sent(one, player(1 - i), last);
    }
  }
  for (auto& player : players_) {
    std::uint64_t left = 0;
    std::memcpy(&left, player->sink.bytes().data() + sink_bytes_ - kCounterBytes, sizeof left);
    if (!disturbed_ && left != player->counter) fail("a counter has a wrong value");
  }
}

std::string RoceWorld::run() {
  const std::size_t steps = random_.between(10, 600);
  for (std::size_t i = 0; i < steps && failure_.empty(); ++i) step();
  if (failure_.empty()) disturb();
  if (failure_.empty()) settle();
  if (failure_.empty()) check_end();
  return failure_;
}

}  // namespace airdma::sim
