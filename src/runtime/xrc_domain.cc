// SPDX-License-Identifier: MIT
#include "runtime/xrc_domain.h"

#include <mutex>
#include <utility>

namespace airdma::runtime {

void XrcDomain::add(Srqn number, std::shared_ptr<SharedReceiveQueue> queue, CompletionQueue& cq) {
  std::lock_guard lock(lock_);
  members_[number.value()] = {std::move(queue), &cq};
}

void XrcDomain::remove(Srqn number) {
  Member removed;
  std::lock_guard lock(lock_);
  const auto found = members_.find(number.value());
  if (found == members_.end()) return;
  removed = std::move(found->second);
  members_.erase(found);
}

XrcDomain::Outcome XrcDomain::take(Srqn number, model::ReceiveQueue& queue, PdId& pd) {
  std::lock_guard lock(lock_);
  const auto found = members_.find(number.value());
  if (found == members_.end()) return Outcome::kNoSuchQueue;
  pd = found->second.queue->pd();
  return found->second.queue->take(queue) ? Outcome::kTaken : Outcome::kEmpty;
}

std::optional<PdId> XrcDomain::domain(Srqn number) {
  std::lock_guard lock(lock_);
  const auto found = members_.find(number.value());
  if (found == members_.end()) return std::nullopt;
  return found->second.queue->pd();
}

bool XrcDomain::report(const model::Completion& completion) {
  std::lock_guard lock(lock_);
  const auto found = members_.find(completion.srqn.value());
  return found == members_.end() || found->second.cq->push(completion);
}

}  // namespace airdma::runtime
