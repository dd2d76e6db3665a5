// SPDX-License-Identifier: MIT
// The one link from this layer up to the C symbols: a pointer that they register.
#include <atomic>

#include "verbs/api.h"

namespace airdma::verbs {
namespace {

constinit std::atomic<void (*)(verbs_context&)> slot_filler = nullptr;

}  // namespace

void set_slot_filler(void (*filler)(verbs_context& context)) noexcept {
  slot_filler.store(filler, std::memory_order_release);
}

void fill_context_slots(verbs_context& context) {
  if (auto* filler = slot_filler.load(std::memory_order_acquire)) filler(context);
}

}  // namespace airdma::verbs
