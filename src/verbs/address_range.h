// SPDX-License-Identifier: MIT
// Whether a range of this process's memory can be registered.
#pragma once

#include <cstddef>

#include "base/result.h"

namespace airdma::verbs {

/// Checks that all of [start, start + bytes) is mapped and readable, and writable if `write`.
/// Never changes what the memory holds. Small ranges are made resident by it, which takes the page
/// faults out of the first transfers. Errors: EINVAL when the range wraps, EFAULT.
Status check_range(const void* start, std::size_t bytes, bool write);

/// The same, with the whole range made resident, however large, where its memory can be.
Status make_resident(const void* start, std::size_t bytes, bool write);

}  // namespace airdma::verbs
