// SPDX-License-Identifier: MIT
// The FPDU stream of one side, with engine/iwarp: the captured peer's bytes go in, the work
// requests worked out from the capture are posted, and everything that comes out is held against
// the capture: bytes, completions, memory.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/iwarp/endpoint.h"
#include "tests/interop/replay/compare.h"
#include "tests/interop/replay/memory.h"

namespace airdma::interop {

class EndpointPlayer {
 public:
  EndpointPlayer(const Conversation& conversation, const Script& script, Deviations& used);

  /// Registers memory, posts receives, begins the stream at event `first`; why that cannot be, else
  /// "".
  [[nodiscard]] std::string start(const iwarp::StreamParams& params, std::size_t first);
  /// Plays the events from `first` on; `used` bytes of that one are already used.
  void run(std::size_t first, std::uint64_t used);

  [[nodiscard]] const std::optional<Difference>& difference() const { return difference_; }
  [[nodiscard]] std::string compared() const;

 private:
  struct PostedReceive {
    ByteVector bytes;
    model::Region region;
    const Receive* receive = nullptr;
  };

  void post_receive(const Receive& receive);
  void post_send(std::size_t index);
  void fill(model::SendWqe& wqe, const Post& post);

  void play(const Event& event);
  void pass_time(const Event& event);
  void on_peer_bytes(std::uint64_t begin, std::uint64_t end);
  void prepare(std::uint64_t begin, std::uint64_t end);
  void place_expected(std::uint64_t until);
  void on_own_bytes(std::uint64_t end);
  void on_end(const Event& event);
  void drain();
  void pass_grace();

  [[nodiscard]] bool end_is_due(const Event& event) const;
  void note_end(const Event& event);
  void judge_send(std::size_t index, const model::Completion& wc);
  void judge_receive(std::size_t index, const model::Completion& wc);
  void judge_completions();
  [[nodiscard]] std::vector<bool> sends_done() const;
  [[nodiscard]] bool response_arrived(const Post& post) const;
  void differ(std::uint64_t offset, std::string what, std::string expected, std::string ours);

  const Conversation& conversation_;
  const Script& script_;
  Deviations& used_;
  Memory memory_;
  model::SendQueue send_queue_;
  model::ReceiveQueue receive_queue_;
  iwarp::Endpoint endpoint_;
  bool crc_ = false;

  Time now_{};
  std::vector<std::byte> sent_;  // a stand-in for the MPA frame, then what the engine sent
  std::vector<std::byte> scratch_;
  std::uint64_t taken_ = 0;     // by TCP, of the engine's FPDU bytes
  std::uint64_t fed_ = 0;       // bytes of the peer's stream
  std::size_t placed_ = 0;      // FPDUs of the peer whose effect on memory is there
  std::size_t next_read_ = 0;   // of the peer
  std::uint64_t captured_ = 0;  // bytes of our own stream that the capture has shown
  std::size_t posted_ = 0;
  bool ended_ = false;
  std::uint64_t fed_at_end_ = 0;
  std::uint64_t captured_at_end_ = 0;
  std::deque<PostedReceive> receives_;  // regions stay where they are
  std::vector<model::Completion> send_completions_;
  std::vector<model::Completion> receive_completions_;
  std::optional<Difference> difference_;
  Comparison comparison_;
};

}  // namespace airdma::interop
