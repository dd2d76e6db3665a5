// SPDX-License-Identifier: MIT
#include "engine/iwarp/parking_lot.h"

#include <algorithm>

namespace airdma::iwarp {
namespace {

// Limit: what a connection whose receives come late now and then keeps between two waits.
constexpr std::size_t kIdleCapacity = std::size_t{16} * 1024;

}  // namespace

bool ParkingLot::add(const UntaggedSegment& segment) {
  const std::size_t in_use = payload_.size() - payload_used_ + size() * sizeof(Slot);
  if (sizeof(Slot) + segment.payload.size() > kLimit - in_use) return false;
  make_room(segment.payload.size());
  slots_.push_back({.header = segment.header,
                    .opcode = segment.opcode,
                    .written = segment.written,
                    .payload_bytes = segment.payload.size()});
  payload_.insert(payload_.end(), segment.payload.begin(), segment.payload.end());
  return true;
}

/// Drops what is over before the memory would grow, which it does no further than the limit needs.
void ParkingLot::make_room(std::size_t payload_bytes) {
  const std::size_t wanted = payload_.size() + payload_bytes;
  if (wanted <= payload_.capacity()) return;
  drop_past();
  const std::size_t needed = payload_.size() + payload_bytes;
  if (needed <= payload_.capacity()) return;
  payload_.reserve(std::max(needed, std::min(needed * 2, kLimit)));
}

UntaggedSegment ParkingLot::front() const {
  const Slot& slot = slots_[first_];
  return {.header = slot.header,
          .opcode = slot.opcode,
          .written = slot.written,
          .payload = Bytes{payload_}.subspan(payload_used_, slot.payload_bytes)};
}

void ParkingLot::pop() {
  payload_used_ += slots_[first_++].payload_bytes;
  if (empty()) return clear();
  // A lot that never gets empty must not grow; moving the rest pays when most of it is over.
  if (first_ <= slots_.size() / 2 && payload_used_ <= payload_.size() / 2) return;
  drop_past();
}

void ParkingLot::drop_past() {
  slots_.erase(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(first_));
  payload_.erase(payload_.begin(), payload_.begin() + static_cast<std::ptrdiff_t>(payload_used_));
  first_ = payload_used_ = 0;
}

void ParkingLot::clear() {
  slots_.clear();
  payload_.clear();
  first_ = payload_used_ = 0;
  if (slots_.capacity() * sizeof(Slot) > kIdleCapacity) slots_.shrink_to_fit();
  if (payload_.capacity() > kIdleCapacity) payload_.shrink_to_fit();
}

}  // namespace airdma::iwarp
