// SPDX-License-Identifier: MIT
#include "base/process_global.h"

#include <pthread.h>

#include "base/assert.h"

namespace airdma {
namespace {

constexpr int kMaxHandlers = 32;
std::atomic<void (*)()> handlers[kMaxHandlers];
std::atomic<int> handler_count{0};

// Runs in the child between fork() and its return: only stores and async-signal-safe calls.
void run_handlers() {
  const int count = handler_count.load(std::memory_order_acquire);
  for (int i = 0; i < count && i < kMaxHandlers; ++i) {
    if (auto* handler = handlers[i].load(std::memory_order_acquire)) handler();
  }
}

}  // namespace

void on_fork_child(void (*reset)()) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &run_handlers);
  (void)registered;
  const int slot = handler_count.fetch_add(1, std::memory_order_acq_rel);
  AIRDMA_ASSERT(slot < kMaxHandlers);
  if (slot < kMaxHandlers) handlers[slot].store(reset, std::memory_order_release);
}

}  // namespace airdma
