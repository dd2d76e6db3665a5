// SPDX-License-Identifier: MIT
// Asynchronous events of a context, waiting to be fetched. Thread-safe. Shared ownership: a thread
// may be blocked in it while the context goes away.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "io/fd.h"

namespace airdma::verbs {

class AsyncEvents {
 public:
  static Result<std::shared_ptr<AsyncEvents>> create();

  /// Readable while an event waits; the program may make it non-blocking.
  [[nodiscard]] int fd() const { return counter_.fd(); }
  void push(const ibv_async_event& event);
  /// The oldest event. Blocks unless the descriptor is non-blocking (EAGAIN). EINTR.
  Result<ibv_async_event> pop();
  /// Drops the events of an object (a queue pair or a completion queue).
  void purge(const void* element);

 private:
  std::mutex mutex_;
  std::deque<ibv_async_event> events_;
  io::EventCounter counter_;
};

/// The object an event is about: a queue pair, a completion queue; null for ports and devices.
const void* element_of(const ibv_async_event& event);

}  // namespace airdma::verbs
