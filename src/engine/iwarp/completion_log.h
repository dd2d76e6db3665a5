// SPDX-License-Identifier: MIT
// Completions of one queue pair in the order they happened, until the driver takes them.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "model/completion.h"
#include "model/work.h"

namespace airdma::iwarp {

class CompletionLog {
 public:
  explicit CompletionLog(Qpn qpn) : qpn_(qpn) {}

  void add(model::Completion completion) {
    completion.qpn = qpn_;
    if (completion.status != model::WcStatus::kSuccess) completion.solicited = true;
    entries_.push_back(completion);
  }
  [[nodiscard]] std::span<const model::Completion> entries() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  Qpn qpn_;
  std::vector<model::Completion> entries_;
};

/// What the completion of a send work request says in wc.opcode.
[[nodiscard]] constexpr model::WcOpcode wc_opcode(model::SendOpcode opcode) {
  switch (opcode) {
    case model::SendOpcode::kWrite:
    case model::SendOpcode::kWriteWithImm:
      return model::WcOpcode::kRdmaWrite;
    case model::SendOpcode::kSend:
    case model::SendOpcode::kSendWithImm:
    case model::SendOpcode::kSendWithInvalidate:
      return model::WcOpcode::kSend;
    case model::SendOpcode::kRead:
      return model::WcOpcode::kRdmaRead;
    case model::SendOpcode::kCompareSwap:
      return model::WcOpcode::kCompareSwap;
    case model::SendOpcode::kFetchAdd:
      return model::WcOpcode::kFetchAdd;
    case model::SendOpcode::kLocalInvalidate:
      return model::WcOpcode::kLocalInvalidate;
    case model::SendOpcode::kBindMw:
      return model::WcOpcode::kBindMw;
  }
  return model::WcOpcode::kSend;  // a value that is no opcode: the program's to explain
}

}  // namespace airdma::iwarp
