// SPDX-License-Identifier: MIT
#include "verbs/state.h"

#include <sys/random.h>

#include <cerrno>
#include <utility>

namespace airdma::verbs {

model::Region* RegionStore::take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<model::Region>());
    free_.reserve(all_.capacity());  // give_back() must not fail
    return all_.back().get();
  }
  model::Region* region = free_.back();
  free_.pop_back();
  region->sink = nullptr;
  return region;
}

const Device* device_of(const ibv_context* handle) {
  if (const Context* context = find_object(handle)) return context->device;
  const State* inherited = ProcessGlobal<State>::inherited();
  const Context* context = inherited != nullptr ? inherited->contexts.find(handle) : nullptr;
  return context != nullptr ? context->device : nullptr;
}

Result<std::uint32_t> RandomBits::take() {
  if (left_ == 0) {
    while (::getrandom(words_.data(), sizeof words_, 0) != sizeof words_) {
      if (errno != EINTR) return fail(errno, "getrandom");
    }
    left_ = words_.size();
  }
  return std::exchange(words_[--left_], 0);
}

}  // namespace airdma::verbs
