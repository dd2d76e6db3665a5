// SPDX-License-Identifier: MIT
// The CRC32C kernels against each other: the first byte chooses a cut and so an alignment.
#include "wire/crc32c.h"

#include <algorithm>
#include <vector>

#include "fuzz/check.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace airdma;
  using namespace airdma::wire;
  if (size == 0) return 0;
  const Bytes all = airdma::fuzz::input(data, size).subspan(1);
  const std::size_t cut = std::min<std::size_t>(data[0], all.size());
  const std::uint32_t right = crc32c_variants().back().extend(0, all);
  std::vector<std::byte> copy(all.size());
  for (const Crc32cVariant& variant : crc32c_variants()) {
    if (!variant.supported()) continue;
    const std::uint32_t first = variant.extend(0, all.first(cut));
    FUZZ_CHECK(variant.extend(first, all.subspan(cut)) == right);
    std::ranges::fill(copy, std::byte{0});
    FUZZ_CHECK(variant.copy(first, copy.data() + cut, all.subspan(cut)) == right);
    FUZZ_CHECK(std::ranges::equal(Bytes(copy).subspan(cut), all.subspan(cut)));
  }
  return 0;
}
