// SPDX-License-Identifier: MIT
// CRC32C (Castagnoli), as MPA uses it (RFC 5044 4.4) and iSCSI before it: polynomial 0x1EDC6F41
// reflected, initial value and final inversion all ones. crc32c("123456789") is 0xe3069283.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace airdma::wire {

/// CRC of `a` followed by `b`, given the CRC of `a` (0 when `a` is empty). Values are finished
/// CRCs, so crc32c_extend(crc32c(a), b) == crc32c(a + b).
[[nodiscard]] std::uint32_t crc32c_extend(std::uint32_t crc, Bytes bytes);
[[nodiscard]] inline std::uint32_t crc32c(Bytes bytes) { return crc32c_extend(0, bytes); }

/// crc32c_extend(crc, from), and `from` copied to `to` in the same pass over memory. The two must
/// not overlap.
[[nodiscard]] std::uint32_t crc32c_copy(std::uint32_t crc, std::byte* to, Bytes from);

/// One implementation; tests run each that the CPU supports.
struct Crc32cVariant {
  const char* name;
  bool (*supported)();
  std::uint32_t (*extend)(std::uint32_t crc, Bytes bytes);
  std::uint32_t (*copy)(std::uint32_t crc, std::byte* to, Bytes from);
};
/// All that this build has, the fastest first, the portable one last. The functions above use the
/// first one supported; under an emulator that translates instructions, the last.
[[nodiscard]] std::span<const Crc32cVariant> crc32c_variants();

}  // namespace airdma::wire
