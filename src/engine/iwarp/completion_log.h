// SPDX-License-Identifier: MIT
// The log of completions is the same for all transports.
#pragma once

#include "model/completion_log.h"

namespace airdma::iwarp {

using model::CompletionLog;
using model::wc_opcode;

}  // namespace airdma::iwarp
