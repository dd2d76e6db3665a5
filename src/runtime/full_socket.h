// SPDX-License-Identifier: MIT
// How often a socket that took nothing more is asked again by a thread that polls. The kernel says
// when there is room again, but only of sockets that are watched, and those of a polling thread are
// not: asked at each poll, one whose peer reads slowly costs a system call for each.
#pragma once

#include <algorithm>

namespace airdma::runtime {

/// Not thread-safe: with the transport of the stream.
class FullSocket {
 public:
  /// Attempts in a row that are left out, at most: about 15 us of polls that find nothing, in which
  /// no stream empties a socket.
  static constexpr int kMostSkipped = 31;

  /// The socket took nothing more; `some`: but something before.
  void refused(bool some) {
    skipped_ = some ? 1 : std::min(2 * skipped_ + 1, kMostSkipped);
    skip_ = skipped_;
  }
  /// Whether this occasion is to be used. Without refused() always.
  [[nodiscard]] bool may_try() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  /// The kernel says that there is room, or it is another socket.
  void writable() { skip_ = skipped_ = 0; }

 private:
  int skip_ = 0;     // occasions still to leave out
  int skipped_ = 0;  // how many the last refusal cost
};

}  // namespace airdma::runtime
