// SPDX-License-Identifier: MIT
#include "runtime/end_notice.h"

#include <utility>

namespace airdma::runtime {
namespace {

// How often the completion queues are looked at, and what a program gets to work on the last
// completion after it has taken it.
constexpr Duration kTick = std::chrono::milliseconds(1);

}  // namespace

EndNotice::EndNotice(Progress& progress, std::weak_ptr<StreamQueuePair> queue_pair,
                     std::weak_ptr<StreamObserver> observer)
    : progress_(progress),
      queue_pair_(std::move(queue_pair)),
      observer_(std::move(observer)),
      limit_(Progress::now() + kLongest) {}

void EndNotice::start(Progress& progress, std::weak_ptr<StreamQueuePair> queue_pair,
                      std::weak_ptr<StreamObserver> observer) {
  std::shared_ptr<EndNotice> self(
      new EndNotice(progress, std::move(queue_pair), std::move(observer)));
  const auto watch = progress.add_control(Progress::kNoDescriptor, self);
  if (!watch) {
    progress.defer([self] { self->on_deadline(); });
    return;
  }
  self->watch_ = *watch;
  progress.set_deadline(self->watch_, Progress::now() + kTick);
}

bool EndNotice::still_waits() {
  const auto queue_pair = queue_pair_.lock();
  if (queue_pair == nullptr || Progress::now() >= limit_) return false;
  return !std::exchange(seen_, queue_pair->successes_seen());
}

void EndNotice::on_deadline() {
  const auto keep = shared_from_this();
  if (watch_ != 0 && still_waits()) {
    progress_.set_deadline(watch_, Progress::now() + kTick);
    return;
  }
  progress_.remove(watch_);
  if (const auto target = observer_.lock()) target->on_stream_closed();
}

}  // namespace airdma::runtime
