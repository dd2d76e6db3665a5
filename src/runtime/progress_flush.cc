// SPDX-License-Identifier: MIT
// What is held back for a moment, so that the program may add to it.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/process_global.h"
#include "runtime/progress.h"
#include "runtime/progress_state.h"

namespace airdma::runtime {
namespace {

// How long what is held back waits for the program, or as long as the tick while threads poll; and
// how many such looks find nothing before the thread sleeps on.
constexpr Duration kFlushTick = std::chrono::microseconds(100);
constexpr int kIdleFlushTicks = 50;

}  // namespace

// Whoever holds something back counts on the thread only once it has seen that it looks.
void ProgressState::update_flushing() {
  if (const Time now = Progress::now(); flushing && now >= next_flush) {
    // Each look takes a processor from a program that polls, and will most likely flush itself.
    next_flush = now + (stream_set_watched ? kFlushTick : std::max(kFlushTick, tick));
    flush_held(true);
    ++idle_flush_ticks;
  }
  std::lock_guard lock(mutex);
  if (std::exchange(flush_wanted, false)) {
    next_flush = Progress::now() + kFlushTick;
    flushing = true;
    idle_flush_ticks = 0;
  } else if (flushing && idle_flush_ticks > kIdleFlushTicks && held.empty()) {
    flushing = false;
  }
}

bool Progress::flush_later(std::weak_ptr<Pollable> target) {
  {
    std::lock_guard lock(state_.mutex);
    if (state_.flushing) {
      state_.held.push_back(std::move(target));
      state_.idle_flush_ticks = 0;
      state_.any_held.store(true, std::memory_order_release);
      return true;
    }
    if (std::exchange(state_.flush_wanted, true)) return false;
  }
  state_.wake();
  return false;
}

namespace {
// A process that ends by exit() has said what it had to say.
[[gnu::destructor]] void flush_at_exit() {
  if (ProgressState* const state = ProcessGlobal<ProgressState>::peek()) state->flush_held(false);
}
}  // namespace

void Progress::flush_held() { ProcessGlobal<ProgressState>::get().flush_held(false); }

void ProgressState::flush_held(bool overdue) {
  if (!any_held.load(std::memory_order_acquire)) return;
  std::vector<std::weak_ptr<Pollable>> batch;
  {
    std::lock_guard lock(mutex);
    any_held.store(false, std::memory_order_relaxed);
    batch.swap(held);
  }
  for (const auto& weak : batch) {
    if (const auto target = weak.lock()) target->on_flush(overdue);
  }
}

}  // namespace airdma::runtime
