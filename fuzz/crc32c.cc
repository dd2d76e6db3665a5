// SPDX-License-Identifier: MIT
// The CRC32C kernels against each other: the first byte chooses a cut and so an alignment.
#include "wire/crc32c.h"

#include <algorithm>

#include "fuzz/check.h"
#include "fuzz/crc_kernels.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace airdma;
  using namespace airdma::wire;
  if (size == 0) return 0;
  const Bytes all = airdma::fuzz::input(data, size).subspan(1);
  const std::size_t cut = std::min<std::size_t>(data[0], all.size());
  airdma::fuzz::check_crc_kernels(crc32c_variants(), all, cut);
  return 0;
}
