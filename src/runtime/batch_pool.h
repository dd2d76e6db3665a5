// SPDX-License-Identifier: MIT
// Batches of packets, borrowed for the length of one pump by whoever sends: idle queue pairs hold
// none, and a busy thread finds the one it used last still in its cache.
#pragma once

#include <memory>
#include <utility>

#include "engine/rocev2/packet_batch.h"

namespace airdma::runtime {

class BorrowedBatch {
 public:
  BorrowedBatch() = default;
  /// An empty object when memory is exhausted.
  static BorrowedBatch borrow();
  BorrowedBatch(BorrowedBatch&& other) noexcept = default;
  BorrowedBatch& operator=(BorrowedBatch&& other) noexcept {
    give_back();
    batch_ = std::move(other.batch_);
    return *this;
  }
  ~BorrowedBatch() { give_back(); }

  [[nodiscard]] explicit operator bool() const { return batch_ != nullptr; }
  rocev2::PacketBatch& operator*() const { return *batch_; }
  rocev2::PacketBatch* operator->() const { return batch_.get(); }
  /// Clears it, too.
  void give_back();

 private:
  std::unique_ptr<rocev2::PacketBatch> batch_;
};

}  // namespace airdma::runtime
