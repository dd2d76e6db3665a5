// SPDX-License-Identifier: MIT
#include "runtime/io_buffer.h"

#include <atomic>
#include <cstring>
#include <new>
#include <vector>

#include "base/process_global.h"
#include "base/spin_lock.h"

namespace airdma::runtime {
namespace {

constexpr std::size_t kKept = 16;

// Behind what is held there is always room for so much, so that system calls stay few.
constexpr std::size_t kLeastRoom = IoBuffer::kSize / 4;
// Limit: streams that hold a buffer between turns. A peer decides how long an FPDU takes to arrive,
// so the others keep theirs in memory of its size.
constexpr int kMostResting = 16;

struct Pool {
  std::atomic<int> resting{0};
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

bool InputBuffer::open() {
  if (buffer_) return true;
  buffer_ = IoBuffer::borrow();
  return static_cast<bool>(buffer_);
}

MutableBytes InputBuffer::room() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (IoBuffer::kSize - end_ < kLeastRoom) {
    // An FPDU is no longer than the room that this makes.
    std::memmove(buffer_.bytes().data(), buffer_.bytes().data() + begin_, held());
    end_ = held();
    begin_ = 0;
  }
  return buffer_.bytes().subspan(end_);
}

Bytes InputBuffer::add(std::size_t count) {
  end_ += count;
  return content();
}

bool InputBuffer::rest() {
  if (held() == 0) {
    close();
    return true;
  }
  if (counted_) return true;
  auto& resting = ProcessGlobal<Pool>::get().resting;
  if (resting.fetch_add(1, std::memory_order_relaxed) < kMostResting) return counted_ = true;
  resting.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void InputBuffer::close() {
  if (counted_) ProcessGlobal<Pool>::get().resting.fetch_sub(1, std::memory_order_relaxed);
  counted_ = false;
  begin_ = end_ = 0;
  buffer_.give_back();
}

}  // namespace airdma::runtime
