// SPDX-License-Identifier: MIT
#include "trace/fpdu_splitter.h"

#include "base/be.h"
#include "wire/layout.h"

namespace airdma::trace {

void FpduSplitter::feed(Bytes bytes, const Sink& sink) {
  // Whole frames pass without a copy; only a frame that arrives in parts is put together.
  if (pending_.empty()) {
    const std::size_t used = take_units(bytes, sink);
    pending_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end());
    return;
  }
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  const std::size_t used = take_units(pending_, sink);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(used));
}

std::size_t FpduSplitter::take_units(Bytes bytes, const Sink& sink) {
  std::size_t used = 0;
  while (used < bytes.size()) {
    const Bytes rest = bytes.subspan(used);
    const std::optional<std::size_t> length = unit_bytes(rest);
    if (!length || *length > rest.size()) break;
    sink(rest.first(*length));
    unit_done(*length);
    used += *length;
  }
  return used;
}

void FpduSplitter::flush(const Sink& sink) {
  if (pending_.empty()) return;
  sink(pending_);
  pending_.clear();
  phase_ = Phase::kRaw;
}

std::optional<std::size_t> FpduSplitter::unit_bytes(Bytes bytes) {
  std::optional<std::size_t> length;
  if (phase_ == Phase::kOpening) length = opening_bytes(bytes);
  if (phase_ == Phase::kFpdus) length = fpdu_stream_bytes(bytes);
  if (phase_ == Phase::kRaw) length = bytes.size();
  return length;
}

std::optional<std::size_t> FpduSplitter::opening_bytes(Bytes bytes) {
  const wire::MpaParse parse = wire::parse_mpa(bytes, opening_);
  if (parse.error) phase_ = Phase::kRaw;
  if (!parse.frame) return std::nullopt;
  wants_markers_ = parse.frame->markers;
  return parse.frame_bytes;
}

std::optional<std::size_t> FpduSplitter::fpdu_stream_bytes(Bytes bytes) const {
  const bool marker_first = markers_ && markers_->due();
  const auto field = wire::load<be16>(wire::skip(bytes, marker_first ? wire::kMarkerBytes : 0));
  if (!field) return std::nullopt;
  const std::size_t plain = wire::fpdu_bytes(field->get());
  return plain + (markers_ ? markers_->markers_among(plain) * wire::kMarkerBytes : 0);
}

void FpduSplitter::unit_done(std::size_t bytes) {
  if (phase_ == Phase::kOpening) {
    phase_ = Phase::kFpdus;
  } else if (markers_) {
    markers_->advance(bytes);
  }
}

}  // namespace airdma::trace
