// SPDX-License-Identifier: MIT
// What answers, and their absence, do to what was sent.
#include "engine/rocev2/rc_requester.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/rocev2/atomics.h"

namespace airdma::rocev2 {

using model::SendOpcode;
using model::SendWqe;
using model::WcStatus;
using wire::AckKind;
using wire::NakCode;
using wire::Operation;
using wire::RocePacket;

namespace {
constexpr std::uint8_t kForEver = 7;  // of rnr_retry
constexpr unsigned kMostBackoff = 6;  // doublings of the wait for a probe
}  // namespace

RcRequester::RcRequester(Shared& shared, model::SendQueue& queue)
    : shared_(shared),
      queue_(queue),
      gather_(shared.memory, shared.config.pd),
      sink_(shared.memory),
      in_flight_(queue.depth()) {
  parts_.reset(kMostParts);
}

void RcRequester::start() {
  next_ = high_ = una_ = first_sequence(shared_.attributes.sq_psn);
  position_ = begun_ = queue_.head();
  window_.reset(shared_.mtu(), shared_.config.window_bytes);
  slowed_until_ = 0;
  round_trip_.reset();
  retries_left_ = shared_.attributes.retry_count;
  rnr_retries_left_ = shared_.attributes.rnr_retry;
  running_ = true;
}

void RcRequester::reset() {
  queue_.reset();
  parts_.clear();
  fault_.reset();
  rnr_until_.reset();
  gap_.reset();
  measured_.reset();
  position_ = begun_ = 0;
  next_ = high_ = una_ = kFirstSequence;
  running_ = held_ = stalled_ = false;
  unasked_ = 0;
  release();
}

// The cursor.

/// Position of the WQE that has this sequence number, among those that were begun; begun_ when all
/// of them are behind.
std::uint64_t RcRequester::find(std::uint64_t sequence) {
  std::uint64_t low = queue_.head();
  std::uint64_t high = begun_;
  while (low != high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (flight(middle).end() > sequence) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

void RcRequester::seek(std::uint64_t sequence) {
  next_ = sequence;
  position_ = find(sequence);
  stalled_ = false;
  measured_.reset();
}

/// Local operations that were done are not done again.
void RcRequester::skip_local() {
  while (position_ != begun_ && flight(position_).packets == 0) ++position_;
}

// Answers.

void RcRequester::on_response(const RocePacket& packet, Time now) {
  const std::uint64_t sequence = extend(packet.psn, una_);
  if (running_ && sequence + 1 == una_ && packet.info->operation == Operation::kAcknowledge) {
    hear_from_peer(now);
  }
  // Peer: an answer to what was answered before, or never asked.
  if (!running_ || sequence < una_ || sequence >= high_ || fault_at_once()) {
    ++shared_.stats.dropped;
    return;
  }
  switch (packet.info->operation) {
    case Operation::kAcknowledge:
      return on_acknowledge(packet, sequence, now);
    case Operation::kReadResponse:
      return on_read_response(packet, sequence, now);
    case Operation::kAtomicAcknowledge:
      return on_atomic_response(packet, sequence, now);
    case Operation::kSend:
    case Operation::kWrite:
    case Operation::kReadRequest:
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
    case Operation::kAtomicWrite:
    case Operation::kCongestionNotification:
      break;
  }
}

/// The peer has nothing new to say but that it is there: it is still busy with what was repeated.
/// The retry counter is for peers that say nothing.
void RcRequester::hear_from_peer(Time now) {
  retries_left_ = shared_.attributes.retry_count;
  progress_at_ = now;
}

void RcRequester::on_acknowledge(const RocePacket& packet, std::uint64_t sequence, Time now) {
  const wire::Acknowledgement& its = packet.acknowledgement;
  switch (its.kind) {
    case AckKind::kAck:
      // Limit: credits are not looked at. A SEND that meets no receive is told so.
      (void)acknowledge(sequence + 1, now);
      return;
    case AckKind::kRnrNak:
      if (acknowledge(sequence, now)) on_rnr_nak(its.value, now);
      return;
    case AckKind::kNak:
      return on_nak(its.value, sequence, now);
    case AckKind::kReserved:
      ++shared_.stats.dropped;
  }
}

void RcRequester::on_nak(std::uint8_t code, std::uint64_t sequence, Time now) {
  const bool reached = acknowledge(sequence, now);
  switch (static_cast<NakCode>(code)) {
    case NakCode::kPsnSequence:
      ++shared_.stats.sequence_naks;
      if (reached) recover_again(now);
      return;
    case NakCode::kInvalidRequest:
      return blame(find(sequence), Violation::kNakInvalidRequest);
    case NakCode::kRemoteAccess:
      return blame(find(sequence), Violation::kNakRemoteAccess);
    case NakCode::kRemoteOperational:
      return blame(find(sequence), Violation::kNakRemoteOperational);
    case NakCode::kInvalidRdRequest:
      break;
  }
  blame(find(sequence), Violation::kNakUnknown);
}

void RcRequester::on_rnr_nak(std::uint8_t timer, Time now) {
  if (rnr_until_) return;  // the same one again
  ++shared_.stats.rnr_naks_received;
  if (shared_.attributes.rnr_retry != kForEver) {
    if (rnr_retries_left_ == 0) return blame(queue_.head(), Violation::kRnrRetryExceeded);
    --rnr_retries_left_;
  }
  // The peer is there: its silence begins anew when it has been asked again.
  retries_left_ = shared_.attributes.retry_count;
  rnr_until_ = now + rnr_delay(timer);
  seek(una_);
}

/// Everything before `up_to` was carried out, the peer says; but READs and atomics also need their
/// answers. When one is missing it was lost (9.7.5.1.3), and false is returned.
bool RcRequester::acknowledge(std::uint64_t up_to, Time now) {
  const std::uint64_t unanswered = parts_.empty() ? up_to : std::max(una_, parts_.front().begin);
  advance(std::min(up_to, unanswered), now);
  if (up_to <= una_) return true;
  ++shared_.stats.out_of_sequence;
  recover(now);
  return false;
}

/// Packets were acknowledged that have not been repeated yet: they had arrived, and what was taken
/// for a loss was most likely a peer that takes longer than we thought (as RFC 5682 tells the two
/// apart for TCP). So we learn patience, and the window stays small: what else is repeated may be
/// on its way as well.
void RcRequester::meet_late_answer(std::uint64_t una, Time now) {
  if (probes_ > 0) round_trip_.sample(now - progress_at_);
  seek(una);
}

void RcRequester::advance(std::uint64_t una, Time now) {
  if (una == una_) return;
  if (next_ < una) {
    meet_late_answer(una, now);
  } else if (una_ >= slowed_until_) {
    window_.on_progress(una - una_, window_limited_);
  }
  una_ = una;
  if (measured_ && *measured_ < una_) {
    round_trip_.sample(now - measured_at_);
    measured_.reset();
  }
  if (gap_ && *gap_ < una_) gap_.reset();
  retries_left_ = shared_.attributes.retry_count;
  rnr_retries_left_ = shared_.attributes.rnr_retry;
  rnr_until_.reset();
  progress_at_ = probed_at_ = now;
  probes_ = 0;
  stalled_ = false;
  while (!parts_.empty() && parts_.front().end <= una_) parts_.pop();
  complete();
}

/// What begins at una_ was lost. Said once of each loss, for more may come that says so too.
void RcRequester::recover(Time now) {
  if (gap_ == una_) return;
  gap_ = una_;
  ahead_ = 0;
  window_.on_loss();
  repeat(now);
}

/// The same, said by something that speaks of what was repeated, if it was: then that was lost too.
/// Sooner than an answer can come it speaks of the first loss, and the network has brought it
/// twice.
void RcRequester::recover_again(Time now) {
  if (gap_ != una_) return recover(now);
  if (now - repeated_at_ < round_trip_.shortest()) return;
  window_.on_loss();
  repeat(now);
}

void RcRequester::repeat(Time now) {
  repeated_at_ = probed_at_ = now;
  seek(una_);
}

/// A response came from behind the one that is missing. When they go back to what had come before,
/// they are those that were asked for again, and the missing one was lost again.
void RcRequester::note_ahead(std::uint64_t sequence, Time now) {
  if (sequence <= std::exchange(ahead_, sequence)) recover_again(now);
}

/// True when the response to this packet is the next one; everything before it is acknowledged.
bool RcRequester::reach_response(std::uint64_t sequence, Time now) {
  if (!acknowledge(sequence, now)) {
    note_ahead(sequence, now);
    return false;
  }
  const bool expected = una_ == sequence && !parts_.empty() && parts_.front().begin <= sequence;
  if (!expected) ++shared_.stats.dropped;
  return expected;
}

void RcRequester::on_read_response(const RocePacket& packet, std::uint64_t sequence, Time now) {
  if (!reach_response(sequence, now)) return;
  const std::uint64_t position = parts_.front().position;
  const SendWqe& wqe = queue_.at(position);
  if (wqe.opcode != SendOpcode::kRead) return blame(position, Violation::kResponseLength);
  const std::uint64_t offset = (sequence - flight(position).first) * shared_.mtu();
  const std::uint64_t bytes = std::min<std::uint64_t>(shared_.mtu(), wqe.length - offset);
  if (packet.payload.size() != bytes) return blame(position, Violation::kResponseLength);
  if (offset == 0) sink_.begin(std::span(wqe.sges, wqe.sge_count), shared_.config.pd);
  if (!sink_.place(packet.payload)) return blame(position, Violation::kReadSink);
  shared_.stats.payload_received += bytes;
  advance(sequence + 1, now);
}

void RcRequester::on_atomic_response(const RocePacket& packet, std::uint64_t sequence, Time now) {
  if (!reach_response(sequence, now)) return;
  const std::uint64_t position = parts_.front().position;
  const SendWqe& wqe = queue_.at(position);
  if (wqe.opcode == SendOpcode::kRead) return blame(position, Violation::kResponseLength);
  // The value goes into the program's buffer in this host's byte order.
  const std::uint64_t original = packet.original;
  sink_.begin(std::span(wqe.sges, wqe.sge_count), shared_.config.pd);
  if (!sink_.place(std::as_bytes(std::span(&original, 1)))) {
    return blame(position, Violation::kReadSink);
  }
  shared_.stats.payload_received += kAtomicBytes;
  advance(sequence + 1, now);
}

// Completing.

void RcRequester::complete() {
  while (queue_.head() != begun_ && flight(queue_.head()).end() <= una_) {
    const SendWqe& wqe = queue_.at(queue_.head());
    if (wqe.signaled) report(wqe, WcStatus::kSuccess);
    queue_.retire();
  }
  // What could not be sent again had arrived the first time.
  if (fault_ && !fault_->at_once && fault_->position < queue_.head()) fault_.reset();
}

void RcRequester::report(const SendWqe& wqe, WcStatus status) {
  shared_.log.add({.wr_id = wqe.wr_id,
                   .status = status,
                   .opcode = model::wc_opcode(wqe.opcode),
                   .byte_len = status == WcStatus::kSuccess ? wqe.length : 0});
}

void RcRequester::blame(std::uint64_t position, Violation violation) {
  fault_ = Fault{.position = position, .violation = violation, .at_once = true};
}

std::optional<Violation> RcRequester::due_fault() const {
  if (!fault_) return std::nullopt;
  if (!fault_->at_once && fault_->position != queue_.head()) return std::nullopt;
  return fault_->violation;
}

void RcRequester::on_unsent(const OutPacket& packet) {
  if (packet.position < queue_.head() || fault_at_once()) return;
  if (fault_ && fault_->position < packet.position) return;
  fault_ = Fault{.position = packet.position, .violation = Violation::kSendBuffer};
}

void RcRequester::flush() {
  running_ = false;
  while (!queue_.empty()) {
    const bool faulty = fault_ && fault_->position == queue_.head();
    report(queue_.at(queue_.head()),
           faulty ? info(fault_->violation).local : WcStatus::kFlushError);
    queue_.retire();
  }
  position_ = begun_ = queue_.head();
  next_ = una_ = high_;
  parts_.clear();
  rnr_until_.reset();
  release();
}

// Time.

Time RcRequester::probe_at() const {
  return probed_at_ + round_trip_.patience() * (std::int64_t{1} << std::min(probes_, kMostBackoff));
}

std::optional<Time> RcRequester::next_deadline() const {
  if (!running_) return std::nullopt;
  if (rnr_until_) return rnr_until_;
  if (!outstanding()) return std::nullopt;
  const auto timeout = ack_timeout(shared_.attributes.timeout);
  return timeout ? std::min(progress_at_ + *timeout, probe_at()) : probe_at();
}

void RcRequester::on_deadline(Time now) {
  if (!running_) return;
  if (rnr_until_) {
    if (now < *rnr_until_) return;
    rnr_until_.reset();
    progress_at_ = probed_at_ = now;
    probes_ = 0;
    return;
  }
  if (!outstanding()) return;
  const auto timeout = ack_timeout(shared_.attributes.timeout);
  const bool timed_out = timeout && now >= progress_at_ + *timeout;
  if (!timed_out && now < probe_at()) return;
  if (timed_out) {
    ++shared_.stats.timeouts;
    if (retries_left_ == 0) return blame(queue_.head(), Violation::kRetryExceeded);
    --retries_left_;
    progress_at_ = now;
  } else {
    ++shared_.stats.probes;
    ++probes_;
  }
  gap_ = una_;
  ahead_ = 0;
  window_.on_silence();
  repeat(now);
}

}  // namespace airdma::rocev2
