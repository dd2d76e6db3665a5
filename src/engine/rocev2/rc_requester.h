// SPDX-License-Identifier: MIT
// Send side of one reliable connection (RC, and the initiator of XRC): turns WQEs into packets and
// acknowledgements into completions (IBTA vol. 1, 9.7.3, 9.7.5, 9.7.6). Owns the send PSN, the
// window, the retry counters and the timers.
//
//   head            una        next             high
//    | complete when |  on its  |  sent before,   |
//    | una is behind |   way    |  to be repeated |   WQEs from begun_ on have no PSN yet
//
// A WQE of n packets has n PSNs, whichever way they are sent; a READ's are those of its responses.
// So a loss means no more than that `next` moves back. READs go out in parts as large as the window
// lets in; the bounds of the parts stay when they are asked for again, since responders look up the
// request they belong to.
// Not here: what the peer asks of us (rc_responder.h).
#pragma once

#include <cstdint>
#include <optional>

#include "base/bounded_ring.h"
#include "base/untouched_array.h"
#include "engine/rocev2/packet_batch.h"
#include "engine/rocev2/program_memory.h"
#include "engine/rocev2/send_window.h"
#include "engine/rocev2/shared.h"
#include "engine/rocev2/timers.h"
#include "engine/rocev2/violation.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

class RcRequester {
 public:
  RcRequester(Shared& shared, model::SendQueue& queue);

  /// The attributes of RTR -> RTS are set. Work posted before it begins with it.
  void start();
  void hold(bool held) { held_ = held; }
  /// Every WQE that was begun is complete.
  [[nodiscard]] bool drained() const { return begun_ == queue_.head(); }

  [[nodiscard]] bool may_transmit() const;
  void fill(PacketBatch& batch, Time now);
  /// ACK, NAK, READ response or atomic acknowledgement.
  void on_response(const wire::RocePacket& packet, Time now);
  void on_congestion(Time now) {
    if (window_.on_congestion(now)) slowed_until_ = high_;
  }
  void on_deadline(Time now);
  [[nodiscard]] std::optional<Time> next_deadline() const;
  void on_unsent(const OutPacket& packet);

  /// Something went wrong whose turn it is: the queue pair must go to ERR with it.
  [[nodiscard]] std::optional<Violation> due_fault() const;
  /// Completes everything posted with FLUSH_ERR, but a faulty WQE with its own status.
  void flush();
  void reset();
  void release() { sink_.release(); }
  /// The PSN of the next new packet.
  [[nodiscard]] Psn send_psn() const { return psn_of(high_); }

 private:
  /// A WQE that has PSNs; one that is done here and now has none (packets 0).
  struct InFlight {
    std::uint64_t first = 0;
    std::uint32_t packets = 0;
    [[nodiscard]] std::uint64_t end() const { return first + packets; }
  };
  /// A READ request, or an atomic, that is not answered as a whole.
  struct Part {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t position = 0;
  };
  struct Fault {
    std::uint64_t position = 0;
    Violation violation = Violation::kOperation;
    bool at_once = false;  // else when the WQEs before it are complete
  };
  enum class Step : std::uint8_t { kSent, kNothing, kNoRoom };
  static constexpr std::size_t kMostParts = 256;

  [[nodiscard]] InFlight& flight(std::uint64_t position) {
    return in_flight_[static_cast<std::size_t>(position % in_flight_.size())];
  }
  [[nodiscard]] bool outstanding() const { return una_ != high_; }
  [[nodiscard]] bool fault_at_once() const { return fault_ && fault_->at_once; }
  [[nodiscard]] std::uint32_t window_left() const;

  // rc_requester_send.cc
  [[nodiscard]] Step send_next(PacketBatch& batch);
  [[nodiscard]] bool begin();
  [[nodiscard]] std::optional<Violation> check(const model::SendWqe& wqe) const;
  [[nodiscard]] bool refuse(Violation violation);
  [[nodiscard]] Step send_transfer(PacketBatch& batch, const model::SendWqe& wqe);
  [[nodiscard]] Step send_read(PacketBatch& batch, const model::SendWqe& wqe);
  [[nodiscard]] Step send_atomic(PacketBatch& batch, const model::SendWqe& wqe);
  [[nodiscard]] std::optional<std::uint32_t> read_part(std::uint32_t remaining);
  [[nodiscard]] OutPacket& next_packet(PacketBatch& batch);
  void emit(PacketBatch& batch, OutPacket& out, const model::SendWqe& wqe, wire::RocePacket& packet,
            std::uint32_t packets);
  void pass(std::uint32_t packets);
  void after_fill(PacketBatch& batch, bool more_follows, Time now);

  // rc_requester.cc
  void seek(std::uint64_t sequence);
  [[nodiscard]] std::uint64_t find(std::uint64_t sequence);
  void skip_local();
  void hear_from_peer(Time now);
  void on_acknowledge(const wire::RocePacket& packet, std::uint64_t sequence, Time now);
  void on_nak(std::uint8_t code, std::uint64_t sequence, Time now);
  void on_rnr_nak(std::uint8_t timer, Time now);
  void on_read_response(const wire::RocePacket& packet, std::uint64_t sequence, Time now);
  void on_atomic_response(const wire::RocePacket& packet, std::uint64_t sequence, Time now);
  [[nodiscard]] bool reach_response(std::uint64_t sequence, Time now);
  [[nodiscard]] bool acknowledge(std::uint64_t up_to, Time now);
  void meet_late_answer(std::uint64_t una, Time now);
  void advance(std::uint64_t una, Time now);
  void recover(Time now);
  void recover_again(Time now);
  void repeat(Time now);
  void note_ahead(std::uint64_t sequence, Time now);
  void blame(std::uint64_t position, Violation violation);
  void complete();
  void report(const model::SendWqe& wqe, model::WcStatus status);
  [[nodiscard]] Time probe_at() const;

  Shared& shared_;
  model::SendQueue& queue_;
  Gather gather_;
  Scatter sink_;
  SendWindow window_;
  RoundTrip round_trip_;

  bool running_ = false;
  bool held_ = false;
  std::uint64_t position_ = 0;  // of the WQE whose packets come next
  std::uint64_t begun_ = 0;     // ... of the first WQE that has no PSN
  std::uint64_t next_ = kFirstSequence;
  std::uint64_t high_ = kFirstSequence;
  std::uint64_t una_ = kFirstSequence;
  UntouchedArray<InFlight> in_flight_;
  BoundedRing<Part> parts_;
  std::optional<Fault> fault_;
  bool stalled_ = false;            // only an answer can bring more to send
  bool last_is_answered_ = false;   // the packet made last is a READ request or an atomic
  bool window_limited_ = false;     // the window was what ended the last fill
  std::uint64_t slowed_until_ = 0;  // what was sent before a notification opens no window
  std::uint32_t unasked_ = 0;       // packets since an acknowledgement was asked for

  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  std::optional<Time> rnr_until_;
  Time progress_at_{};
  Time probed_at_{};
  unsigned probes_ = 0;                    // since the last progress
  std::optional<std::uint64_t> gap_;       // where the loss begins that is being repaired
  Time repeated_at_{};                     // when what begins there was sent again
  std::uint64_t ahead_ = 0;                // the latest response that came from behind it
  std::optional<std::uint64_t> measured_;  // the packet whose answer is waited for
  Time measured_at_{};
};

}  // namespace airdma::rocev2
