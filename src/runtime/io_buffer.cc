// SPDX-License-Identifier: MIT
#include "runtime/io_buffer.h"

#include <new>
#include <vector>

#include "base/process_global.h"
#include "base/spin_lock.h"

namespace airdma::runtime {
namespace {

constexpr std::size_t kKept = 16;

struct Pool {
  SpinLock lock;
  std::vector<std::unique_ptr<std::byte[]>> free;
  Pool() { free.reserve(kKept); }
};

}  // namespace

IoBuffer IoBuffer::borrow() {
  Pool& pool = ProcessGlobal<Pool>::get();
  IoBuffer buffer;
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
  pool.lock.lock();
  if (pool.free.size() < kKept) pool.free.push_back(std::move(data_));
  pool.lock.unlock();
  data_.reset();
}

}  // namespace airdma::runtime
