// SPDX-License-Identifier: MIT
// Segments of queue 0 that came while no receive was posted for the first of them: copied, in the
// order of the stream, so that what lies behind them can be served.
// Not here: when they are delivered (target.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace airdma::iwarp {

/// A segment of queue 0 on its way to a receive.
struct UntaggedSegment {
  wire::SegmentHeader header{};
  const wire::OpcodeInfo* opcode = nullptr;
  std::uint64_t written = 0;  // bytes of the WRITE message right before it
  Bytes payload{};
};

class ParkingLot {
 public:
  // Limit: bytes of payload and book-keeping. Four of the largest segments, or thousands of small
  // ones; one of any size fits into an empty lot.
  static constexpr std::size_t kLimit = std::size_t{256} * 1024;

  [[nodiscard]] bool empty() const { return first_ == slots_.size(); }
  [[nodiscard]] std::size_t size() const { return slots_.size() - first_; }
  /// Copies the segment behind the others; false when there is no room for it.
  [[nodiscard]] bool add(const UntaggedSegment& segment);
  /// The oldest, until pop(); its payload lies here. Not when empty.
  [[nodiscard]] UntaggedSegment front() const;
  void pop();
  void clear();

 private:
  struct Slot {
    wire::SegmentHeader header;
    const wire::OpcodeInfo* opcode = nullptr;
    std::uint64_t written = 0;
    std::size_t payload_bytes = 0;
  };

  void make_room(std::size_t payload_bytes);
  void drop_past();

  std::vector<Slot> slots_;
  std::vector<std::byte> payload_;
  std::size_t first_ = 0;         // slot of the oldest; those before it are over
  std::size_t payload_used_ = 0;  // bytes of those
};

}  // namespace airdma::iwarp
