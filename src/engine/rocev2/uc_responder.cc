// SPDX-License-Identifier: MIT
#include "engine/rocev2/uc_responder.h"

namespace airdma::rocev2 {

void UcResponder::on_request(const wire::RocePacket& packet) {
  const std::uint64_t sequence = extend(packet.psn, expected_);
  if (sequence < expected_ && expected_ - sequence <= kLate) {
    ++shared_.stats.duplicates;
    return;
  }
  const bool gap = sequence != expected_;
  if (gap) ++shared_.stats.out_of_sequence;
  if (gap || packet.info->starts()) sink_.drop_message();
  expected_ = sequence + 1;
  if (!packet.info->starts() && !sink_.within_message()) {
    ++shared_.stats.dropped;
    return;
  }
  switch (sink_.accept(packet)) {
    case MessageSink::Outcome::kTaken:
      return;
    case MessageSink::Outcome::kNoReceive:
      break;
    case MessageSink::Outcome::kRefused:
      // Mistakes of the peer are dropped in silence; a receive that cannot be filled is our own.
      if (sink_.refusal() == Violation::kReceiveTooSmall ||
          sink_.refusal() == Violation::kReceiveBuffer) {
        failure_ = sink_.refusal();
      }
  }
  sink_.drop_message();
  ++shared_.stats.dropped;
}

}  // namespace airdma::rocev2
