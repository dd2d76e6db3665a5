// SPDX-License-Identifier: MIT
// Two iWARP endpoints, the drivers and TCP buffers between them, in virtual time and from one seed:
// MPA setup, random operations both ways, the stream cut anywhere, and an end of some kind. What
// must hold is checked at every step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/cm/mpa_connection.h"
#include "tests/sim/endpoint_pair.h"
#include "tests/sim/exchange.h"

namespace airdma::sim {

/// How a run ends.
enum class Ending : std::uint8_t {
  kIdle,        // everything posted completes
  kReset,       // the connection breaks
  kDisconnect,  // one program disconnects
  kFail,        // one program moves its queue pair to ERR
  kCorrupt,     // one bit of the stream is turned
  kWithdraw,    // one side deregisters what the other works on
};

class IwarpWorld : public Exchange {
 public:
  IwarpWorld(std::uint64_t seed, Ending ending);

 private:
  struct Player {
    Player(const Scale& scale, Random& random);
    Side side;
    Program program;
    std::deque<std::byte> driver;     // framed, not taken by TCP
    std::deque<std::byte> in_flight;  // on its way to the peer
    std::uint64_t in_total = 0;       // bytes that were ever in flight from here
    bool fin_sent = false;
    bool ended = false;  // was told that the stream ended
  };

  void step() override;
  void disturb() override;
  void settle() override;
  void check_end() override;
  [[nodiscard]] Program& program(std::size_t i) override { return players_[i]->program; }
  [[nodiscard]] std::string endpoints() const override;
  [[nodiscard]] bool payload_is_safe() const override { return crc_ || !disturbed_; }

  void connect();
  void start(Player& player, const mpa::Agreement& agreement, bool send_markers,
             bool receive_markers);
  void receives(Player& player, Player& peer);
  void transmit(Player& player);
  void deliver(Player& from, Player& to);
  void take_all(Player& player, Player& peer);
  [[nodiscard]] bool quiet() const;
  [[nodiscard]] std::size_t progress() const;
  [[nodiscard]] Player& player(std::size_t i) { return *players_[i]; }

  Ending ending_;
  std::array<std::unique_ptr<Player>, 2> players_;
  bool crc_ = true;
  int rounds_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace airdma::sim
