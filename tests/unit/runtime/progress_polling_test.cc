// SPDX-License-Identifier: MIT
// What threads that poll owe to the streams they took from the progress thread.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "runtime/progress.h"

namespace airdma::runtime {
namespace {

/// A stream that has always more to do, and notes which thread did it.
class Endless : public Pollable {
 public:
  Endless(Progress& progress, std::thread::id poller) : progress_(progress), poller_(poller) {}

  void on_ready(std::uint32_t) override {
    if (std::this_thread::get_id() == poller_) by_poller_.fetch_add(1);
    progress_.serve_later(id);
  }
  void on_deadline() override {}
  [[nodiscard]] int by_poller() const { return by_poller_.load(); }

  std::atomic<WatchId> id{0};

 private:
  Progress& progress_;
  const std::thread::id poller_;
  std::atomic<int> by_poller_{0};
};

// No edge comes again for a stream that was left unfinished, and the progress thread leaves all
// streams to threads that poll: so those have to come back for it.
TEST(Progress, ThreadsThatPollServeUnfinishedStreams) {
  Progress* progress = *Progress::start();
  const auto stream = std::make_shared<Endless>(*progress, std::this_thread::get_id());
  stream->id = *progress->add_control(Progress::kNoDescriptor, stream);
  progress->note_empty_poll(1000);  // delegated from here on
  progress->serve_later(stream->id);
  // The progress thread takes its turns when this one is off the processor for long.
  constexpr int kRounds = 10000;
  for (int i = 0; i < kRounds && stream->by_poller() < 10; ++i) {
    progress->note_empty_poll(1000);
    progress->serve_ready_streams();
  }
  EXPECT_EQ(stream->by_poller(), 10);
  progress->remove(stream->id);
}

}  // namespace
}  // namespace airdma::runtime
