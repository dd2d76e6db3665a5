// SPDX-License-Identifier: MIT
#include "runtime/post_burst.h"

namespace airdma::runtime {

bool PostBurst::expects_more(std::uint64_t polls, std::atomic<bool>& bursts) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  std::uint32_t posts = posts_.load(kRelaxed);
  if (posts == 0) {
    polls_.store(polls, kRelaxed);
    last_.store(bursts.load(kRelaxed) ? kLearned : 0, kRelaxed);
  } else if (polls != polls_.load(kRelaxed)) {
    polls_.store(polls, kRelaxed);
    last_.store(posts, kRelaxed);
    // Written when it changes: all queue pairs share it.
    if (bursts.load(kRelaxed) != (posts >= kLearned)) bursts.store(posts >= kLearned, kRelaxed);
    posts = 0;
  }
  posts_.store(++posts, kRelaxed);
  if (posts == kLearned && !bursts.load(kRelaxed)) bursts.store(true, kRelaxed);
  if (const std::uint32_t distrust = distrust_.load(kRelaxed); distrust != 0) {
    distrust_.store(distrust - 1, kRelaxed);
    return false;
  }
  return posts > kLearned || last_.load(kRelaxed) >= kLearned;
}

void PostBurst::forced(std::uint64_t polls) {
  if (forced_at_.exchange(polls, std::memory_order_relaxed) != polls) return;
  distrust_.store(kDistrust, std::memory_order_relaxed);
}

}  // namespace airdma::runtime
