// SPDX-License-Identifier: MIT
// The progress thread: one per process, asleep in epoll_wait when there is nothing to do. It serves
// descriptors, deadlines and deferred calls. Started at first use, blocks all signals, never ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "base/time.h"

namespace airdma::runtime {

/// Something the progress thread drives. Calls come on the progress thread only.
class Pollable {
 public:
  /// The descriptor is ready (EPOLLIN etc. in `events`). Watches are one-shot: watch() again.
  virtual void on_ready(std::uint32_t events) = 0;
  virtual void on_deadline() = 0;

 protected:
  ~Pollable() = default;
};

/// Handle of a registered Pollable; 0 is none.
using WatchId = std::uint64_t;

class Progress {
 public:
  /// The process's instance; starts the thread. EAGAIN or EMFILE when the system refuses.
  static Result<Progress*> start();

  static Time now();

  /// Registers a descriptor without watching it yet. The progress thread keeps `target` alive
  /// while it is registered. Any thread.
  Result<WatchId> add(int fd, std::shared_ptr<Pollable> target);
  /// Wakes target->on_ready once when one of `events` (EPOLLIN|EPOLLOUT) is there. Any thread.
  void watch(WatchId id, std::uint32_t events);
  /// At `deadline` target->on_deadline is called once; replaces the former one; Time::max(): none.
  void set_deadline(WatchId id, Time deadline);
  /// After remove() no call begins; one in progress on the progress thread may still finish.
  /// Call before the descriptor is closed.
  void remove(WatchId id);
  /// Runs `task` on the progress thread soon.
  void defer(std::function<void()> task);

 private:
  Progress() = default;
};

}  // namespace airdma::runtime
