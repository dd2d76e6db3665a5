// SPDX-License-Identifier: MIT
#include "tests/sim/iwarp_world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/cm/mpa_connection.h"

namespace airdma::sim {

using iwarp::EndpointState;
using iwarp::StreamRequest;
using model::SendOpcode;
using model::WcOpcode;
using model::WcStatus;

namespace {

constexpr std::size_t kSourceBytes = std::size_t{256} * 1024;
constexpr std::size_t kSinkBytes = std::size_t{1024} * 1024;
constexpr std::uint64_t kSourceBase = 0x100000;
constexpr std::uint64_t kSinkBase = 0x7f0000000000;
constexpr Stag kSourceKey{0x1111};
constexpr Stag kSinkKey{0x2222};
constexpr std::uint32_t kDepth = 16;
constexpr std::size_t kMaxSge = 3;
constexpr std::size_t kSpareReceives = 3;  // posted beyond what the peer sends

constexpr std::size_t kCounterBytes = 8;  // each player's counter is at the end of its sink

bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::kFetchAdd || opcode == SendOpcode::kCompareSwap;
}
bool is_send(SendOpcode opcode) {
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm;
}

// Pieces of a contiguous range, so that gathering and scattering happen.
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

iwarp::Rtr to_iwarp(mpa::Rtr rtr) { return static_cast<iwarp::Rtr>(rtr); }

}  // namespace

IwarpWorld::Player::Player(Random& random)
    : side(kDepth, kMaxSge),
      source(side.table, kSourceKey, kSourceBase, kSourceBytes, model::kAccessRemoteRead),
      sink(side.table, kSinkKey, kSinkBase, kSinkBytes),
      may_change(kSinkBytes) {
  fill(source.bytes(), static_cast<std::uint32_t>(random.next()));
  fill(sink.bytes(), static_cast<std::uint32_t>(random.next()));
  std::fill_n(sink.bytes().end() - kCounterBytes, kCounterBytes, std::byte{0});
  std::fill_n(may_change.end() - kCounterBytes, kCounterBytes, true);
  image = sink.bytes();
}

IwarpWorld::IwarpWorld(std::uint64_t seed, Ending ending)
    : random_(seed),
      ending_(ending),
      max_message_(random_.pick({64u, 2000u, 20000u, 60000u})),
      posts_left_(random_.between(1, 60)) {
  for (auto& player : players_) player = std::make_unique<Player>(random_);
}

IwarpWorld::~IwarpWorld() = default;

void IwarpWorld::fail(const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = what;
  for (const auto& player : players_) {
    failure_ += std::string("; ") + player->side.endpoint.failure();
  }
}

// MPA setup, itself in pieces.
void IwarpWorld::connect() {
  const auto offer = [&] {
    mpa::Offer made;
    made.revision = random_.pick<std::uint8_t>({1, 2});
    made.crc = random_.one_in(4) ? mpa::CrcPolicy::kOff : mpa::CrcPolicy::kRequire;
    made.peer_to_peer = random_.one_in(2);
    made.ird = static_cast<std::uint16_t>(random_.between(1, 8));
    made.ord = static_cast<std::uint16_t>(random_.between(1, 8));
    return made;
  };
  mpa::Initiator initiator(offer(), {});
  mpa::Responder responder;
  const auto feed = [&](auto& to, const std::vector<std::byte>& bytes) {
    std::vector<std::byte> held;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t piece = random_.between(1, bytes.size() - at);
      held.insert(held.end(), bytes.begin() + static_cast<long>(at),
                  bytes.begin() + static_cast<long>(at + piece));
      const std::size_t used = to.on_bytes(held);
      held.erase(held.begin(), held.begin() + static_cast<long>(used));
      at += piece;
    }
  };
  feed(responder, initiator.take_transmit());
  if (responder.state() != mpa::SetupState::kRequested) return fail("no MPA request");
  mpa::Offer answer = offer();
  answer.revision = 2;
  responder.accept(answer, {});
  feed(initiator, responder.take_transmit());
  if (initiator.state() != mpa::SetupState::kEstablished) return fail("no MPA connection");

  const auto start = [&](Player& player, const mpa::Agreement& agreement, bool is_initiator,
                         bool send_markers, bool receive_markers) {
    iwarp::StreamParams params;
    params.initiator = is_initiator;
    params.crc = agreement.crc;
    params.send_markers = send_markers;
    params.receive_markers = receive_markers;
    // MPA revision 1 says nothing of READs: programs agree on them by themselves.
    params.ird = agreement.enhanced ? agreement.ird : std::uint16_t{4};
    params.ord = agreement.enhanced ? agreement.ord : std::uint16_t{4};
    params.max_ulpdu = random_.pick<std::size_t>({128, 1000, 1442, 8000, 65535});
    params.rtr = to_iwarp(agreement.rtr);
    player.side.endpoint.start(params, now_);
  };
  const bool forth = random_.one_in(4);
  const bool back = random_.one_in(4);
  crc_ = initiator.agreement().crc;
  start(player(0), initiator.agreement(), true, forth, back);
  start(player(1), responder.agreement(), false, back, forth);
}

