// SPDX-License-Identifier: MIT
// Receive side of one reliable connection (RC, and the target of XRC): takes the peer's requests in
// the order of their PSNs, carries them out once, and answers (IBTA vol. 1, 9.7.4, 9.7.5).
// Owns the expected PSN, the MSN and the queue of answers. ACKs are not sent when a packet comes
// but when the driver asks for output, so that one speaks for all packets received together.
// Not here: placement of SENDs and WRITEs (message_sink.h).
//
//   expected PSN ------> carried out; ACK when asked for, or response
//   behind it ---------> duplicate: ACK again, READ or atomic answered again
//   ahead of it -------> NAK "PSN sequence error", once for each gap and each time it was repeated
//   no receive --------> RNR NAK; what follows is ignored until the packet comes again
//   violation ---------> NAK with the violation's code, ERR; the NAK is repeated to whoever asks
#pragma once

#include <cstdint>
#include <optional>

#include "engine/rocev2/message_sink.h"
#include "engine/rocev2/packet_batch.h"
#include "engine/rocev2/responses.h"
#include "engine/rocev2/shared.h"
#include "engine/rocev2/violation.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

class RcResponder {
 public:
  RcResponder(Shared& shared, MessageSink& sink) : shared_(shared), sink_(sink) {}

  /// The attributes of INIT -> RTR are set.
  void start();
  void set_read_depth(std::uint8_t max_dest_rd_atomic);
  void on_request(const wire::RocePacket& packet);
  /// A request with an opcode that nobody knows.
  void on_unknown_opcode(Psn psn);
  /// The payload of this packet could not be read.
  void on_unsent(const OutPacket& packet);

  [[nodiscard]] bool may_transmit() const {
    return !responses_.empty() || nak_.has_value() || ack_due_;
  }
  /// There is no request to be answered or refused.
  [[nodiscard]] bool acknowledges_only() const { return responses_.empty() && !nak_; }
  /// All there is to say is that a few packets have come, which may be said a little later.
  [[nodiscard]] bool can_wait() const {
    return responses_.empty() && !nak_ && ack_due_ && unanswered_ <= kMostWaiting;
  }
  /// Adds what is to be answered. Of READs, no more than the batch holds.
  void fill(PacketBatch& batch);

  /// Set once: the queue pair must go to ERR with it. The NAK is still to be sent.
  [[nodiscard]] std::optional<Violation> failure() const { return failure_; }
  /// The queue pair is in ERR for other reasons: nothing is answered.
  void silence();
  [[nodiscard]] std::uint64_t expected() const { return expected_; }

 private:
  static constexpr std::uint32_t kMostWaiting = 8;

  void in_order(const wire::RocePacket& packet);
  void on_message(const wire::RocePacket& packet);
  void on_read(const wire::RocePacket& packet);
  void on_atomic(const wire::RocePacket& packet);
  void duplicate(const wire::RocePacket& packet, std::uint64_t sequence);
  void out_of_sequence(std::uint64_t sequence);
  void advance(std::uint32_t packets, bool message_ends);
  void fail(Violation violation, std::uint64_t sequence);

  [[nodiscard]] bool fill_response(PacketBatch& batch);
  [[nodiscard]] bool fill_read(PacketBatch& batch, Response& response);
  void add_read_packet(PacketBatch& batch, Response& response, Bytes payload);
  void add_atomic(PacketBatch& batch, const Response& response);
  void add_acknowledgement(PacketBatch& batch, std::uint64_t sequence,
                           const wire::Acknowledgement& acknowledgement);

  Shared& shared_;
  MessageSink& sink_;
  Responses responses_;
  std::uint64_t expected_ = kFirstSequence;
  std::uint64_t acknowledged_ = kFirstSequence;  // the peer was told of everything before it
  std::uint64_t message_end_ = kFirstSequence;   // behind the last packet of a SEND or WRITE
  AckMsn msn_;
  bool ack_due_ = false;
  std::uint32_t unanswered_ = 0;  // packets of SENDs and WRITEs since the last answer
  /// A NAK was sent for expected_, or will be: until that packet comes nothing is said of others.
  bool refused_ = false;
  std::uint64_t ahead_ = 0;                   // the latest of them, while refused_
  std::optional<wire::Acknowledgement> nak_;  // to be sent, for nak_sequence_
  std::uint64_t nak_sequence_ = 0;
  std::optional<Violation> failure_;
};

}  // namespace airdma::rocev2
