// SPDX-License-Identifier: MIT
// The shared receive queues of an XRC domain, as the targets of its connections find them: each
// message names one by its number (IBTA vol. 1, annex A14). Thread-safe. Lock order: a queue pair's
// transport, then this, then a shared receive queue or a completion queue.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/spin_lock.h"
#include "engine/rocev2/attributes.h"
#include "model/completion.h"
#include "runtime/completion_queue.h"
#include "runtime/shared_receive_queue.h"

namespace airdma::runtime {

class XrcDomain final : public rocev2::XrcReceives {
 public:
  /// `queue`'s receives complete on `cq`, which outlives the number's membership.
  void add(Srqn number, std::shared_ptr<SharedReceiveQueue> queue, CompletionQueue& cq);
  /// No receive is taken and no completion reported from here on.
  void remove(Srqn number);

  Outcome take(Srqn number, model::ReceiveQueue& queue, PdId& pd) override;
  std::optional<PdId> domain(Srqn number) override;
  /// To the completion queue of the shared receive queue that it names. False when that was or is
  /// overrun; true, too, when there is no such queue any more.
  bool report(const model::Completion& completion);

 private:
  struct Member {
    std::shared_ptr<SharedReceiveQueue> queue;
    CompletionQueue* cq;
  };

  SpinLock lock_;
  std::unordered_map<std::uint32_t, Member> members_;
};

}  // namespace airdma::runtime
