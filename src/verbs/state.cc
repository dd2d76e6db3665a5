// SPDX-License-Identifier: MIT
#include "verbs/state.h"

#include <sys/random.h>

#include <cerrno>

namespace airdma::verbs {

model::Region* RegionStore::take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<model::Region>());
    free_.reserve(all_.capacity());  // give_back() must not fail
    return all_.back().get();
  }
  model::Region* region = free_.back();
  free_.pop_back();
  return region;
}

Result<std::uint32_t> random_bits() {
  std::uint32_t bits = 0;
  while (::getrandom(&bits, sizeof bits, 0) != sizeof bits) {
    if (errno != EINTR) return fail(errno, "getrandom");
  }
  return bits;
}

}  // namespace airdma::verbs
