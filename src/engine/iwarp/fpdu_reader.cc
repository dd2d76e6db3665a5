// SPDX-License-Identifier: MIT
#include "engine/iwarp/fpdu_reader.h"

#include <algorithm>
#include <cstring>

#include "wire/crc32c.h"
#include "wire/layout.h"

namespace airdma::iwarp {
namespace {

// Limit: what an idle connection keeps of a buffer that a stall made large.
constexpr std::size_t kIdleCapacity = std::size_t{128} * 1024;

std::size_t ulpdu_length(Bytes at) {
  return std::to_integer<std::size_t>(at[0]) << 8 | std::to_integer<std::size_t>(at[1]);
}

}  // namespace

void FpduReader::start(bool crc, bool markers) {
  crc_ = crc;
  markers_ = markers;
}

Bytes FpduReader::front() const { return kept() != 0 ? Bytes{kept_}.subspan(kept_used_) : input_; }

/// Makes front() at least `bytes` long if the input allows.
bool FpduReader::gather(std::size_t bytes) {
  if (kept() == 0) return input_.size() >= bytes;
  if (kept() >= bytes) return true;
  const std::size_t piece = std::min(bytes - kept(), input_.size());
  kept_.insert(kept_.end(), input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(piece));
  input_ = input_.subspan(piece);
  return kept() >= bytes;
}

FpduReader::Next FpduReader::check(Bytes covered, Bytes ulpdu, const std::byte* crc_field) {
  if (crc_ && !verified_ && wire::crc32c(covered) != wire::load_fpdu_crc(crc_field)) {
    return {.outcome = Outcome::kBad, .ulpdu = {}, .violation = model::Violation::kMpaCrc};
  }
  verified_ = true;
  return {.outcome = Outcome::kFpdu, .ulpdu = ulpdu};
}

FpduReader::Next FpduReader::next() {
  if (markers_) return next_with_markers();
  if (!gather(wire::kFpduLengthBytes)) return {};
  const std::size_t ulpdu_bytes = ulpdu_length(front());
  front_bytes_ = wire::fpdu_bytes(ulpdu_bytes);
  if (!gather(front_bytes_)) return {};
  const Bytes fpdu = front().first(front_bytes_);
  const std::size_t covered = front_bytes_ - wire::kFpduCrcBytes;
  return check(fpdu.first(covered), fpdu.subspan(wire::kFpduLengthBytes, ulpdu_bytes),
               fpdu.data() + covered);
}

FpduReader::Next FpduReader::next_with_markers() {
  const std::size_t lead = schedule_.due() ? wire::kMarkerBytes : 0;
  if (!gather(lead + wire::kFpduLengthBytes)) return {};
  const std::size_t ulpdu_bytes = ulpdu_length(front().subspan(lead));
  const std::size_t plain = wire::fpdu_bytes(ulpdu_bytes);
  front_bytes_ = plain + schedule_.markers_among(plain) * wire::kMarkerBytes;
  if (!gather(front_bytes_)) return {};
  const Bytes raw = front().first(front_bytes_);
  const std::size_t covered = front_bytes_ - wire::kFpduCrcBytes;
  // The CRC goes first: a damaged length field misplaces every marker after it.
  Next next = check(raw.first(covered), {}, raw.data() + covered);
  if (next.outcome != Outcome::kFpdu) return next;
  if (!strip_markers(raw)) {
    return {.outcome = Outcome::kBad, .ulpdu = {}, .violation = model::Violation::kMpaMarker};
  }
  next.ulpdu = Bytes{stripped_}.subspan(wire::kFpduLengthBytes, ulpdu_bytes);
  return next;
}

/// False when a marker's pointer is wrong.
bool FpduReader::strip_markers(Bytes raw) {
  stripped_.clear();
  wire::MarkerSchedule at = schedule_;
  const std::uint64_t fpdu_start = at.position() + (at.due() ? wire::kMarkerBytes : 0);
  while (!raw.empty()) {
    if (at.due()) {
      const auto marker = wire::load<wire::MpaMarker>(raw);
      if (!marker || marker->fpdu_pointer.get() != at.fpdu_pointer(fpdu_start)) return false;
      raw = raw.subspan(wire::kMarkerBytes);
      at.advance(wire::kMarkerBytes);
    }
    const std::size_t piece = std::min(raw.size(), at.bytes_until_due());
    stripped_.insert(stripped_.end(), raw.begin(),
                     raw.begin() + static_cast<std::ptrdiff_t>(piece));
    raw = raw.subspan(piece);
    at.advance(piece);
  }
  return true;
}

void FpduReader::consume() {
  if (kept() != 0) {
    kept_used_ += front_bytes_;
    if (kept() == 0) trim();
  } else {
    input_ = input_.subspan(front_bytes_);
  }
  schedule_.advance(front_bytes_);
  verified_ = false;
}

void FpduReader::trim() {
  kept_.clear();
  kept_used_ = 0;
  if (kept_.capacity() > kIdleCapacity) kept_.shrink_to_fit();
}

void FpduReader::keep_rest() {
  if (kept_used_ > kept_.size() / 2) {
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(kept_used_));
    kept_used_ = 0;
  }
  kept_.insert(kept_.end(), input_.begin(), input_.end());
  input_ = {};
}

std::size_t FpduReader::leave_rest() {
  if (kept() != 0) {
    keep_rest();
    return 0;
  }
  const std::size_t left = input_.size();
  input_ = {};
  return left;
}

void FpduReader::discard() {
  input_ = {};
  trim();
}

}  // namespace airdma::iwarp
