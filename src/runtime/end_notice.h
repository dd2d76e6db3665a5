// SPDX-License-Identifier: MIT
// Tells the connection manager that the peer has ended a stream, once the program had its chance to
// take what the peer completed before.
//
// On a network card the end of a connection is an exchange of its own and takes long enough that
// programs rely on it: one thread takes completions, another destroys the queue pair as soon as it
// hears of the disconnection, and destroying throws away what the first one has not taken yet. A
// FIN travels right behind the last message, and both threads would wake at the same time.
#pragma once

#include <memory>

#include "runtime/progress.h"
#include "runtime/stream_queue_pair.h"

namespace airdma::runtime {

class EndNotice : public Pollable, public std::enable_shared_from_this<EndNotice> {
 public:
  /// Limit: a program that never polls hears of the end after this.
  static constexpr Duration kLongest = std::chrono::milliseconds(100);

  static void start(Progress& progress, std::weak_ptr<StreamQueuePair> queue_pair,
                    std::weak_ptr<StreamObserver> observer);

  void on_ready(std::uint32_t) override {}
  void on_deadline() override;

 private:
  EndNotice(Progress& progress, std::weak_ptr<StreamQueuePair> queue_pair,
            std::weak_ptr<StreamObserver> observer);
  bool still_waits();

  Progress& progress_;
  const std::weak_ptr<StreamQueuePair> queue_pair_;
  const std::weak_ptr<StreamObserver> observer_;
  const Time limit_;
  bool seen_ = false;
  WatchId watch_ = 0;
};

}  // namespace airdma::runtime
