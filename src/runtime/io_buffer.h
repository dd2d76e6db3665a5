// SPDX-License-Identifier: MIT
// Large buffers between engines and sockets, borrowed for the length of one pump: idle queue pairs
// hold none, and a busy thread finds the one it used last still in its cache.
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"

namespace airdma::runtime {

class IoBuffer {
 public:
  /// Big enough that a full socket buffer moves in few system calls, small enough for the cache.
  static constexpr std::size_t kSize = 256 * 1024;

  IoBuffer() = default;
  /// An empty object when memory is exhausted.
  static IoBuffer borrow();
  IoBuffer(IoBuffer&& other) noexcept = default;
  IoBuffer& operator=(IoBuffer&& other) noexcept {
    give_back();
    data_ = std::move(other.data_);
    return *this;
  }
  ~IoBuffer() { give_back(); }

  [[nodiscard]] explicit operator bool() const { return data_ != nullptr; }
  [[nodiscard]] MutableBytes bytes() const { return {data_.get(), kSize}; }
  void give_back();

 private:
  std::unique_ptr<std::byte[]> data_;
};

}  // namespace airdma::runtime