// Posting.

void IwarpWorld::choose_memory(Player& player, Player& peer, SendRecord& record) {
  record.length = static_cast<std::uint32_t>(random_.one_in(8) ? random_.below(max_message_ + 1)
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
  std::fill_n(owner.may_change.begin() + static_cast<long>(record.target), length, true);
}

/// An atomic on the peer's counter; its old value goes to a place of its own.
void IwarpWorld::choose_counter(Player& player, SendRecord& record) {
  record.length = kCounterBytes;
  record.target = player.sink_used;
  player.sink_used += kCounterBytes;
  std::fill_n(player.may_change.begin() + static_cast<long>(record.target), kCounterBytes, true);
  record.post.sges = pieces(random_, kSinkBase + record.target, record.length, kSinkKey);
  record.post.remote_addr = kSinkBase + kSinkBytes - kCounterBytes;
  record.post.rkey = kSinkKey;
  record.post.compare_add = random_.below(4);
  record.post.swap = random_.below(4);
}

void IwarpWorld::post_send(Player& player, Player& peer) {
  if (player.side.sq.free_slots() == 0) return;
  // Room for what the operation may change, and for the receives that are still to be posted.
  const std::size_t receives = kSpareReceives + 1 + player.messages - peer.receives.size();
  const std::size_t needed = (receives + 1) * max_message_;
  if (player.sink_used + (kSpareReceives + 2) * max_message_ > kSinkBytes - kCounterBytes) return;
  if (peer.sink_used + needed > kSinkBytes - kCounterBytes) return;
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

void IwarpWorld::post_receive(Player& player, const Player& peer) {
  if (player.side.rq.free_slots() == 0) return;
  if (player.receives.size() == peer.messages + kSpareReceives) return;
  if (player.sink_used + max_message_ > kSinkBytes - kCounterBytes) return;
  ReceiveRecord record{.offset = player.sink_used, .capacity = max_message_};
  player.sink_used += max_message_;
  std::fill_n(player.may_change.begin() + static_cast<long>(record.offset), record.capacity, true);
  player.side.post_receive(player.receives.size(),
                           pieces(random_, kSinkBase + record.offset, record.capacity, kSinkKey));
  player.receives.push_back(record);
  player.side.endpoint.on_receives_posted(now_);
}

// Moving bytes.

void IwarpWorld::transmit(Player& player) {
  if (player.driver.empty()) {
    scratch_.resize(random_.pick<std::size_t>({200, 1500, 65600, 262144}));
    const bool expected = player.side.endpoint.may_transmit();
    const std::size_t bytes = player.side.endpoint.poll_transmit(scratch_, now_);
    if (!expected && bytes != 0) fail("bytes that may_transmit() denied");
    if (player.fin_sent && bytes != 0) fail("bytes after the FIN");
    player.driver.assign(scratch_.begin(), scratch_.begin() + static_cast<long>(bytes));
  }
  // TCP takes some of it.
  if (player.driver.empty()) return;
  const std::size_t taken = random_.between(1, player.driver.size());
  player.in_flight.insert(player.in_flight.end(), player.driver.begin(),
                          player.driver.begin() + static_cast<long>(taken));
  player.in_total += taken;
  player.driver.erase(player.driver.begin(), player.driver.begin() + static_cast<long>(taken));
  player.side.endpoint.on_transmitted(taken, now_);
}

void IwarpWorld::deliver(Player& from, Player& to) {
  if (!to.side.endpoint.wants_input() || to.ended) return;
  if (!from.in_flight.empty()) {
    const std::size_t piece =
        random_.one_in(3) ? std::min<std::size_t>(from.in_flight.size(), random_.between(1, 40))
                          : random_.between(1, from.in_flight.size());
    const std::vector<std::byte> bytes(from.in_flight.begin(),
                                       from.in_flight.begin() + static_cast<long>(piece));
    from.in_flight.erase(from.in_flight.begin(), from.in_flight.begin() + static_cast<long>(piece));
    to.side.endpoint.on_bytes(bytes, now_);
  } else if (from.fin_sent) {
    to.ended = true;
    to.side.endpoint.on_stream_end(iwarp::StreamEnd::kFin, now_);
  }
}

// Completions.

void IwarpWorld::take(Player& player, Player& peer) {
  player.side.drain();
  for (const model::Completion& wc : player.side.completions) {
    if (wc.receive) {
      take_receive(player, peer, wc);
    } else {
      take_send(player, peer, wc);
    }
  }
  player.side.completions.clear();
  if (!player.fin_sent && player.driver.empty() &&
      player.side.endpoint.stream_request() == StreamRequest::kShutdown) {
    // Nothing may follow, so ask once more.
    transmit(player);
    player.fin_sent = player.driver.empty();
  }
}

void IwarpWorld::take_send(Player& player, Player& peer, const model::Completion& wc) {
  if (wc.wr_id >= player.sends.size()) return fail("completion of a send nobody posted");
  if (wc.wr_id < player.next_send) return fail("send completed twice or out of order");
  const bool success = wc.status == WcStatus::kSuccess;
  for (; player.next_send < wc.wr_id; ++player.next_send) {
    const SendRecord& skipped = player.sends[player.next_send];
    if (skipped.post.signaled) return fail("signaled send was skipped");
    // Those were successes, in silence: a failure is always reported.
  }
  const SendRecord& record = player.sends[player.next_send++];
  if (success && !record.post.signaled) return fail("unsignaled success was reported");
  if (!success && !disturbed_) return fail("send failed: " + std::to_string(int(wc.status)));
  if (success && is_atomic(record.post.opcode) && wc.byte_len != kCounterBytes)
    return fail("atomic's wc");
  if (!success || record.post.opcode != SendOpcode::kRead) return;
  if (wc.opcode != WcOpcode::kRdmaRead || wc.byte_len != record.length) return fail("READ's wc");
  if (!crc_ && disturbed_) return;
  if (!std::equal(player.sink.bytes().begin() + static_cast<long>(record.target),
                  player.sink.bytes().begin() + static_cast<long>(record.target + record.length),
                  peer.source.bytes().begin() + static_cast<long>(record.source))) {
    fail("READ brought wrong bytes");
  }
}

void IwarpWorld::take_receive(Player& player, Player& peer, const model::Completion& wc) {
  if (wc.wr_id != player.next_receive) return fail("receive completed twice or out of order");
  const ReceiveRecord& receive = player.receives[player.next_receive++];
  if (wc.status != WcStatus::kSuccess) {
    if (!disturbed_) fail("receive failed: " + std::to_string(int(wc.status)));
    return;
  }
  if (!crc_ && disturbed_) return;
  while (peer.next_message < peer.sends.size() && !peer.sends[peer.next_message].consumes_receive) {
    ++peer.next_message;
  }
  if (peer.next_message == peer.sends.size()) return fail("receive of a message nobody sent");
  check_message(player, receive, peer.sends[peer.next_message++], wc);
}

void IwarpWorld::check_message(Player& player, const ReceiveRecord& receive,
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
  const Player& sender = &player == players_[0].get() ? *players_[1] : *players_[0];
  const auto expected =
      const_cast<Player&>(sender).source.bytes().begin() + static_cast<long>(message.source);
  const auto got = player.sink.bytes().begin() +
                   static_cast<long>(after_write ? message.target : receive.offset);
  if (!std::equal(got, got + message.length, expected)) fail("message brought wrong bytes");
}

// The run.

void IwarpWorld::step() {
  const std::size_t i = random_.below(2);
  Player& one = player(i);
  Player& other = player(1 - i);
  switch (random_.below(6)) {
    case 0:
      if (posts_left_ != 0) {
        --posts_left_;
        post_send(one, other);
      }
      break;
    case 1:
      post_receive(one, other);
      break;
    case 2:
    case 3:
      transmit(one);
      break;
    default:
      deliver(one, other);
  }
  if (random_.one_in(50)) now_ += std::chrono::milliseconds(random_.below(5));
  one.side.endpoint.on_deadline(now_);
  take(one, other);
  take(other, one);
}

void IwarpWorld::disturb() {
  Player& one = player(random_.below(2));
  Player& other = &one == &player(0) ? player(1) : player(0);
  switch (ending_) {
    case Ending::kIdle:
      return;
    case Ending::kReset:
      for (auto& player : players_) {
        player->side.endpoint.on_stream_end(iwarp::StreamEnd::kReset, now_);
        player->ended = player->fin_sent = true;
        player->driver.clear();
        player->in_flight.clear();
      }
      break;
    case Ending::kDisconnect:
      one.side.endpoint.disconnect(now_);
      break;
    case Ending::kFail:
      one.side.endpoint.fail(now_);
      break;
    case Ending::kCorrupt: {
      if (one.in_flight.empty()) return;
      std::byte& byte = one.in_flight[random_.below(one.in_flight.size())];
      byte ^= static_cast<std::byte>(1u << random_.below(8));
      break;
    }
    case Ending::kWithdraw:
      (random_.one_in(2) ? other.sink : other.source).withdraw();
      break;
  }
  disturbed_ = true;
}

bool IwarpWorld::quiet() const {
  return std::all_of(players_.begin(), players_.end(), [](const auto& player) {
    return player->driver.empty() && player->in_flight.empty();
  });
}

/// Runs on without new sends until nothing moves.
void IwarpWorld::settle() {
  for (int calm = 0; calm < 4 && failure_.empty();) {
    const std::uint64_t before = player(0).in_total + player(1).in_total;
    const std::size_t completed =
        player(0).next_send + player(1).next_send + player(0).next_receive + player(1).next_receive;
    now_ += std::chrono::milliseconds(3);
    for (std::size_t i = 0; i < 2; ++i) {
      Player& one = player(i);
      Player& other = player(1 - i);
      one.side.endpoint.on_deadline(now_);
      if (one.side.endpoint.state() == EndpointState::kOperational) post_receive(one, other);
      transmit(one);
      deliver(one, other);
      deliver(other, one);
      take(one, other);
      take(other, one);
    }
    const bool moved = before != player(0).in_total + player(1).in_total || !quiet() ||
                       completed != player(0).next_send + player(1).next_send +
                                        player(0).next_receive + player(1).next_receive;
    // A stream that is stuck for want of receives does not move although it is not quiet.
    static constexpr int kPatience = 20000;
    if (++rounds_ > kPatience) return fail("the run does not end");
    calm = moved ? 0 : calm + 1;
  }
}

void IwarpWorld::check_memory(Player& player, Player& peer) {
  for (std::size_t i = 0; i < kSinkBytes; ++i) {
    if (!player.may_change[i] && player.sink.bytes()[i] != player.image[i]) {
      return fail("memory changed where it must not, at " + std::to_string(i));
    }
  }
  if (disturbed_) return;
  check_counter(player, peer);
  for (const SendRecord& record : peer.sends) {
    if (record.post.opcode != SendOpcode::kWrite) continue;
    const auto got = player.sink.bytes().begin() + static_cast<long>(record.target);
    if (!std::equal(got, got + record.length,
                    peer.source.bytes().begin() + static_cast<long>(record.source))) {
      return fail("WRITE brought wrong bytes");
    }
  }
}

/// One peer alone works on a counter, in posting order: every old value is known.
void IwarpWorld::check_counter(Player& player, Player& peer) {
  std::uint64_t value = 0;
  for (const SendRecord& record : peer.sends) {
    if (!is_atomic(record.post.opcode)) continue;
    std::uint64_t brought = 0;
    std::memcpy(&brought, peer.sink.bytes().data() + record.target, sizeof brought);
    if (brought != value) return fail("an atomic brought a wrong value");
    if (record.post.opcode == SendOpcode::kFetchAdd) {
      value += record.post.compare_add;
    } else if (value == record.post.compare_add) {
      value = record.post.swap;
    }
  }
  std::uint64_t left = 0;
  std::memcpy(&left, player.sink.bytes().data() + kSinkBytes - kCounterBytes, sizeof left);
  if (left != value) fail("a counter has a wrong value");
}

void IwarpWorld::check_end() {
  for (std::size_t i = 0; i < 2; ++i) {
    Player& one = player(i);
    Side& side = one.side;
    if (!one.sink.idle() || !one.source.idle()) fail("a region is still pinned");
    if (!(crc_ || !disturbed_)) continue;
    check_memory(one, player(1 - i));
    if (!disturbed_ && side.endpoint.state() != EndpointState::kOperational) {
      fail(std::string("an endpoint failed: ") + side.endpoint.failure());
    }
    const bool over = side.endpoint.state() == EndpointState::kError;
    if ((over || !disturbed_) && !side.sq.empty()) fail("sends are left");
    if (over && !side.rq.empty()) fail("receives are left");
  }
}

std::string IwarpWorld::run() {
  connect();
  const std::size_t steps = random_.between(10, 600);
  for (std::size_t i = 0; i < steps && failure_.empty(); ++i) step();
  if (failure_.empty()) disturb();
  if (failure_.empty()) settle();
  if (failure_.empty()) check_end();
  return failure_;
}

}  // namespace airdma::sim
