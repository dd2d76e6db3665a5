// SPDX-License-Identifier: MIT
// Two RoCEv2 queue pairs and the network between them, in virtual time and from one seed: random
// operations both ways, packets lost, doubled, delayed and in any order, and trouble of some kind.
// What must hold is checked at every step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/exchange.h"
#include "tests/sim/packet_pair.h"

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

class RoceWorld : public Exchange {
 public:
  RoceWorld(std::uint64_t seed, Trouble trouble);

 private:
  struct Player {
    Player(std::uint8_t number, const Scale& scale, Random& random);
    PacketSide side;
    Program program;
  };
  /// A packet on its way.
  struct Flying {
    Time at{};
    std::size_t to = 0;
    PacketBytes bytes;
  };

  void step() override;
  void disturb() override;
  void settle() override;
  void check_end() override;
  [[nodiscard]] Program& program(std::size_t i) override { return players_[i]->program; }
  [[nodiscard]] std::string endpoints() const override;
  [[nodiscard]] bool may_fail_with(model::WcStatus status) const override;

  void connect();
  void transmit(std::size_t from);
  void trace(std::size_t to, const PacketBytes& bytes) const;
  void fly(std::size_t to, PacketBytes bytes);
  void pass_time();
  void deliver();
  void take_all();
  [[nodiscard]] bool over() const;
  [[nodiscard]] Player& player(std::size_t i) { return *players_[i]; }

  Trouble trouble_;
  const bool v6_;  // every second seed
  std::array<std::unique_ptr<Player>, 2> players_;
  std::vector<Flying> flying_;
  const bool trace_ = std::getenv("AIRDMA_SIM_TRACE") != nullptr;
  bool cut_ = false;  // nothing passes
  bool stormy_ = false;
  bool lossy_ = false;
  std::size_t rounds_ = 0;
};

}  // namespace airdma::sim
