// SPDX-License-Identifier: MIT
// What the peer's atomic operations do to registered memory (RFC 7306 5). They are the processor's
// own atomic instructions, so they are atomic to every thread of every process that shares the
// memory, whether it got there by RDMA or not.
// Not here: their place among READs, and their answers (read_responder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>

#include "base/ids.h"
#include "model/memory.h"
#include "model/violation.h"
#include "wire/rdmap.h"

namespace airdma::iwarp {

/// Bytes that an atomic operation works on, and what their address must be a multiple of.
inline constexpr std::size_t kAtomicBytes = 8;

/// The memory that the request names, when the peer may do this there.
[[nodiscard]] std::expected<model::Pin, model::Violation> pin_atomic(
    const model::MemoryTable& memory, PdId pd, Qpn qpn, model::AccessMask remote_access,
    const wire::AtomicRequest& request);

/// Does the operation on eight aligned bytes in this host's byte order; the value before it, or
/// nothing when the program has taken the memory away.
[[nodiscard]] std::optional<std::uint64_t> perform_atomic(std::byte* target,
                                                          const wire::AtomicRequest& request);

}  // namespace airdma::iwarp
