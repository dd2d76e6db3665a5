// SPDX-License-Identifier: MIT
// Whether a thread that is about to sleep for an event should look for it itself first. Being woken
// takes 15 to 50 us: where messages come faster than that, a look of about twice that time brings
// the event sooner and costs less; where they do not, it is lost time of a processor.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/time.h"

namespace airdma::runtime {

/// Learns from how the last waits ended. Not thread-safe; time comes from the caller.
class WatchPolicy {
 public:
  /// How long a look lasts.
  static constexpr Duration kWatch = std::chrono::microseconds(60);
  /// A sleep that ended sooner would have been worth a look: a wake-up is part of it.
  static constexpr Duration kShortSleep = 2 * kWatch;
  /// How many waits in a row go without a look, at most.
  static constexpr int kMostSkipped = 255;

  /// A wait begins. Whether it begins with a look.
  [[nodiscard]] bool begin(Time now) {
    began_ = now;
    looks_ = skip_ == 0;
    if (!looks_) --skip_;
    return looks_;
  }

  /// The look has ended. One that lasted much longer than it should, because other threads had the
  /// processor, is none that pays, whatever it found.
  void looked(bool found, Time now) {
    if (found && now - began_ < kShortSleep) {
      skipped_ = 0;
      return;
    }
    skipped_ = std::min(2 * skipped_ + 1, kMostSkipped);
    skip_ = skipped_;
  }

  /// The wait has ended with an event.
  void ended(Time now) {
    if (looks_ || now - began_ >= kShortSleep) return;
    skip_ = 0;
    skipped_ = std::min(skipped_, 1);
  }

 private:
  Time began_{};
  bool looks_ = false;
  int skip_ = 1;     // waits that still go without; the first tells how fast messages come
  int skipped_ = 1;  // how many went without after the last failure
};

}  // namespace airdma::runtime
