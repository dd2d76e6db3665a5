// SPDX-License-Identifier: MIT
#include "tests/sim/iwarp_world.h"

#include <algorithm>

namespace airdma::sim {

using iwarp::EndpointState;
using iwarp::StreamRequest;

namespace {

Scale choose_scale(Random& random) {
  return {.max_message = random.pick({64u, 2000u, 20000u, 60000u}),
          .source_bytes = std::size_t{256} * 1024,
          .sink_bytes = std::size_t{1024} * 1024};
}

mpa::Offer random_offer(Random& random) {
  mpa::Offer made;
  made.revision = random.pick<std::uint8_t>({1, 2});
  made.crc = random.one_in(4) ? mpa::CrcPolicy::kOff : mpa::CrcPolicy::kRequire;
  made.peer_to_peer = random.one_in(2);
  made.ird = static_cast<std::uint16_t>(random.between(1, 8));
  made.ord = static_cast<std::uint16_t>(random.between(1, 8));
  return made;
}

/// Gives `to` what it is sent, in pieces.
template <class Negotiator>
void feed(Random& random, Negotiator& to, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> held;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t piece = random.between(1, bytes.size() - at);
    held.insert(held.end(), bytes.begin() + static_cast<long>(at),
                bytes.begin() + static_cast<long>(at + piece));
    const std::size_t used = to.on_bytes(held);
    held.erase(held.begin(), held.begin() + static_cast<long>(used));
    at += piece;
  }
}

iwarp::Rtr to_iwarp(mpa::Rtr rtr) { return static_cast<iwarp::Rtr>(rtr); }

}  // namespace

IwarpWorld::Player::Player(const Scale& scale, Random& random)
    : side(Program::kDepth, Program::kMaxSge),
      program(side.table, side.sq, side.rq, scale, random) {}

IwarpWorld::IwarpWorld(std::uint64_t seed, Ending ending)
    : Exchange(seed, choose_scale), ending_(ending) {
  for (auto& player : players_) player = std::make_unique<Player>(scale_, random_);
  connect();
}

std::string IwarpWorld::endpoints() const {
  return std::string(players_[0]->side.endpoint.failure()) + "; " +
         players_[1]->side.endpoint.failure();
}

/// MPA setup, itself in pieces.
void IwarpWorld::connect() {
  mpa::Initiator initiator(random_offer(random_), {});
  mpa::Responder responder;
  feed(random_, responder, initiator.take_transmit());
  if (responder.state() != mpa::SetupState::kRequested) return fail("no MPA request");
  mpa::Offer answer = random_offer(random_);
  answer.revision = 2;
  responder.accept(answer, {});
  feed(random_, initiator, responder.take_transmit());
  if (initiator.state() != mpa::SetupState::kEstablished) return fail("no MPA connection");
  const bool forth = random_.one_in(4);
  const bool back = random_.one_in(4);
  crc_ = initiator.agreement().crc;
  start(player(0), initiator.agreement(), forth, back);
  start(player(1), responder.agreement(), back, forth);
}

void IwarpWorld::start(Player& one, const mpa::Agreement& agreement, bool send_markers,
                       bool receive_markers) {
  iwarp::StreamParams params;
  params.initiator = &one == players_[0].get();
  params.crc = agreement.crc;
  params.send_markers = send_markers;
  params.receive_markers = receive_markers;
  // MPA revision 1 says nothing of READs: programs agree on them by themselves.
  params.ird = agreement.enhanced ? agreement.ird : std::uint16_t{4};
  params.ord = agreement.enhanced ? agreement.ord : std::uint16_t{4};
  params.max_ulpdu = random_.pick<std::size_t>({128, 1000, 1442, 8000, 65535});
  params.rtr = to_iwarp(agreement.rtr);
  one.side.endpoint.start(params, now_);
}

void IwarpWorld::receives(Player& one, Player& other) {
  if (post_receive(one.program, other.program)) one.side.endpoint.on_receives_posted(now_);
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

void IwarpWorld::take_all(Player& one, Player& other) {
  one.side.drain();
  for (const model::Completion& wc : one.side.completions) take(one.program, other.program, wc);
  one.side.completions.clear();
  if (!one.fin_sent && one.driver.empty() &&
      one.side.endpoint.stream_request() == StreamRequest::kShutdown) {
    // Nothing may follow, so ask once more.
    transmit(one);
    one.fin_sent = one.driver.empty();
  }
}

// The run.

void IwarpWorld::step() {
  const std::size_t i = random_.below(2);
  Player& one = player(i);
  Player& other = player(1 - i);
  switch (random_.below(6)) {
    case 0:
      if (may_post()) post_send(one.program, other.program);
      break;
    case 1:
      receives(one, other);
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
  take_all(one, other);
  take_all(other, one);
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
      (random_.one_in(2) ? other.program.sink : other.program.source).withdraw();
      break;
  }
  disturbed_ = true;
}

bool IwarpWorld::quiet() const {
  return std::all_of(players_.begin(), players_.end(), [](const auto& player) {
    return player->driver.empty() && player->in_flight.empty();
  });
}

/// Whatever has happened.
std::size_t IwarpWorld::progress() const {
  std::size_t sum = 0;
  for (const auto& player : players_) {
    sum += player->in_total + player->program.next_send + player->program.next_receive;
  }
  return sum;
}

void IwarpWorld::settle() {
  for (int calm = 0; calm < 4 && !failed();) {
    const std::size_t before = progress();
    now_ += std::chrono::milliseconds(3);
    for (std::size_t i = 0; i < 2; ++i) {
      Player& one = player(i);
      Player& other = player(1 - i);
      one.side.endpoint.on_deadline(now_);
      if (one.side.endpoint.state() == EndpointState::kOperational) receives(one, other);
      transmit(one);
      deliver(one, other);
      deliver(other, one);
      take_all(one, other);
      take_all(other, one);
    }
    look_at_memory();
    // A stream that is stuck for want of receives does not move although it is not quiet.
    static constexpr int kPatience = 20000;
    if (++rounds_ > kPatience) return fail("the run does not end");
    calm = before != progress() || !quiet() ? 0 : calm + 1;
  }
}

void IwarpWorld::check_end() {
  for (std::size_t i = 0; i < 2; ++i) {
    Player& one = player(i);
    Side& side = one.side;
    if (!payload_is_safe()) continue;
    check_memory(one.program);
    if (!disturbed_ && side.endpoint.state() != EndpointState::kOperational) {
      fail("an endpoint failed");
    }
    const bool over = side.endpoint.state() == EndpointState::kError;
    if ((over || !disturbed_) && !side.sq.empty()) fail("sends are left");
    if (over && !side.rq.empty()) fail("receives are left");
  }
  if (disturbed_) return;
  for (std::size_t i = 0; i < 2; ++i) check_rest(player(i).program, player(1 - i).program);
  for (auto& one : players_) check_counter(one->program);
}

}  // namespace airdma::sim
