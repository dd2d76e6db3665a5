// SPDX-License-Identifier: MIT
// What a user may choose about MPA, from the environment:
//   AIRDMA_MPA_CRC=on|off|require|refuse      default on
//   AIRDMA_MPA_MAX_FPDU=BYTES|mss             default: as the peer and the path like it
//   AIRDMA_MPA_MARKERS=on|off                 demand markers of peers; default off
//   AIRDMA_MPA_RTR=write|read|send|none       default: WRITE and READ on offer
//   AIRDMA_MPA_REVISION=1|2                   of requests; default 2
// Read once per process. A value that is none of these counts as unset, and a line in the log
// (AIRDMA_LOG) says so. docs/protocols/iwarp.md has the meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/cm/mpa_connection.h"

namespace airdma::runtime {

/// Length of the FPDUs we send.
struct FpduLimit {
  enum class Kind : std::uint8_t { kAutomatic, kSegment, kBytes };
  Kind kind = Kind::kAutomatic;
  std::size_t bytes = 0;  // with kBytes: of a whole FPDU without its markers
};

struct MpaSettings {
  mpa::CrcPolicy crc = mpa::CrcPolicy::kPrefer;
  FpduLimit fpdu;
  bool markers = false;
  std::optional<mpa::Rtr> rtr;
  std::uint8_t revision = 2;

  /// Puts the choices into an offer.
  void apply(mpa::Offer& offer) const;
};

/// Shortest FPDU that may be asked for: every header fits, and some payload.
inline constexpr std::size_t kLeastFpduBytes = 136;
inline constexpr std::size_t kMostFpduBytes = 65536;

/// `value_of(name)` is the variable's value or null, as getenv(3).
MpaSettings read_mpa_settings(const char* (*value_of)(const char* name));
/// Of this process.
const MpaSettings& mpa_settings();

}  // namespace airdma::runtime
