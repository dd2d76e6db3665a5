// SPDX-License-Identifier: MIT
// What the peer's atomic operations do to registered memory (IBTA vol. 1, 9.4.5). They are the
// processor's own atomic instructions, so they are atomic to every thread of every process that
// shares the memory, whether it got there by RDMA or not.
// Not here: their answers, and the copies of those for requests that come again (rc_responder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>

#include "engine/rocev2/shared.h"
#include "engine/rocev2/violation.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

/// Bytes that an atomic operation works on, and what their address must be a multiple of.
inline constexpr std::uint32_t kAtomicBytes = 8;

/// Does what the CMP_SWAP or FETCH_ADD asks for on behalf of `pd`; the value before it.
[[nodiscard]] std::expected<std::uint64_t, Violation> perform_atomic(
    const Shared& shared, PdId pd, const wire::RocePacket& request);

}  // namespace airdma::rocev2
