// SPDX-License-Identifier: MIT
// The trace of this process: AIRDMA_TRACE=FILE turns it on, and all processes that inherit the
// variable append to the one file.
#pragma once

#include <cstdint>

#include "trace/pcapng.h"

namespace airdma::trace {

/// The file, opened on first use; null when AIRDMA_TRACE is unset or the file cannot be used
/// (logged once). Lives as long as the process: connections may close during its exit.
[[nodiscard]] PcapngFile* process_trace();

/// Unix time in nanoseconds.
[[nodiscard]] std::uint64_t unix_time_ns();

}  // namespace airdma::trace
