// SPDX-License-Identifier: MIT
// When a message is sent again, and when its sender gives up.
#pragma once

#include <algorithm>
#include <optional>

#include "base/time.h"

namespace airdma::ibcm {

/// The specification's timeout is what the peer has at least, seconds usually, because a program
/// may have to answer. A datagram that got lost would cost as much. So a message is sent again
/// early, at growing distances, up to that timeout; a peer recognizes duplicates, and says by MRA
/// when its answer takes longer (IBTA vol. 1, 12.7.20, 12.7.27, 12.9.8.2).
class Resend {
 public:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(50);

  /// Sent now, and again until `tries` times `timeout` after the first one have passed.
  void start(Time now, Duration timeout, unsigned tries) {
    timeout_ = std::max(timeout, kFirstPause);
    pause_ = kFirstPause;
    next_ = now + pause_;
    give_up_ = now + timeout_ * (tries + 1);
  }
  void stop() { next_.reset(); }

  /// Silence until then is not to be taken for loss.
  void patience(Time now, Duration time) {
    if (!next_) return;
    give_up_ = std::max(give_up_, now + time + timeout_);
    pause_ = timeout_;
    next_ = std::max(*next_, now + std::min(time, timeout_));
  }
  /// The next time is then.
  void next_at(Time time) {
    next_ = time;
    give_up_ = std::max(give_up_, time + timeout_);
  }

  [[nodiscard]] std::optional<Time> next() const { return next_; }
  /// At next(): true when the message has to be sent again, false when it is time to give up.
  bool again(Time now) {
    if (now >= give_up_) return false;
    pause_ = std::min(pause_ * 2, timeout_);
    next_ = std::min(now + pause_, give_up_);
    return true;
  }

 private:
  Duration timeout_{};
  Duration pause_{};
  Time give_up_{};
  std::optional<Time> next_;
};

/// A service that nobody has is asked for again after these pauses: programs connect, exchange a
/// message, and connect again while the other side still closes its first listener and opens the
/// next (perftest does). Who is refused for good hears it a fifth of a second later.
inline constexpr Duration kRefusedPauses[] = {
    std::chrono::milliseconds(10), std::chrono::milliseconds(40), std::chrono::milliseconds(150)};

}  // namespace airdma::ibcm
