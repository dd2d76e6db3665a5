// SPDX-License-Identifier: MIT
// Whether the acknowledgement of a message should wait for what the program answers. A program that
// replies to each message as soon as it has it would otherwise pay two sends for each, and the
// first of them before it even hears of the message. Only of programs that have answered the last
// few before they polled in vain (docs/decisions/0018). Any thread may call; races cost a guess.
#pragma once

#include <atomic>
#include <cstdint>

namespace airdma::runtime {

class AnswerHold {
 public:
  /// A message has come in the program's poll number `polls`. True when it is likely to be answered
  /// at once.
  bool arrived(std::uint64_t polls) {
    if (open_.exchange(true, kRelaxed)) habit_.store(0, kRelaxed);
    at_.store(polls, kRelaxed);
    return habit_.load(kRelaxed) >= kLearned;
  }
  /// The program has posted.
  void posted() {
    if (!open_.load(kRelaxed)) return;
    open_.store(false, kRelaxed);
    const std::uint32_t habit = habit_.load(kRelaxed);
    if (habit < kLearned) habit_.store(habit + 1, kRelaxed);
  }
  /// The program polls once more and finds nothing. True when something is held that must go.
  bool polled(std::uint64_t polls) {
    if (open_.load(kRelaxed) && at_.load(kRelaxed) != polls) distrust();
    return held() && at_.load(kRelaxed) != polls;
  }
  /// The program has not answered.
  void distrust() {
    open_.store(false, kRelaxed);
    habit_.store(0, kRelaxed);
  }

  void hold() { held_.store(true, std::memory_order_seq_cst); }
  void release() {
    if (held_.load(kRelaxed)) held_.store(false, kRelaxed);
  }
  [[nodiscard]] bool held() const { return held_.load(std::memory_order_seq_cst); }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  static constexpr std::uint32_t kLearned = 4;  // answers in a row

  std::atomic<bool> open_{false};  // a message has come, and nothing was posted or polled since
  std::atomic<bool> held_{false};  // an acknowledgement
  std::atomic<std::uint64_t> at_{0};
  std::atomic<std::uint32_t> habit_{0};
};

}  // namespace airdma::runtime
