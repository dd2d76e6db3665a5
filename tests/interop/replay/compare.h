// SPDX-License-Identifier: MIT
// What airdma sent against what the captured side sent.
#pragma once

#include <optional>
#include <string>

#include "tests/interop/replay/deviations.h"
#include "tests/interop/replay/script.h"

namespace airdma::interop {

struct Difference {
  std::uint64_t offset = 0;  // in the captured side's stream
  std::string what;
  std::string expected;
  std::string ours;
};

/// The MPA frame of a side: `ours` as airdma's engine emitted it.
[[nodiscard]] std::optional<Difference> compare_frames(const Script& script, Bytes ours,
                                                       Deviations& used);

struct Comparison {
  std::optional<Difference> difference;
  bool identical = false;  // byte for byte
  bool exact = false;      // cut into the same FPDUs
};
/// The FPDU streams. `ours` begins with an MPA frame as long as the captured one.
[[nodiscard]] Comparison compare_streams(const Script& script, bool crc, Bytes ours,
                                         Deviations& used);

}  // namespace airdma::interop
