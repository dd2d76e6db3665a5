// SPDX-License-Identifier: MIT
// Whether a program that polls stops as soon as it has found something. One that watches its memory
// for the peer's WRITEs polls only until its own request is complete: then the progress thread
// should have the streams at once, not when it notices that nobody polls any more, for the peer's
// answer is on its way (docs/decisions/0019). Any thread may call; races cost a guess.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace airdma::runtime {

class PollHabit {
 public:
  /// Polling that goes on sooner than this after the streams were given back had not ended.
  static constexpr Duration kSoon = std::chrono::microseconds(5);

  // By threads that poll.
  void found_nothing() { note(false); }
  /// True when the program most likely polls no more for now.
  bool found() {
    note(true);
    return learned();
  }
  [[nodiscard]] bool learned() const { return times_.load(kRelaxed) >= kNeeded; }
  /// The streams were given back because found() said so.
  void given_back(Time now) { given_back_at_.store(now, kRelaxed); }
  /// The streams are left to a thread that polls.
  void polling_begins(Time now) {
    if (now - given_back_at_.exchange(Time{}, kRelaxed) >= kSoon) return;
    // Harder to believe each time.
    doubt_.store(std::min(2 * doubt_.load(kRelaxed) + 2, kMostDoubt), kRelaxed);
    times_.store(-doubt_.load(kRelaxed), kRelaxed);
  }

  // By the progress thread.
  /// Nobody polls any more.
  void polling_ended() {
    const int times = times_.load(kRelaxed);
    if (!found_.load(kRelaxed)) {
      times_.store(std::min(times, 0), kRelaxed);
    } else if (times < kNeeded) {
      times_.store(times + 1, kRelaxed);
    }
  }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  static constexpr int kNeeded = 3;  // times in a row
  static constexpr int kMostDoubt = 1000;

  void note(bool found) {
    if (found_.load(kRelaxed) != found) found_.store(found, kRelaxed);
  }

  std::atomic<bool> found_{false};  // the last poll did
  std::atomic<int> times_{0};       // that polling ended with success
  std::atomic<int> doubt_{0};
  std::atomic<Time> given_back_at_{Time{}};
};

}  // namespace airdma::runtime
