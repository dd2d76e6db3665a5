// SPDX-License-Identifier: MIT
#include "runtime/inlet.h"

#include <sys/epoll.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace airdma::runtime {
namespace {

// One thread serves one socket for at most so many receptions before others get their turn.
constexpr int kReceptionsPerTurn = 16;

}  // namespace

Status Inlet::watch(int fd) {
  const auto id = progress_.add_stream(fd, shared_from_this());
  if (!id) return std::unexpected(id.error());
  watch_.store(*id);
  // What came before is no edge.
  progress_.serve_later(*id);
  return {};
}

void Inlet::on_ready(std::uint32_t) { drain(); }

// With the lock. True when the turn ended with something left.
bool Inlet::receive_turn() {
  for (int i = 0; i < kReceptionsPerTurn; ++i) {
    if (ended_) return false;
    const Received received = receive_once();
    if (received == Received::kNothing) return false;
    ended_ = received == Received::kEnd;
  }
  return !ended_;
}

// A turn, and without the lock what its end asks for. True when something is left.
bool Inlet::serve(std::unique_lock<SpinLock> lock) {
  const bool before = ended_;
  const bool more = receive_turn();
  const bool ended = ended_ && !before;
  lock.unlock();
  if (ended) on_end();
  return more;
}

void Inlet::drain() {
  pending_.store(true, std::memory_order_seq_cst);
  bool more = false;
  do {
    std::unique_lock lock(lock_, std::try_to_lock);
    if (!lock) return;  // the holder looks at pending_ again
    pending_.store(false, std::memory_order_relaxed);
    more = serve(std::move(lock));
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } while (pending_.load(std::memory_order_relaxed));
  if (more) progress_.serve_later(watch_.load());
}

void Inlet::settle() {
  const bool more = serve(std::unique_lock(lock_));
  drain();  // for who came meanwhile and did not get it
  if (more) progress_.serve_later(watch_.load());
}

bool Inlet::poll() {
  if (!polled_.load(std::memory_order_relaxed)) polled_.store(true, std::memory_order_relaxed);
  Received received = Received::kNothing;
  {
    const std::unique_lock lock(lock_, std::try_to_lock);
    if (!lock) return false;
    if (!ended_) received = receive_once();
    ended_ = ended_ || received == Received::kEnd;
  }
  if (received == Received::kEnd) on_end();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (pending_.load(std::memory_order_relaxed)) drain();
  // Of what is left epoll tells, now or when the socket is watched again.
  return received == Received::kSome;
}

void Inlet::leave_to_poller() {
  if (left_to_poller_.load(std::memory_order_relaxed) || !progress_.delegated()) return;
  // Set first, for the progress thread may end it at once.
  left_to_poller_.store(true, std::memory_order_relaxed);
  if (!progress_.leave_to_poller(watch_.load())) {
    left_to_poller_.store(false, std::memory_order_relaxed);
  }
}

void Inlet::watch_again() { progress_.watch_again(watch_.load()); }

// --- BusyInlets ---

void BusyInlets::add(Inlet& inlet) {
  std::lock_guard lock(lock_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (count == kMost || inlet.busy_.exchange(true, std::memory_order_relaxed)) return;
  entries_[count] = inlet.shared_from_this();
  count_.store(count + 1, std::memory_order_relaxed);
}

void BusyInlets::forget(const Inlet* inlet) {
  std::shared_ptr<Inlet> last_reference;  // may end it: not under the lock
  std::lock_guard lock(lock_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    if (entries_[i].get() != inlet) continue;
    last_reference = std::exchange(entries_[i], nullptr);
    entries_[i].swap(entries_[count - 1]);
    count_.store(count - 1, std::memory_order_relaxed);
    last_reference->busy_.store(false, std::memory_order_relaxed);
    return;
  }
}

std::shared_ptr<Inlet> BusyInlets::entry_at(std::size_t i) {
  std::lock_guard lock(lock_);
  return i < count_.load(std::memory_order_relaxed) ? entries_[i] : nullptr;
}

void BusyInlets::settle(Inlet& inlet, bool came) {
  inlet.idle_polls_ = came ? 0 : inlet.idle_polls_ + 1;
  if (inlet.idle_polls_ <= kIdlePolls) return;
  inlet.idle_polls_ = 0;
  forget(&inlet);
  inlet.watch_again();
}

bool BusyInlets::poll() {
  const std::unique_lock lock(poll_lock_, std::try_to_lock);
  if (!lock) return false;
  bool any = false;
  for (std::size_t i = 0; i < kMost; ++i) {
    const auto inlet = entry_at(i);
    if (!inlet) break;
    inlet->leave_to_poller();
    const bool came = inlet->poll();
    settle(*inlet, came);
    any = any || came;
  }
  return any;
}

}  // namespace airdma::runtime
