// SPDX-License-Identifier: MIT
// Puts the packets that this process sends and receives into its trace, when there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "engine/rocev2/attributes.h"
#include "runtime/frame.h"
#include "runtime/send_outcome.h"

namespace airdma::trace {
class RoceTap;
}

namespace airdma::runtime {

/// Frames about to be sent on one path. Does nothing without a trace.
class SendTrace {
 public:
  /// `source_port` is 0 for packets that go to a process of this host. `origin` stays there.
  SendTrace(const rocev2::PacketOrigin& origin, std::uint16_t source_port);
  /// This is what became of them.
  void sent(std::span<const Frame> frames, const SendOutcome& outcome) const {
    if (tap_ != nullptr) record(frames, outcome);
  }

 private:
  void record(std::span<const Frame> frames, const SendOutcome& outcome) const;

  trace::RoceTap* tap_;
  const rocev2::PacketOrigin& origin_;
  std::uint16_t source_port_;
  std::uint64_t time_ns_ = 0;
};

/// A whole packet, BTH to pad.
void trace_received(const rocev2::PacketOrigin& origin, std::uint16_t source_port, Bytes packet);

/// Says which trace this process writes; 0 for none. A receiver with the same has no need to record
/// what this process sends.
std::uint64_t trace_mark();

}  // namespace airdma::runtime
