// SPDX-License-Identifier: MIT
// What was framed and TCP has not taken yet.
#pragma once

#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "runtime/io_buffer.h"

namespace airdma::runtime {

class Backlog {
 public:
  Backlog() = default;
  Backlog(Backlog&& other) noexcept { *this = std::move(other); }
  Backlog& operator=(Backlog&& other) noexcept;

  [[nodiscard]] bool empty() const { return first_ == count_; }
  /// Takes a buffer over whose bytes [begin, end) are to be sent. Only when empty.
  void adopt(IoBuffer buffer, std::size_t begin, std::size_t end);
  /// Copies bytes behind what there is. False when there is no memory for them, or when they are
  /// gone: then something of them may have been added.
  [[nodiscard]] bool append(Bytes bytes);
  /// What comes next, in one piece. Not when empty.
  [[nodiscard]] Bytes front() const;
  /// The first `count` bytes of front() are sent.
  void use(std::size_t count);
  void clear();

 private:
  // Limit: room for what one Gather holds, and its buffer.
  static constexpr std::size_t kMost = 4;

  [[nodiscard]] bool add_buffer();

  IoBuffer buffers_[kMost];
  std::size_t ends_[kMost] = {};
  std::size_t count_ = 0;
  std::size_t first_ = 0;  // the buffer that is being sent
  std::size_t begin_ = 0;  // in it
};

}  // namespace airdma::runtime
