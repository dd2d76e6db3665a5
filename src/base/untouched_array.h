// SPDX-License-Identifier: MIT
// Fixed array whose memory is not touched when it is made: the pages of a deep queue cost nothing
// until its slots are used. Elements begin with no value; they are written before they are read.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace airdma {

template <class T>
class UntouchedArray {
  // So that writing an element is enough to begin it, and nothing is due at its end.
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  UntouchedArray() = default;
  explicit UntouchedArray(std::size_t count)
      : data_(count == 0 ? nullptr
                         : static_cast<T*>(::operator new(count * sizeof(T), kAlignment))),
        size_(count) {}
  /// In memory of somebody else's, which is aligned for T and outlives the array.
  UntouchedArray(std::size_t count, void* memory)
      : data_(static_cast<T*>(memory), Free{.owned = false}), size_(count) {}

  [[nodiscard]] T* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_.get()[i]; }

 private:
  static constexpr std::align_val_t kAlignment{alignof(T) > 16 ? alignof(T) : 16};
  struct Free {
    bool owned = true;
    void operator()(T* data) const {
      if (owned) ::operator delete(data, kAlignment);
    }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace airdma
