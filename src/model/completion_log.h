// SPDX-License-Identifier: MIT
// Completions of one queue pair in the order they happened, until the driver takes them.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "model/completion.h"
#include "model/work.h"

namespace airdma::model {

class CompletionLog {
 public:
  explicit CompletionLog(Qpn qpn) : qpn_(qpn) {}

  void add(Completion completion) {
    completion.qpn = qpn_;
    if (completion.status != WcStatus::kSuccess) completion.solicited = true;
    entries_.push_back(completion);
  }
  [[nodiscard]] std::span<const Completion> entries() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  Qpn qpn_;
  std::vector<Completion> entries_;
};

/// What the completion of a send work request says in wc.opcode.
[[nodiscard]] constexpr WcOpcode wc_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm:
      return WcOpcode::kRdmaWrite;
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm:
    case SendOpcode::kSendWithInvalidate:
      return WcOpcode::kSend;
    case SendOpcode::kRead:
      return WcOpcode::kRdmaRead;
    case SendOpcode::kCompareSwap:
      return WcOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd:
      return WcOpcode::kFetchAdd;
    case SendOpcode::kLocalInvalidate:
      return WcOpcode::kLocalInvalidate;
    case SendOpcode::kBindMw:
      return WcOpcode::kBindMw;
  }
  return WcOpcode::kSend;  // a value that is no opcode: the program's to explain
}

}  // namespace airdma::model
