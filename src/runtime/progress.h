// SPDX-License-Identifier: MIT
// The progress thread: one per process, asleep in epoll_wait when there is nothing to do. It serves
// descriptors, deadlines and deferred calls. Started at first use, blocks all signals, never ends.
//
// Two epoll sets. The control set holds listeners, connection setups, the wake-up counter and the
// other set's descriptor; only the progress thread waits on it. The stream set holds the sockets of
// queue pairs, edge-triggered; any thread may take events from it. While threads poll completion
// queues they serve the streams themselves, and the progress thread leaves the stream set alone
// ("delegated"): it looks now and then whether they still poll, and takes the streams back when
// they do not. A stream whose socket a thread asks at each poll is not even in the set meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "base/time.h"

namespace airdma::runtime {

/// Something the progress thread drives.
class Pollable {
 public:
  /// The descriptor is ready (EPOLLIN etc. in `events`). Control descriptors: on the progress
  /// thread. Streams: on the progress thread or on one that polls.
  virtual void on_ready(std::uint32_t events) = 0;
  /// On the progress thread.
  virtual void on_deadline() = 0;
  /// What was held back is to go out now (see flush_later). Any thread; `overdue` when the progress
  /// thread had to do it.
  virtual void on_flush([[maybe_unused]] bool overdue) {}
  /// Whether a thread has polled the descriptor itself since the last call: asked of streams that
  /// were left to such threads. On the progress thread.
  virtual bool still_polled() { return false; }
  /// Such a stream is watched again.
  virtual void on_watched_again() {}

 protected:
  ~Pollable() = default;
};

/// Handle of a registered Pollable; 0 is none. Never used twice.
using WatchId = std::uint64_t;

struct ProgressState;

class Progress {
 public:
  /// The process's instance; starts the thread. Errors: EAGAIN, EMFILE, ENOMEM.
  static Result<Progress*> start();

  static Time now();
  /// The same some milliseconds behind, for a fifth of the price.
  static Time coarse_now();

  /// In place of a descriptor: the target has deadlines only.
  static constexpr int kNoDescriptor = -1;

  /// Registers a control descriptor, watched for `events` as watch() says (epoll reports errors and
  /// hang-ups all the same). The target is kept alive while it is registered; its calls may begin
  /// before this one returns.
  Result<WatchId> add_control(int fd, std::shared_ptr<Pollable> target, std::uint32_t events = 0);
  /// Level-triggered interest of a control descriptor: EPOLLIN, EPOLLOUT, EPOLLRDHUP; 0 for none.
  void watch(WatchId id, std::uint32_t events);
  /// Registers a stream: edge-triggered for both directions from now on.
  Result<WatchId> add_stream(int fd, std::shared_ptr<Pollable> target);
  /// At `deadline` on_deadline() is called once. Replaces the former; Time::max() is none.
  void set_deadline(WatchId id, Time deadline);
  /// After remove() no call begins; one in progress may still finish. Before the fd is closed.
  void remove(WatchId id);

  /// Runs `task` on the progress thread soon, in the order of the calls.
  void defer(std::function<void()> task);
  /// A stream left work behind (a thread stopped before the socket was empty): the progress thread
  /// serves it again, or a thread that polls, whichever has the streams.
  void serve_later(WatchId id);

  /// Calls the target's on_flush() within about a tenth of a millisecond, or when a thread calls
  /// flush_held(), whichever is first. False when the thread is not prepared for this yet, which
  /// the call changes: then the caller does at once what it wanted to put off.
  bool flush_later(std::weak_ptr<Pollable> target);
  /// Calls on_flush() of all that wait for it.
  static void flush_held();

  // For threads that poll.
  /// An unsuccessful poll. After some in a row the calling thread's streams are its own.
  void note_empty_poll(std::uint32_t in_a_row);
  /// A successful one. Whether the streams are left to threads that poll.
  bool note_poll();
  /// A poll has taken all that was found. Ends polling when this program most likely polls no more
  /// now (poll_habit.h).
  void note_found();
  [[nodiscard]] bool delegated() const;
  /// Around work of a thread that may last longer than the progress thread waits for its next poll.
  void begin_busy();
  void end_busy();
  /// Stops watching a stream that its thread asks itself at every poll, so that arrivals cost the
  /// sender nothing but themselves. It is watched again, and told so, when still_polled() denies
  /// it, when nobody polls any more, or by watch_again(). False when nobody polls.
  bool leave_to_poller(WatchId id);
  /// Reports what is ready by then, too.
  void watch_again(WatchId id);
  /// The program is about to sleep: gives the streams back to the progress thread, which need not
  /// wake up for that.
  void note_poll_end();
  /// Takes ready streams, and those left unfinished, and serves them on this thread. False when
  /// there are none.
  bool serve_ready_streams();

 private:
  friend struct ProgressState;
  explicit Progress(ProgressState& state) : state_(state) {}
  ProgressState& state_;
};

/// begin_busy() to end_busy().
class BusyScope {
 public:
  explicit BusyScope(Progress& progress) : progress_(progress) { progress_.begin_busy(); }
  ~BusyScope() { progress_.end_busy(); }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  Progress& progress_;
};

}  // namespace airdma::runtime
