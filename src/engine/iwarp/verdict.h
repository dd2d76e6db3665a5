// SPDX-License-Identifier: MIT
// What became of a received segment.
#pragma once

#include <cstdint>

#include "model/violation.h"

namespace airdma::iwarp {

struct Verdict {
  enum class Kind : std::uint8_t {
    kDone,
    kStall,      // no receive is posted for it: nothing has changed, offer it again later
    kViolation,  // it ends the stream
  };
  Kind kind = Kind::kDone;
  model::Violation violation = model::Violation::kUnexpectedOpcode;

  constexpr Verdict() = default;
  constexpr explicit(false) Verdict(model::Violation v) : kind(Kind::kViolation), violation(v) {}
  static constexpr Verdict stall() {
    Verdict verdict;
    verdict.kind = Kind::kStall;
    return verdict;
  }
};

}  // namespace airdma::iwarp
