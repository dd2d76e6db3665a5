// SPDX-License-Identifier: MIT
// Memory that holds nothing: what is read is zero, what is written is gone. Address space for the
// longest access of one scatter/gather element, with hardly any memory behind it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace airdma::io {

/// One byte more than any 32-bit length.
inline constexpr std::size_t kNullMemoryBytes = std::size_t{1} << 32;

struct NullMemory {
  std::byte* zeroes = nullptr;  // kNullMemoryBytes that can be read
  std::byte* sink = nullptr;  // kNullMemoryBytes that can be written; what they hold means nothing
};

/// That of this process, made at the first call and kept. ENOMEM where address space is short.
/// Thread-safe.
Result<NullMemory> null_memory();

}  // namespace airdma::io
