// SPDX-License-Identifier: MIT
// Receive side of an unreliable connection (IBTA vol. 1, 9.8.2): messages that arrive whole are
// delivered, others leave no trace but in the memory that a WRITE has reached. Nothing is answered.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/rocev2/message_sink.h"
#include "engine/rocev2/shared.h"
#include "engine/rocev2/violation.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

class UcResponder {
 public:
  UcResponder(Shared& shared, MessageSink& sink) : shared_(shared), sink_(sink) {}

  /// The attributes of INIT -> RTR are set.
  void start() { expected_ = first_sequence(shared_.attributes.rq_psn); }
  void reset() { failure_.reset(); }
  void on_request(const wire::RocePacket& packet);
  /// Set once: the queue pair must go to ERR with it.
  [[nodiscard]] std::optional<Violation> failure() const { return failure_; }
  [[nodiscard]] std::uint64_t expected() const { return expected_; }

 private:
  // Deviation: a message that starts with any PSN is a new one, says the specification. A packet
  // from so little behind is one that the network brought late or twice.
  static constexpr std::uint64_t kLate = 1024;

  Shared& shared_;
  MessageSink& sink_;
  std::uint64_t expected_ = kFirstSequence;
  std::optional<Violation> failure_;
};

}  // namespace airdma::rocev2
