// SPDX-License-Identifier: MIT
// MPA's receiving half (RFC 5044 4): finds whole FPDUs in a byte stream that arrives in pieces of
// any size, and checks them. An FPDU that lies whole in the input is looked at in place; only one
// that straddles two inputs is assembled here.
// Not here: what the ULPDU says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "model/violation.h"
#include "wire/mpa.h"

namespace airdma::iwarp {

/// Usage per input: feed(), then next() and consume() for each FPDU, then keep_rest() or
/// leave_rest().
class FpduReader {
 public:
  enum class Outcome : std::uint8_t { kNeedMore, kFpdu, kBad };
  struct Next {
    Outcome outcome = Outcome::kNeedMore;
    Bytes ulpdu;  // kFpdu: verified; valid until consume()
    model::Violation violation = model::Violation::kMpaCrc;  // kBad
  };

  void start(bool crc, bool markers);

  /// The bytes stay the caller's and must not change until keep_rest().
  void feed(Bytes input) { input_ = input; }
  /// The FPDU at the front. The same one until consume().
  [[nodiscard]] Next next();
  void consume();
  /// Copies what is left of the input, to be continued by the next feed().
  void keep_rest();
  /// In place of keep_rest(): forgets what is left of the input, for the caller to feed it again
  /// with more behind it. Returns its bytes; 0 when it had to be kept because the FPDU at the front
  /// began in an earlier input.
  [[nodiscard]] std::size_t leave_rest();
  /// Drops everything.
  void discard();
  /// Bytes kept inside.
  [[nodiscard]] std::size_t kept() const { return kept_.size() - kept_used_; }

 private:
  [[nodiscard]] Bytes front() const;
  [[nodiscard]] bool gather(std::size_t bytes);
  [[nodiscard]] Next check(Bytes covered, Bytes ulpdu, const std::byte* crc_field);
  [[nodiscard]] Next next_with_markers();
  [[nodiscard]] bool strip_markers(Bytes raw);
  void trim();

  bool crc_ = true;
  bool markers_ = false;
  bool verified_ = false;          // the FPDU at the front
  std::size_t front_bytes_ = 0;    // of the stream, once known
  wire::MarkerSchedule schedule_;  // at the front FPDU's first byte
  Bytes input_;
  std::vector<std::byte> kept_;
  std::size_t kept_used_ = 0;
  std::vector<std::byte> stripped_;
};

}  // namespace airdma::iwarp
