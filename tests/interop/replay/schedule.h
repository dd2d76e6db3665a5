// SPDX-License-Identifier: MIT
// The order in which one side of a conversation met its events.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/interop/replay/script.h"

namespace airdma::interop {

/// Bytes of the peer that were captured before byte `own_offset` of this side's stream.
[[nodiscard]] std::uint64_t peer_bytes_before(const Conversation& conversation, Role role,
                                              std::uint64_t own_offset);

/// Capture order, with two changes. The peer's bytes are cut after each READ request, so that
/// memory may change before the next. And a capture shows bytes as they pass a link, not as either
/// end meets them: what ends the stream (the peer's FIN, reset or Terminate, the segment this side
/// answered with its own) comes after the last work request that this side still sent.
[[nodiscard]] std::vector<Event> make_schedule(const Conversation& conversation,
                                               const Script& script);

}  // namespace airdma::interop
