// SPDX-License-Identifier: MIT
// The implementations of one CRC against each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz/check.h"

namespace airdma::fuzz {

/// Each goes over `all` in two pieces, the second one copied. Returns the CRC of the first piece.
template <class Variant>
std::uint32_t check_crc_kernels(std::span<const Variant> variants, Bytes all, std::size_t cut) {
  const std::uint32_t right = variants.back().extend(0, all);
  std::uint32_t first = 0;
  std::vector<std::byte> copy(all.size());
  for (const Variant& variant : variants) {
    if (!variant.supported()) continue;
    first = variant.extend(0, all.first(cut));
    FUZZ_CHECK(variant.extend(first, all.subspan(cut)) == right);
    std::ranges::fill(copy, std::byte{0});
    FUZZ_CHECK(variant.copy(first, copy.data() + cut, all.subspan(cut)) == right);
    FUZZ_CHECK(std::ranges::equal(Bytes(copy).subspan(cut), all.subspan(cut)));
  }
  return first;
}

}  // namespace airdma::fuzz
