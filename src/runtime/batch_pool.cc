// SPDX-License-Identifier: MIT
#include "runtime/batch_pool.h"

#include <atomic>
#include <new>
#include <vector>

#include "base/process_global.h"
#include "base/spin_lock.h"

namespace airdma::runtime {
namespace {

constexpr std::size_t kKept = 32;

struct Pool {
  // The one that was given back last. Every pump that sends borrows one: this saves it the lock.
  std::atomic<rocev2::PacketBatch*> latest{nullptr};
  SpinLock lock;
  std::vector<std::unique_ptr<rocev2::PacketBatch>> free;
  Pool() { free.reserve(kKept); }
};

}  // namespace

BorrowedBatch BorrowedBatch::borrow() {
  Pool& pool = ProcessGlobal<Pool>::get();
  BorrowedBatch borrowed;
  borrowed.batch_.reset(pool.latest.exchange(nullptr, std::memory_order_acquire));
  if (borrowed) return borrowed;
  pool.lock.lock();
  if (!pool.free.empty()) {
    borrowed.batch_ = std::move(pool.free.back());
    pool.free.pop_back();
  }
  pool.lock.unlock();
  if (!borrowed) borrowed.batch_.reset(new (std::nothrow) rocev2::PacketBatch);
  return borrowed;
}

void BorrowedBatch::give_back() {
  if (!batch_) return;
  batch_->clear();
  Pool& pool = ProcessGlobal<Pool>::get();
  rocev2::PacketBatch* none = nullptr;
  if (pool.latest.compare_exchange_strong(none, batch_.get(), std::memory_order_release,
                                          std::memory_order_relaxed)) {
    [[maybe_unused]] rocev2::PacketBatch* kept = batch_.release();
    return;
  }
  pool.lock.lock();
  if (pool.free.size() < kKept) pool.free.push_back(std::move(batch_));
  pool.lock.unlock();
  batch_.reset();
}

}  // namespace airdma::runtime
