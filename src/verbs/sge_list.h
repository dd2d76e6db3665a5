// SPDX-License-Identifier: MIT
// Scatter/gather lists of work requests.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "model/work.h"
#include "verbs/limits.h"

namespace airdma::verbs {

/// Sum of the lengths; false for a list that cannot be or a message that is too long.
inline bool sum_lengths(const ibv_sge* sges, int count, std::uint32_t limit, std::uint64_t& total) {
  if (count < 0 || static_cast<std::uint32_t>(count) > limit) return false;
  if (count > 0 && sges == nullptr) return false;
  total = 0;
  for (int i = 0; i < count; ++i) total += sges[i].length;
  return total <= kMaxMessageBytes;
}

inline void copy_sges(const ibv_sge* from, int count, model::Sge* to) {
  for (int i = 0; i < count; ++i) to[i] = {from[i].addr, from[i].length, Stag(from[i].lkey)};
}

}  // namespace airdma::verbs
