// SPDX-License-Identifier: MIT
// Plays one side of a captured conversation with airdma's engines and judges what they did.
#pragma once

#include <optional>
#include <string>

#include "tests/interop/replay/compare.h"
#include "tests/interop/replay/conversation.h"

namespace airdma::interop {

enum class Verdict : std::uint8_t { kPass, kFail, kNotSupported };

struct RoleReport {
  Role role = Role::kInitiator;
  Verdict verdict = Verdict::kPass;
  std::string compared;   // what was, for people
  Difference difference;  // with kFail
  Deviations deviations;
};

/// Replays the side `role` of the conversation.
[[nodiscard]] RoleReport replay(const Conversation& conversation, Role role);

/// "initiator: PASS ..." and, below, differences and deviations; ends with a newline.
[[nodiscard]] std::string to_text(const RoleReport& report);

}  // namespace airdma::interop
