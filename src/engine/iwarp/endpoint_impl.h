// SPDX-License-Identifier: MIT
// The inside of an Endpoint: which part gets a received segment, whose turn it is to send, and how
// the stream ends.
//
//            start()            violation, Terminate, FIN, reset, disconnect(), fail()
//   kIdle ----------> kOperational ------------------------------------------> kError
//     |                                                                          ^
//     +-------------------------- disconnect(), fail() --------------------------+
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/iwarp/completion_log.h"
#include "engine/iwarp/endpoint.h"
#include "engine/iwarp/fpdu_reader.h"
#include "engine/iwarp/fpdu_writer.h"
#include "engine/iwarp/read_responder.h"
#include "engine/iwarp/requester.h"
#include "engine/iwarp/target.h"
#include "wire/terminate.h"

namespace airdma::iwarp {

class EndpointImpl {
 public:
  EndpointImpl(const EndpointConfig& config, const model::MemoryTable& memory,
               model::SendQueue& send_queue, model::ReceiveQueue& receive_queue);

  void start(const StreamParams& params, Time now);
  void on_bytes(Bytes bytes);
  [[nodiscard]] std::size_t take_bytes(Bytes bytes);
  void on_transmitted(std::size_t bytes);
  void on_stream_end(StreamEnd end, Time now);
  void on_receives_posted(Time now);
  void on_deadline(Time now);
  void disconnect();
  void fail();
  void set_remote_access(model::AccessMask access);
  void hold_sends(bool held, bool notify);

  [[nodiscard]] bool may_transmit() const;
  [[nodiscard]] std::size_t poll_transmit(MutableBytes out, Time now);
  [[nodiscard]] std::size_t poll_transmit(Gather& gather, Time now);
  void on_payload_lost();
  [[nodiscard]] std::span<const model::Completion> completions();
  void clear_completions() { log_.clear(); }
  [[nodiscard]] std::optional<model::QpEvent> poll_event();
  [[nodiscard]] std::optional<Time> next_deadline() const;
  [[nodiscard]] bool wants_input() const {
    return state_ != EndpointState::kOperational || !stalled_;
  }
  [[nodiscard]] bool wants_receives() const {
    return state_ == EndpointState::kOperational && target_.parked() != 0;
  }
  [[nodiscard]] bool sends_drained() const { return requester_.drained(); }
  [[nodiscard]] EndpointState state() const { return state_; }
  [[nodiscard]] StreamRequest stream_request() const { return request_; }
  [[nodiscard]] const EndpointStats& stats() const;
  [[nodiscard]] const char* failure() const { return failure_; }

 private:
  /// The segment that a Terminate shows: its headers and length.
  struct Offender {
    std::size_t segment_bytes = 0;
    wire::SegmentHeader header;
    std::optional<wire::ReadRequest> read_request;
  };

  void drain_reader();
  void deliver_parked();
  [[nodiscard]] Verdict on_segment(Bytes ulpdu, Offender& offender);
  [[nodiscard]] Verdict dispatch(const wire::OpcodeInfo& opcode, Bytes payload, Offender& offender);
  [[nodiscard]] Verdict on_read_request(Bytes payload, Offender& offender);
  [[nodiscard]] Verdict on_atomic_request(const wire::SegmentHeader& header, Bytes payload);
  [[nodiscard]] Verdict on_terminate(Bytes payload);
  void blame_by(const wire::TerminateMessage& message);

  [[nodiscard]] bool holding(Time now);
  /// There is no stream to send on, although its last messages may still be received.
  [[nodiscard]] bool was_reset() const { return stream_end_ == StreamEnd::kReset; }
  [[nodiscard]] std::size_t frame_rtr(const Room& room);
  [[nodiscard]] std::size_t frame_nudge(const Room& room);
  [[nodiscard]] std::size_t frame_next(const Room& room);
  [[nodiscard]] std::size_t frame_terminate(MutableBytes out);
  void raise_local_faults();

  void raise(model::Violation violation, const Offender* offender);
  void finish(StreamEnd how);
  void abandon();
  void end(StreamRequest request, model::WcStatus first_receive = model::WcStatus::kFlushError);

  CompletionLog log_;
  Requester requester_;
  ReadResponder responder_;
  Target target_;
  FpduReader reader_;
  FpduWriter writer_;

  EndpointState state_ = EndpointState::kIdle;
  StreamRequest request_ = StreamRequest::kKeep;
  StreamParams params_;
  const char* failure_ = "";
  std::optional<model::QpEvent> event_;
  bool drain_notice_ = false;     // kSqDrained is to be reported
  bool shares_receives_ = false;  // and its end is, by kLastWqeReached:
  bool last_receive_notice_ = false;
  std::optional<wire::TerminateMessage> terminate_;  // to be sent
  bool rtr_due_ = false;                             // initiator: the RTR frame is still to be sent
  bool held_ = false;             // responder: no FPDU of ours before the initiator's first
  std::optional<Time> hold_end_;  // ... or this time
  /// Initiator: a frame that wakes a peer which has missed our first one.
  enum class Nudge : std::uint8_t { kNotYet, kArmed, kDue, kOver };
  Nudge nudge_ = Nudge::kNotYet;
  Time nudge_at_{};
  Duration nudge_interval_{};
  int nudges_ = 0;
  bool stalled_ = false;                 // an FPDU waits for those that wait for receives
  std::optional<StreamEnd> stream_end_;  // has come, and is put off until they are delivered
  Time finish_at_{};                     // ... or this time
  bool responder_turn_ = false;          // READ responses and our own messages take turns
  std::uint64_t produced_ = 0;           // stream bytes given to the driver
  std::uint64_t transmitted_ = 0;
  mutable EndpointStats stats_;
};

}  // namespace airdma::iwarp
