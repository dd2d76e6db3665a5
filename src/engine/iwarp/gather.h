// SPDX-License-Identifier: MIT
// What is to be sent, without a copy of all of it: pieces of a buffer of the driver's, and of
// registered memory between them, in the order of the stream.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "model/memory.h"

namespace airdma::iwarp {

/// The memory stays pinned until clear(). Not for keeping: deregistration waits for it.
class Gather {
 public:
  // Limit: as much as one call into the kernel carries well.
  static constexpr std::size_t kMostMemory = 8;
  static constexpr std::size_t kMostPieces = 2 * kMostMemory + 1;

  struct Piece {
    Bytes bytes;
    bool memory = false;  // of the program: it may be gone when it is read
  };

  /// Empty, with `buffer` for what has no other place.
  void start(MutableBytes buffer) {
    clear();
    buffer_ = buffer;
    used_ = buffer.data();
  }
  [[nodiscard]] std::span<const Piece> pieces() const { return {pieces_, count_}; }
  void clear() {
    for (std::size_t i = 0; i < memories_; ++i) pins_[i] = {};
    count_ = memories_ = memory_bytes_ = 0;
  }

  // For the engine.
  [[nodiscard]] MutableBytes buffer() const { return buffer_; }
  /// Memory pieces that it can still take.
  [[nodiscard]] std::size_t room() const { return kMostMemory - memories_; }
  [[nodiscard]] std::size_t memory_bytes() const { return memory_bytes_; }
  /// The buffer up to `end`, then the memory. With room().
  void add(const std::byte* end, Bytes memory, model::Pin pin) {
    add_buffer(end);
    pieces_[count_++] = {.bytes = memory, .memory = true};
    pins_[memories_++] = std::move(pin);
    memory_bytes_ += memory.size();
  }
  /// The buffer up to `end`.
  void add_buffer(const std::byte* end) {
    if (end == used_) return;
    pieces_[count_++] = {.bytes = {used_, end}};
    used_ = end;
  }

 private:
  MutableBytes buffer_;
  const std::byte* used_ = nullptr;  // end of what is in a piece
  Piece pieces_[kMostPieces];
  std::size_t count_ = 0;
  model::Pin pins_[kMostMemory];
  std::size_t memories_ = 0;
  std::size_t memory_bytes_ = 0;
};

}  // namespace airdma::iwarp
