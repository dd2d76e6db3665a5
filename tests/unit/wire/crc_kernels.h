// SPDX-License-Identifier: MIT
// What tests of either CRC compare with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace airdma::test {

/// One bit at a time: slow, and plainly the definition of both. The polynomial is reflected.
inline std::uint32_t crc_bitwise(std::uint32_t polynomial, std::uint32_t crc, Bytes bytes) {
  crc = ~crc;
  for (std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1)));
  }
  return ~crc;
}

/// Calls `check` with pieces of many lengths and alignments, up to 64 KiB: for oracles that are
/// fast.
template <class Check>
void for_many_pieces(Bytes data, Check check) {
  for (std::size_t n = 0; n <= 65536; n += n < 4096 ? 13 : 4093) check(data.subspan(n % 64, n));
}

}  // namespace airdma::test
