// SPDX-License-Identifier: MIT
// Views of raw memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace airdma {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

}  // namespace airdma
