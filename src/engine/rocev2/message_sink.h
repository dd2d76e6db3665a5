// SPDX-License-Identifier: MIT
// Puts SENDs and WRITEs of the peer together, packet by packet in their order, and completes the
// receives they use (IBTA vol. 1, 9.4.1, 9.4.3, 9.7.4). The same for reliable and unreliable
// connections.
// Not here: whether a packet is the next one, and what is answered.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "engine/rocev2/program_memory.h"
#include "engine/rocev2/shared.h"
#include "engine/rocev2/violation.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

class MessageSink {
 public:
  enum class Outcome : std::uint8_t {
    kTaken,
    kNoReceive,  // none is posted: nothing has changed, the packet may come again
    kRefused,    // see refusal()
  };

  MessageSink(Shared& shared, model::ReceiveQueue& queue);

  /// A packet of a SEND or WRITE, the next one of its connection.
  [[nodiscard]] Outcome accept(const wire::RocePacket& packet);
  [[nodiscard]] Violation refusal() const { return refusal_; }
  /// A message has begun that has not ended.
  [[nodiscard]] bool within_message() const { return active_; }
  /// Forgets the message that has begun; its receive waits for the next one.
  void drop_message() { active_ = false; }
  /// Whose memory a request may touch; nothing: it names an XRC queue there is not.
  [[nodiscard]] std::optional<PdId> domain(const wire::RocePacket& packet) const;

  /// Completes everything posted: the oldest with `first` when it was being filled or was about
  /// to be, the rest with FLUSH_ERR.
  void flush(model::WcStatus first = model::WcStatus::kFlushError);
  void reset();
  /// Lets go of the memory until the next packet comes.
  void release() {
    scatter_.release();
    target_.release();
  }

 private:
  [[nodiscard]] Outcome refuse(Violation violation) {
    refusal_ = violation;
    return Outcome::kRefused;
  }
  [[nodiscard]] std::optional<Violation> check_place(const wire::RocePacket& packet) const;
  [[nodiscard]] Outcome begin(const wire::RocePacket& packet);
  [[nodiscard]] Outcome begin_write(const wire::RocePacket& packet);
  [[nodiscard]] Outcome take_receive(const wire::RocePacket& packet);
  [[nodiscard]] Outcome place(const wire::RocePacket& packet);
  [[nodiscard]] Outcome end(const wire::RocePacket& packet);
  void complete(const wire::RocePacket& packet);

  Shared& shared_;
  model::ReceiveQueue& queue_;
  PdId receive_pd_;
  Srqn srqn_;  // XRC: where the receive in the queue came from
  Violation refusal_ = Violation::kUnsupported;

  bool active_ = false;
  wire::Operation operation_ = wire::Operation::kSend;
  std::uint32_t received_ = 0;  // bytes of the message
  std::uint32_t expected_ = 0;  // WRITE: of the whole message
  Scatter scatter_;
  RemoteTarget target_;
};

}  // namespace airdma::rocev2
