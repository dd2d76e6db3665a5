// SPDX-License-Identifier: MIT
// Two iWARP endpoints, the drivers and TCP buffers between them, in virtual time and from one seed:
// MPA setup, random operations both ways, the stream cut anywhere, and an end of some kind. What
// must hold is checked at every step; the first thing that does not is kept as text.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/endpoint_pair.h"
#include "tests/sim/random.h"

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

class IwarpWorld {
 public:
  IwarpWorld(std::uint64_t seed, Ending ending);
  ~IwarpWorld();

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
    explicit Player(Random& random);
    Side side;
    Buffer source;                 // what is sent and read from: never changes
    Buffer sink;                   // what is received, read and written into
    std::vector<std::byte> image;  // of sink, at the start
    std::vector<bool> may_change;  // per byte of sink
    std::size_t sink_used = 0;
    std::deque<std::byte> driver;     // framed, not taken by TCP
    std::deque<std::byte> in_flight;  // on its way to the peer
    std::uint64_t in_total = 0;       // bytes that were ever in flight from here
    bool fin_sent = false;
    bool ended = false;  // was told that the stream ended
    std::vector<SendRecord> sends;
    std::vector<ReceiveRecord> receives;
    std::size_t messages = 0;   // sends that meet a receive
    std::size_t next_send = 0;  // first that has not completed
    std::size_t next_receive = 0;
    std::size_t next_message = 0;  // first of our sends that met no receive at the peer
  };

  void connect();
  void step();
  void post_send(Player& player, Player& peer);
  void post_receive(Player& player, const Player& peer);
  void choose_memory(Player& player, Player& peer, SendRecord& record);
  void choose_counter(Player& player, SendRecord& record);
  void transmit(Player& player);
  void deliver(Player& from, Player& to);
  void take(Player& player, Player& peer);
  void take_send(Player& player, Player& peer, const model::Completion& wc);
  void take_receive(Player& player, Player& peer, const model::Completion& wc);
  void check_message(Player& player, const ReceiveRecord& receive, const SendRecord& message,
                     const model::Completion& wc);
  void disturb();
  void settle();
  void check_end();
  void check_memory(Player& player, Player& peer);
  void check_counter(Player& player, Player& peer);
  [[nodiscard]] bool quiet() const;
  [[nodiscard]] Player& player(std::size_t i) { return *players_[i]; }
  void fail(const std::string& what);

  Random random_;
  Ending ending_;
  std::uint32_t max_message_;
  std::size_t posts_left_;
  std::array<std::unique_ptr<Player>, 2> players_;
  Time now_{};
  bool disturbed_ = false;
  bool crc_ = true;
  int rounds_ = 0;
  std::string failure_;
  std::vector<std::byte> scratch_;
};

}  // namespace airdma::sim
