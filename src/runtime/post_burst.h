// SPDX-License-Identifier: MIT
// Whether a posted send should wait for more of its kind. A program that posts one request at a
// time pays a system call for each, where all that it posts before it polls again could go out in
// one. But a lone request must not wait, nor one of a program that never polls: so only bursts are
// held, where bursts were seen, and only while somebody is certain to end the wait
// (docs/decisions/0007).
// Any thread may call; races between posting threads cost a guess, nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace airdma::runtime {

class PostBurst {
 public:
  /// So many requests, or one so large, go out at once.
  static constexpr std::uint32_t kMostHeld = 64;
  static constexpr std::size_t kLargestHeld = 4096;

  /// A call that posted, when the program's polls numbered `polls`. True when others are likely to
  /// follow before it polls again. `bursts`: whether the program posts many requests at a time, as
  /// far as its other queue pairs of the same completion queue tell; the first burst of this one is
  /// expected to be like theirs.
  bool expects_more(std::uint64_t polls, std::atomic<bool>& bursts);
  /// `count` more requests are published and not sent. True when that is no reason to send now.
  bool hold(std::uint32_t count) {
    return held_.fetch_add(count, std::memory_order_seq_cst) + count < kMostHeld;
  }
  /// Before the transport's holder looks at the queue: whatever is in it goes out now.
  void release() {
    if (held_.load(std::memory_order_relaxed) != 0) held_.exchange(0, std::memory_order_seq_cst);
  }
  [[nodiscard]] bool holds() const { return held_.load(std::memory_order_seq_cst) != 0; }
  /// Somebody else had to end a wait. A program that does so twice without polling in between is
  /// not one that polls: its posts go out at once for a while.
  void forced(std::uint64_t polls);

 private:
  static constexpr std::uint32_t kLearned = 4;      // posts without a poll between them
  static constexpr std::uint32_t kDistrust = 1024;  // posts

  std::atomic<std::uint32_t> held_{0};
  std::atomic<std::uint64_t> polls_{0};     // at the last post
  std::atomic<std::uint32_t> posts_{0};     // since the last poll
  std::atomic<std::uint32_t> last_{0};      // ... before it
  std::atomic<std::uint32_t> distrust_{0};  // posts that are not held
  std::atomic<std::uint64_t> forced_at_{~std::uint64_t{0}};
};

}  // namespace airdma::runtime
