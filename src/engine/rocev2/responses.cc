// SPDX-License-Identifier: MIT
#include "engine/rocev2/responses.h"

#include <algorithm>

namespace airdma::rocev2 {

void Responses::reset(std::size_t depth) {
  depth_ = depth;
  pending_.reset(depth + kRepeats);
  atomics_.reset(std::max<std::size_t>(depth, 1));
}

void Responses::push(const Response& response) {
  if (response.atomic) {
    if (atomics_.full()) atomics_.pop();
    atomics_.push(response);
  }
  insert(response);
}

std::size_t Responses::fresh() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < pending_.size(); ++i) count += pending_.at(i).repeated ? 0 : 1;
  return count;
}

void Responses::insert(const Response& response) {
  // What is dropped here the peer asks for again.
  if (pending_.full() && pending_.front().repeated) pending_.pop();
  if (pending_.full()) return;
  pending_.push(response);
  for (std::size_t i = pending_.size() - 1; i > 0; --i) {
    if (pending_.at(i - 1).sequence < pending_.at(i).sequence) return;
    std::swap(pending_.at(i - 1), pending_.at(i));
  }
}

void Responses::repeat_read(const Response& response, std::uint32_t mtu) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    Response& pending = pending_.at(i);
    if (response.sequence < pending.sequence || response.sequence >= pending.end()) continue;
    const auto skipped = static_cast<std::uint32_t>(response.sequence - pending.sequence);
    if (skipped >= pending.done || pending.atomic) return;
    // The part from there on is a response of its own, as to a request of its own.
    const auto bytes = static_cast<std::uint32_t>(std::uint64_t{skipped} * mtu);
    pending.sequence += skipped;
    pending.packets -= skipped;
    pending.done = 0;
    pending.repeated = true;
    pending.range.address += bytes;
    pending.range.bytes -= bytes;
    return;
  }
  insert(response);
}

bool Responses::repeat_atomic(std::uint64_t sequence, AckMsn msn) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (pending_.at(i).sequence == sequence) return true;
  }
  for (std::size_t i = 0; i < atomics_.size(); ++i) {
    if (atomics_.at(i).sequence != sequence) continue;
    Response again = atomics_.at(i);
    again.repeated = true;
    again.msn = msn;
    insert(again);
    return true;
  }
  return false;
}

}  // namespace airdma::rocev2
