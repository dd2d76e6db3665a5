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

/// What a stream has brought and nobody could use yet: the front of an FPDU, with room behind it
/// for the rest. Holds memory only while there is something in it or a turn of receiving goes on.
class InputBuffer {
 public:
  /// Makes room; false when memory is exhausted.
  bool open();
  [[nodiscard]] bool is_open() const { return static_cast<bool>(buffer_); }
  [[nodiscard]] std::size_t held() const { return end_ - begin_; }
  /// Where the next bytes go: room for the rest of any FPDU. Only when open.
  [[nodiscard]] MutableBytes room();
  /// `count` bytes were written to room(). Returns everything that is held.
  Bytes add(std::size_t count);
  [[nodiscard]] Bytes content() const { return Bytes(buffer_.bytes()).subspan(begin_, held()); }
  /// The first `count` bytes are done with.
  void use(std::size_t count) { begin_ += count; }
  /// The end of a turn: gives the memory back if it is empty. False when something is held that the
  /// caller must keep elsewhere, because too many streams hold a buffer already.
  [[nodiscard]] bool rest();
  void close();

  InputBuffer() = default;
  ~InputBuffer() { close(); }
  InputBuffer(const InputBuffer&) = delete;
  InputBuffer& operator=(const InputBuffer&) = delete;

 private:
  IoBuffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool counted_ = false;  // among those that rest with something in them
};

}  // namespace airdma::runtime
