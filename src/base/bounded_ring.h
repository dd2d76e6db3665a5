// SPDX-License-Identifier: MIT
// FIFO of a size fixed before its use. No allocation after reset().
#pragma once

#include <cstddef>

#include "base/untouched_array.h"

namespace airdma {

template <class T>
class BoundedRing {
 public:
  void reset(std::size_t capacity) {
    if (slots_.size() != capacity) slots_ = UntouchedArray<T>(capacity);
    first_ = count_ = 0;
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool full() const { return count_ == slots_.size(); }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] T& front() { return slots_[first_]; }
  [[nodiscard]] T& at(std::size_t i) { return slots_[(first_ + i) % slots_.size()]; }
  /// Not when full.
  void push(const T& value) {
    slots_[(first_ + count_) % slots_.size()] = value;
    ++count_;
  }
  void pop() {
    first_ = (first_ + 1) % slots_.size();
    --count_;
  }
  void clear() { first_ = count_ = 0; }

 private:
  UntouchedArray<T> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace airdma
