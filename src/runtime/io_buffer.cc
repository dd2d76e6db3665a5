// SPDX-License-Identifier: MIT
#include "runtime/io_buffer.h"

#include <atomic>
#include <new>
#include <vector>

#include "base/process_global.h"
#include "base/spin_lock.h"

namespace airdma::runtime {
namespace {

constexpr std::size_t kKept = 16;

struct Pool {
  // The buffer that was given back last. Every poll borrows one: this saves it the lock.
  std::atomic<std::byte*> latest{nullptr};
  SpinLock lock;
  std::vector<std::unique_ptr<std::byte[]>> free;
  Pool() { free.reserve(kKept); }
};

}  // namespace

IoBuffer IoBuffer::borrow() {
  Pool& pool = ProcessGlobal<Pool>::get();
  IoBuffer buffer;
  buffer.data_.reset(pool.latest.exchange(nullptr, std::memory_order_acquire));
  if (buffer) return buffer;
  pool.lock.lock();
  if (!pool.free.empty()) {
    buffer.data_ = std::move(pool.free.back());
    pool.free.pop_back();
  }
  pool.lock.unlock();
  if (!buffer) buffer.data_.reset(new (std::nothrow) std::byte[kSize]);
  return buffer;
}

void IoBuffer::give_back() {
  if (!data_) return;
  Pool& pool = ProcessGlobal<Pool>::get();
  std::byte* none = nullptr;
  if (pool.latest.compare_exchange_strong(none, data_.get(), std::memory_order_release,
                                          std::memory_order_relaxed)) {
    [[maybe_unused]] std::byte* kept = data_.release();
    return;
  }
  pool.lock.lock();
  if (pool.free.size() < kKept) pool.free.push_back(std::move(data_));
  pool.lock.unlock();
  data_.reset();
}

}  // namespace airdma::runtime
