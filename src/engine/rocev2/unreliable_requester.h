// SPDX-License-Identifier: MIT
// Send side of UC and UD (IBTA vol. 1, 9.8): what is sent is complete, as far as anybody knows. A
// mistake of the program ends only the send queue, in SQE (10.3.1).
#pragma once

#include <cstdint>
#include <optional>

#include "engine/rocev2/packet_batch.h"
#include "engine/rocev2/program_memory.h"
#include "engine/rocev2/shared.h"
#include "engine/rocev2/violation.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

class UnreliableRequester {
 public:
  UnreliableRequester(Shared& shared, model::SendQueue& queue);

  /// The attributes of RTR -> RTS are set.
  void start();
  void hold(bool held) { held_ = held; }
  /// SQE -> RTS.
  void resume();
  [[nodiscard]] bool drained() const { return position_ == queue_.head() && packet_ == 0; }

  [[nodiscard]] bool may_transmit() const {
    return running_ && !fault_ && (packet_ != 0 || (!held_ && position_ != queue_.tail()));
  }
  /// Of datagrams only those to one address; it is the batch's then, if the batch was empty.
  void fill(PacketBatch& batch);
  void on_unsent(const OutPacket& packet);
  /// Completes what was sent. Something that went wrong: the queue is flushed then, and must go to
  /// SQE with it.
  [[nodiscard]] std::optional<Violation> settle();
  void flush();
  void reset();
  [[nodiscard]] Psn send_psn() const { return psn_of(next_); }

 private:
  struct Fault {
    std::uint64_t position = 0;
    Violation violation = Violation::kOperation;
  };

  [[nodiscard]] bool datagrams() const { return shared_.config.type == model::QpType::kUd; }
  [[nodiscard]] bool begin();
  [[nodiscard]] std::optional<Violation> check(const model::SendWqe& wqe) const;
  [[nodiscard]] bool refuse(Violation violation);
  [[nodiscard]] bool send_next(PacketBatch& batch);
  [[nodiscard]] bool has_room(PacketBatch& batch, const model::SendWqe& wqe,
                              std::uint32_t bytes) const;
  [[nodiscard]] wire::RocePacket make_packet(const model::SendWqe& wqe, bool last) const;
  void report(const model::SendWqe& wqe, model::WcStatus status);

  Shared& shared_;
  model::SendQueue& queue_;
  Gather gather_;
  bool running_ = false;
  bool held_ = false;
  std::uint64_t position_ = 0;  // of the WQE whose packets come next
  std::uint32_t packet_ = 0;    // ... of it
  std::uint64_t next_ = kFirstSequence;
  std::optional<Fault> fault_;
};

}  // namespace airdma::rocev2
