// SPDX-License-Identifier: MIT
// Cuts one direction of an MPA stream into its frames: the opening request or reply, then FPDUs.
// Cuts only; what a frame says is its receiver's business. RFC 5044 4 and 7.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "wire/mpa.h"

namespace airdma::trace {

class FpduSplitter {
 public:
  using Sink = std::function<void(Bytes unit)>;

  explicit FpduSplitter(wire::MpaFrameKind opening) : opening_(opening) {}

  /// Adds bytes of the stream and hands every frame that is now complete to `sink`. What does not
  /// look like MPA goes to `sink` as it came.
  void feed(Bytes bytes, const Sink& sink);
  /// Hands over what is left of an unfinished frame.
  void flush(const Sink& sink);

  /// The stream has markers from its first FPDU on. Call before the first FPDU arrives.
  void expect_markers() {
    if (!markers_) markers_.emplace();
  }
  /// The sender of this direction asked for markers in the other one. Known after the opening.
  [[nodiscard]] bool wants_markers() const { return wants_markers_; }

 private:
  enum class Phase : std::uint8_t { kOpening, kFpdus, kRaw };

  /// Hands over the whole frames at the start of `bytes`; how many bytes they were.
  std::size_t take_units(Bytes bytes, const Sink& sink);
  /// Length of the frame that `bytes` begins with, or nothing when more of it is needed to know.
  [[nodiscard]] std::optional<std::size_t> unit_bytes(Bytes bytes);
  [[nodiscard]] std::optional<std::size_t> opening_bytes(Bytes bytes);
  [[nodiscard]] std::optional<std::size_t> fpdu_stream_bytes(Bytes bytes) const;
  void unit_done(std::size_t bytes);

  wire::MpaFrameKind opening_;
  Phase phase_ = Phase::kOpening;
  bool wants_markers_ = false;
  std::optional<wire::MarkerSchedule> markers_;
  std::vector<std::byte> pending_;  // the beginning of an unfinished frame, at most one FPDU
};

}  // namespace airdma::trace
