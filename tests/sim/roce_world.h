// SPDX-License-Identifier: MIT
// Two RoCEv2 queue pairs and the network between them, in virtual time and from one seed: random
// operations both ways, packets lost, doubled, delayed and in any order, and trouble of some kind.
// What must hold is checked at every step; the first thing that does not is kept as text.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/packet_pair.h"
#include "tests/sim/random.h"

namespace airdma::sim {

enum class Trouble : std::uint8_t {
  kCalm,      // a perfect network
  kLoss,      // some packets are lost
  kStorm,     // one in ten is lost, others come twice, late, in any order
  kOutage,    // nothing passes for a while
  kSilence,   // nothing passes any more
  kFail,      // one program moves its queue pair to ERR
  kWithdraw,  // one side deregisters what the other works on
};

class RoceWorld {
 public:
  RoceWorld(std::uint64_t seed, Trouble trouble, model::QpType type = model::QpType::kRc);

  /// Runs to the end. Empty, or what went wrong.
  std::string run();

 private:
  struct SendRecord {
    Post post;
    std::size_t source = 0;  // offsets into the arenas
    std::size_t target = 0;
    std::uint32_t length = 0;
    bool consumes_receive = false;
  };
  struct ReceiveRecord {
    std::size_t offset = 0;
    std::uint32_t capacity = 0;
  };
  struct Player {
    Player(Random& random, std::uint8_t number, model::QpType type, std::size_t sink_bytes);
    PacketSide side;
    Buffer source;                 // what is sent and read from: never changes
    Buffer sink;                   // what is received, read and written into
    std::vector<std::byte> image;  // of sink: what must be there where nothing is on its way
    std::vector<bool> busy;        // per byte of sink: something is
    std::size_t sink_used = 0;
    std::uint64_t counter = 0;  // what ours is, by those atomics of the peer that are complete
    std::vector<SendRecord> sends;
    std::vector<ReceiveRecord> receives;
    std::size_t messages = 0;   // sends that meet a receive
    std::size_t next_send = 0;  // first that has not completed
    std::size_t next_receive = 0;
    std::size_t next_message = 0;  // first of our sends that met no receive at the peer
    bool blamed = false;           // a work request failed for a reason of its own
  };
  /// A packet on its way.
  struct Flying {
    Time at{};
    std::size_t to = 0;
    PacketBytes bytes;
  };

  void step();
  void post_send(Player& player, Player& peer);
  void post_receive(Player& player, const Player& peer);
  void choose_memory(Player& player, Player& peer, SendRecord& record);
  void choose_counter(Player& player, SendRecord& record);
  void reserve(Player& owner, std::size_t offset, std::size_t length);
  void hand_over(Player& owner, std::size_t offset, std::size_t length);
  void transmit(std::size_t from);
  void trace(std::size_t to, const PacketBytes& bytes) const;
  void fly(std::size_t to, PacketBytes bytes);
  void pass_time();
  void deliver();
  void take(Player& player, Player& peer);
  void take_send(Player& player, Player& peer, const model::Completion& wc);
  void sent(Player& player, Player& peer, const SendRecord& record);
  void take_receive(Player& player, Player& peer, const model::Completion& wc);
  void check_message(Player& player, const ReceiveRecord& receive, const SendRecord& message,
                     const model::Completion& wc);
  void disturb();
  void settle();
  void check_end();
  [[nodiscard]] bool over() const;
  [[nodiscard]] Player& player(std::size_t i) { return *players_[i]; }
  void fail(const std::string& what);

  Random random_;
  Trouble trouble_;
  model::QpType type_;
  std::uint32_t max_message_;
  std::size_t posts_left_;
  std::size_t sink_bytes_;
  std::array<std::unique_ptr<Player>, 2> players_;
  std::vector<Flying> flying_;
  Time now_{};
  const bool trace_ = std::getenv("AIRDMA_SIM_TRACE") != nullptr;
  bool disturbed_ = false;
  bool cut_ = false;  // nothing passes
  bool stormy_ = false;
  bool lossy_ = false;
  std::size_t rounds_ = 0;
  std::string failure_;
};

}  // namespace airdma::sim
