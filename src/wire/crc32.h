// SPDX-License-Identifier: MIT
// CRC32 of IEEE 802.3, which InfiniBand's ICRC is (IBTA vol. 1, 7.8.1; A17): polynomial 0x04C11DB7
// reflected, initial value and final inversion all ones. crc32("123456789") is 0xcbf43926.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace airdma::wire {

/// CRC of `a` followed by `b`, given the CRC of `a` (0 when `a` is empty). Values are finished
/// CRCs, so crc32_extend(crc32(a), b) == crc32(a + b).
[[nodiscard]] std::uint32_t crc32_extend(std::uint32_t crc, Bytes bytes);
[[nodiscard]] inline std::uint32_t crc32(Bytes bytes) { return crc32_extend(0, bytes); }

/// crc32_extend(crc, from), and `from` copied to `to` in the same pass over memory. The two must
/// not overlap.
[[nodiscard]] std::uint32_t crc32_copy(std::uint32_t crc, std::byte* to, Bytes from);

/// The polynomial, reflected: bit k stands for x^(31-k).
inline constexpr std::uint32_t kCrc32Polynomial = 0xedb88320;

/// a * b * x^32 modulo the polynomial, all reflected; the x^32 comes with the reduction, and a
/// constant factor makes up for it. This is what carries a difference between two CRCs over the
/// bytes that follow it, or back: crc32 of data with n zero bytes behind has the difference
/// crc32_multiply(difference, x^(8n - 32)).
[[nodiscard]] std::uint32_t crc32_multiply(std::uint32_t a, std::uint32_t b);

/// One implementation; tests run each that the CPU supports.
struct Crc32Variant {
  const char* name;
  bool (*supported)();
  std::uint32_t (*extend)(std::uint32_t crc, Bytes bytes);
  std::uint32_t (*copy)(std::uint32_t crc, std::byte* to, Bytes from);
  std::uint32_t (*multiply)(std::uint32_t a, std::uint32_t b);
};
/// All that this build has, the fastest first, the portable one last. The functions above use the
/// first one supported; under an emulator that translates instructions, the last.
[[nodiscard]] std::span<const Crc32Variant> crc32_variants();

}  // namespace airdma::wire
