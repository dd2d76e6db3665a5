// SPDX-License-Identifier: MIT
// A socket that packets of many queue pairs arrive at, and the set of those that threads ask
// themselves while they poll. Whoever polls or is woken by epoll takes the socket with a try-lock;
// who does not get it leaves a mark, and the holder looks again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/spin_lock.h"
#include "runtime/progress.h"

namespace airdma::runtime {

class Inlet : public Pollable, public std::enable_shared_from_this<Inlet> {
 public:
  virtual ~Inlet() = default;
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;

  /// Receives all there is, on this thread or the one that is at it.
  void drain();
  /// The same, and what was there at the call has been delivered on return. Not by who is called
  /// for what arrives.
  void settle();
  /// For threads that poll: receives once. True when something came.
  bool poll();
  /// Takes the socket off the set that wakes threads, as long as threads poll. Again and again.
  void leave_to_poller();
  /// No thread polls it any more.
  void watch_again();

  void on_ready(std::uint32_t events) override;
  void on_deadline() override {}
  bool still_polled() override { return polled_.exchange(false, std::memory_order_relaxed); }
  void on_watched_again() override { left_to_poller_.store(false, std::memory_order_relaxed); }

 protected:
  enum class Received : std::uint8_t { kNothing, kSome, kEnd };
  explicit Inlet(Progress& progress) : progress_(progress) {}
  /// Registers the socket. Before anything else, and once.
  Status watch(int fd);
  /// With the lock. kEnd: nothing will come any more.
  virtual Received receive_once() = 0;
  /// Nothing will come any more: without the lock.
  virtual void on_end() {}
  void stop_watching() { progress_.remove(watch_.exchange(0)); }

 private:
  friend class BusyInlets;
  bool receive_turn();
  bool serve(std::unique_lock<SpinLock> lock);

  Progress& progress_;
  std::atomic<WatchId> watch_{0};
  SpinLock lock_;
  bool ended_ = false;  // with the lock
  std::atomic<bool> pending_{false};
  std::atomic<bool> polled_{false};
  std::atomic<bool> left_to_poller_{false};
  std::atomic<bool> busy_{false};  // among the BusyInlets
  std::uint32_t idle_polls_ = 0;   // with their lock: so many in a row found nothing
};

/// The few sockets that something came from lately. Threads that poll ask each of them every time;
/// epoll tells of the others. Thread-safe.
class BusyInlets {
 public:
  static constexpr std::size_t kMost = 4;

  /// Something came from it.
  void note(Inlet& inlet) {
    if (!inlet.busy_.load(std::memory_order_relaxed)) add(inlet);
  }
  void forget(const Inlet* inlet);
  /// Asks all, unless another thread is at it. True when something came.
  bool poll();
  [[nodiscard]] std::size_t size() const { return count_.load(std::memory_order_relaxed); }

 private:
  // So many polls in a row without anything: epoll may watch it again.
  static constexpr std::uint32_t kIdlePolls = 20000;
  void add(Inlet& inlet);
  std::shared_ptr<Inlet> entry_at(std::size_t i);
  void settle(Inlet& inlet, bool came);  // with the poll lock

  SpinLock lock_;  // entries_
  std::array<std::shared_ptr<Inlet>, kMost> entries_;
  std::atomic<std::size_t> count_{0};
  SpinLock poll_lock_;
};

}  // namespace airdma::runtime
