// SPDX-License-Identifier: MIT
// The inside of an Endpoint: which part gets a packet, who may send, and how the queue pair fails.
//
//   RESET -> INIT -> RTR -> RTS <-> SQD        modify()
//                     |      |  \-> SQE        UC, UD: a mistake in a send
//                     v      v       |
//                     +---> ERR <----+         violation, retries exceeded, fail()
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/rocev2/endpoint.h"
#include "engine/rocev2/message_sink.h"
#include "engine/rocev2/rc_requester.h"
#include "engine/rocev2/rc_responder.h"
#include "engine/rocev2/shared.h"
#include "engine/rocev2/uc_responder.h"
#include "engine/rocev2/ud_responder.h"
#include "engine/rocev2/unreliable_requester.h"

namespace airdma::rocev2 {

class EndpointImpl {
 public:
  EndpointImpl(const EndpointConfig& config, const model::MemoryTable& memory,
               model::SendQueue& send_queue, model::ReceiveQueue& receive_queue);

  void modify(const QpAttributes& attributes, model::QpAttrMask mask, Time now);
  void on_packet(const wire::RocePacket& packet, const PacketOrigin& origin, Time now);
  void on_unreadable(const wire::RoceParseError& error, const PacketOrigin& origin);
  void on_deadline(Time now);
  void fail();
  void on_unsent(const OutPacket& packet);

  [[nodiscard]] bool may_transmit() const;
  [[nodiscard]] bool can_wait() const;
  [[nodiscard]] bool poll_transmit(PacketBatch& batch, Time now);
  [[nodiscard]] std::span<const model::Completion> completions();
  void clear_completions() { shared_.log.clear(); }
  [[nodiscard]] std::optional<model::QpEvent> poll_event();
  [[nodiscard]] std::optional<Time> next_deadline() const;
  [[nodiscard]] bool sends_drained() const;
  [[nodiscard]] model::QpState state() const { return shared_.attributes.state; }
  [[nodiscard]] QpAttributes attributes() const;
  [[nodiscard]] const EndpointStats& stats() const { return shared_.stats; }
  [[nodiscard]] const char* failure() const { return failure_; }

 private:
  /// Who is told to send less: the peer, or the sender of a datagram.
  struct Notification {
    model::AddressVector address;
    Qpn qpn;
  };

  void take_attributes(const QpAttributes& from, model::QpAttrMask mask);
  void move_to(model::QpState state, bool notify);
  void begin_to_receive();
  void begin_to_send();
  void resume_sending();
  void hold_sends(bool held);
  void reset();

  [[nodiscard]] bool may_receive() const;
  [[nodiscard]] bool may_send() const;
  [[nodiscard]] bool is_admitted(Pkey pkey, const PacketOrigin& origin) const;
  [[nodiscard]] bool is_for_us(const wire::RocePacket& packet, const PacketOrigin& origin) const;
  void note_congestion(const wire::RocePacket& packet, const PacketOrigin& origin, Time now);
  void on_request(const wire::RocePacket& packet, const PacketOrigin& origin);
  void communication_established();
  void answer(PacketBatch& batch);
  void add_notification(PacketBatch& batch);
  void raise_faults();
  void raise(Violation violation, bool of_receive);
  void enter_error(model::WcStatus first_receive);
  void flush(model::WcStatus first_receive);
  void release();

  Shared shared_;
  // Those that the type of queue pair has.
  std::optional<MessageSink> sink_;
  std::optional<RcRequester> rc_requester_;
  std::optional<RcResponder> rc_responder_;
  std::optional<UnreliableRequester> unreliable_;
  std::optional<UcResponder> uc_responder_;
  std::optional<UdResponder> ud_responder_;
  model::SendQueue& send_queue_;
  model::ReceiveQueue& receive_queue_;

  const char* failure_ = "";
  bool answers_error_ = false;  // in ERR: the peer is still told why
  bool established_ = false;    // the peer has been heard of
  std::optional<model::QpEvent> first_event_;
  std::optional<model::QpEvent> error_event_;
  bool drain_notice_ = false;                 // kSqDrained is to be reported
  bool last_receive_notice_ = false;          // kLastWqeReached is
  std::optional<Notification> notification_;  // of congestion, that is due
  Time notification_allowed_{};
};

}  // namespace airdma::rocev2
