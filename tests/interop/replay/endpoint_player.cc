// SPDX-License-Identifier: MIT
#include "tests/interop/replay/endpoint_player.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace airdma::interop {
namespace {

using model::SendOpcode;
using model::WcStatus;

constexpr std::uint32_t kSges = 2;
constexpr std::byte kUntouched{0x5a};
constexpr std::size_t kRoom = std::size_t{256} * 1024;

/// Cuts a buffer in two pieces where it is long enough, so that gathering and scattering are tried.
template <class Wqe>
void add_pieces(Wqe& wqe, Memory::Place at, std::uint32_t bytes) {
  const std::uint32_t first = bytes > 3 ? bytes / 3 : bytes;
  wqe.sges[wqe.sge_count++] = {at.addr, first, at.key};
  if (first < bytes) wqe.sges[wqe.sge_count++] = {at.addr + first, bytes - first, at.key};
  wqe.length = bytes;
}

std::string status_text(WcStatus status) {
  return "status " + std::to_string(static_cast<unsigned>(status));
}

}  // namespace

EndpointPlayer::EndpointPlayer(const Conversation& conversation, const Script& script,
                               Deviations& used)
    : conversation_(conversation),
      script_(script),
      used_(used),
      send_queue_(static_cast<std::uint32_t>(script.posts.size()) + 1, kSges, 0),
      receive_queue_(static_cast<std::uint32_t>(script.receives.size()) + 1, kSges, 0),
      endpoint_({.qpn = Qpn{1}, .pd = kReplayPd}, memory_.table(), send_queue_, receive_queue_),
      sent_(script.own->mpa_bytes),
      scratch_(kRoom) {}

std::string EndpointPlayer::start(const iwarp::StreamParams& params, std::size_t first) {
  // A responder's stream begins with its reply.
  const auto begin = std::find_if(
      script_.events.begin() + static_cast<std::ptrdiff_t>(first), script_.events.end(),
      [](const Event& event) { return event.kind == EventKind::kOwnBytes; });
  const bool replies = script_.role == Role::kResponder && begin != script_.events.end();
  pass_time(replies ? *begin : script_.events[first]);
  if (std::string obstacle = memory_.build(script_); !obstacle.empty()) return obstacle;
  for (const Receive& receive : script_.receives) post_receive(receive);
  crc_ = params.crc;
  fed_ = script_.peer->mpa_bytes;
  captured_ = script_.own->mpa_bytes;
  endpoint_.start(params, now_);
  return "";
}

// Posting.

void EndpointPlayer::post_receive(const Receive& receive) {
  // Every other one is longer than the message; one that must be too short is not.
  const bool exact = receive.capacity < receive.payload.size() || receives_.size() % 2 == 0;
  const std::uint32_t bytes = receive.capacity + (exact ? 0 : 8);
  model::ReceiveWqe& wqe = receive_queue_.slot(0);
  wqe.wr_id = receives_.size();
  PostedReceive& posted = receives_.emplace_back();
  posted.receive = &receive;
  posted.bytes.assign(bytes + 1, kUntouched);
  add_pieces(wqe, memory_.publish(posted.bytes, posted.region), bytes);
  receive_queue_.publish(1);
}

void EndpointPlayer::fill(model::SendWqe& wqe, const Post& post) {
  wqe.opcode = post.opcode;
  wqe.signaled = true;
  wqe.solicited = post.solicited;
  wqe.immediate = post.immediate;
  wqe.rkey = post.rkey;
  wqe.remote_addr = post.remote_addr;
  if (post.opcode == SendOpcode::kRead) {
    wqe.sges[wqe.sge_count++] = {post.read.sink_offset, post.read.read_bytes, post.read.sink_stag};
    wqe.length = post.read.read_bytes;
    return;
  }
  const Memory::Place at = memory_.place(Bytes(post.payload));
  add_pieces(wqe, at, static_cast<std::uint32_t>(post.payload.size()));
}

void EndpointPlayer::post_send(std::size_t index) {
  model::SendWqe& wqe = send_queue_.slot(0);
  wqe.wr_id = index;
  fill(wqe, script_.posts[index]);
  send_queue_.publish(1);
}

// Playing.

void EndpointPlayer::run(std::size_t first, std::uint64_t used) {
  for (std::size_t i = first; i < script_.events.size() && !difference_; ++i) {
    Event event = script_.events[i];
    if (i == first) event.begin += used;
    pass_time(event);
    play(event);
    note_end(event);
  }
  if (!difference_) {
    if (!ended_) fed_at_end_ = fed_, captured_at_end_ = captured_;
    endpoint_.disconnect(now_);
    drain();
    comparison_ = compare_streams(script_, crc_, sent_, used_);
    difference_ = comparison_.difference;
  }
  if (!difference_) judge_completions();
  if (const auto wrong = memory_.difference(); wrong && !difference_) {
    differ(captured_, "at the end, " + *wrong, "", "");
  }
}

void EndpointPlayer::pass_time(const Event& event) {
  const std::uint64_t start = script_.events[0].time_ns;
  if (event.time_ns <= start) return;
  now_ = std::max(now_, Time{} + std::chrono::nanoseconds(event.time_ns - start));
}

void EndpointPlayer::play(const Event& event) {
  switch (event.kind) {
    case EventKind::kPeerBytes:
      return on_peer_bytes(event.begin, event.end);
    case EventKind::kOwnBytes:
      return on_own_bytes(event.end);
    case EventKind::kPeerFin:
    case EventKind::kPeerReset:
    case EventKind::kOwnEnd:
      return on_end(event);
  }
}

void EndpointPlayer::on_peer_bytes(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  prepare(begin, end);
  endpoint_.on_bytes(script_.peer->raw.subspan(begin, end - begin), now_);
  fed_ = end;
  drain();
  if (!ended_) place_expected(end);
}

/// What the program does before these bytes arrive.
void EndpointPlayer::prepare(std::uint64_t begin, std::uint64_t end) {
  for (; next_read_ < script_.peer_reads.size(); ++next_read_) {
    const PeerRead& read = script_.peer_reads[next_read_];
    if (read.end > end) break;
    memory_.store(read.request.source_stag, read.request.source_offset, read.content);
  }
  const Fpdu* offender = script_.offender();
  if (offender != nullptr && offender->begin >= begin && offender->begin < end) {
    memory_.offend(script_);
  }
}

/// The peer's segments that are whole by now have reached memory.
void EndpointPlayer::place_expected(std::uint64_t until) {
  const Fpdu* offender = script_.offender();
  const auto& fpdus = script_.peer->fpdus.fpdus;
  const std::size_t first = placed_;
  for (; placed_ < fpdus.size(); ++placed_) {
    const Fpdu& fpdu = fpdus[placed_];
    if (fpdu.end > until || &fpdu == offender) break;
    // READ responses and WRITEs alike; untagged payload is looked at when its receive completes.
    if (!fpdu.valid || !fpdu.header.tagged) continue;
    memory_.expect(fpdu.header.stag, fpdu.header.tagged_offset, fpdu.payload());
  }
  for (std::size_t i = first; i < placed_; ++i) {
    const Fpdu& fpdu = fpdus[i];
    if (!fpdu.valid || !fpdu.header.tagged) continue;
    const auto wrong =
        memory_.difference(fpdu.header.stag, fpdu.header.tagged_offset, fpdu.payload().size());
    if (!wrong) continue;
    return differ(captured_, *wrong,
                  "byte " + std::to_string(fpdu.begin) + " of the peer: " + fpdu.text(), "");
  }
}

void EndpointPlayer::on_own_bytes(std::uint64_t end) {
  captured_ = std::max(captured_, end);
  if (script_.offence && !script_.offence->fpdu && script_.offence->own_begin < end && !ended_) {
    endpoint_.fail(now_);
  }
  for (; posted_ < script_.posts.size() && script_.posts[posted_].begin < end; ++posted_) {
    post_send(posted_);
  }
  drain();
  if (sent_.size() < end) pass_grace();
  const std::uint64_t produced = sent_.size() - script_.own->mpa_bytes;
  const std::uint64_t shown = std::min(produced, captured_ - script_.own->mpa_bytes);
  if (shown <= taken_) return;
  endpoint_.on_transmitted(shown - taken_, now_);
  taken_ = shown;
  drain();
}

/// The captured responder sent first; ours does so when it has waited long enough.
void EndpointPlayer::pass_grace() {
  if (script_.role != Role::kResponder) return;
  const auto deadline = endpoint_.next_deadline();
  if (!deadline || endpoint_.state() != iwarp::EndpointState::kOperational) return;
  used_.insert(Deviation::kSendsFirst);
  now_ = std::max(now_, *deadline);
  endpoint_.on_deadline(now_);
  drain();
}

void EndpointPlayer::on_end(const Event& event) {
  switch (event.kind) {
    case EventKind::kPeerFin:
      endpoint_.on_stream_end(iwarp::StreamEnd::kFin, now_);
      break;
    case EventKind::kPeerReset:
      endpoint_.on_stream_end(iwarp::StreamEnd::kReset, now_);
      break;
    case EventKind::kOwnEnd:
      endpoint_.disconnect(now_);
      break;
    case EventKind::kPeerBytes:
    case EventKind::kOwnBytes:
      break;
  }
  drain();
}

void EndpointPlayer::drain() {
  while (const std::size_t bytes = endpoint_.poll_transmit(scratch_, now_)) {
    sent_.insert(sent_.end(), scratch_.begin(),
                 scratch_.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  for (const model::Completion& wc : endpoint_.completions()) {
    (wc.receive ? receive_completions_ : send_completions_).push_back(wc);
  }
  endpoint_.clear_completions();
  while (endpoint_.poll_event()) {
  }
}

// Judging.

/// Whether the captured side's stream is over after this event.
bool EndpointPlayer::end_is_due(const Event& event) const {
  if (event.kind != EventKind::kPeerBytes && event.kind != EventKind::kOwnBytes) return true;
  if (script_.peer_terminate && fed_ >= *script_.peer_terminate) return true;
  if (!script_.offence) return false;
  const Fpdu* offender = script_.offender();
  return offender != nullptr ? fed_ >= offender->end : captured_ > script_.offence->own_begin;
}

void EndpointPlayer::note_end(const Event& event) {
  if (ended_) return;
  const bool is_over = endpoint_.state() == iwarp::EndpointState::kError;
  if (end_is_due(event)) {
    ended_ = true;
    fed_at_end_ = fed_;
    captured_at_end_ = captured_;
    if (!is_over) {
      differ(captured_, "the stream goes on", "its end", "operational");
    }
  } else if (is_over && script_.own_reset) {
    ended_ = true;
    fed_at_end_ = fed_;
    captured_at_end_ = captured_;
  } else if (is_over) {
    differ(captured_, "our engine ended the stream", "it goes on",
           std::string(endpoint_.failure()) + " (by byte " + std::to_string(fed_) +
               " of the peer's stream)");
  }
}

bool EndpointPlayer::response_arrived(const Post& post) const {
  const auto responses = script_.peer->fpdus.lane(Lane::kResponse);
  if (post.response >= responses.size()) return false;
  const Message& response = *responses[post.response];
  return response.complete && response.end <= fed_at_end_;
}

/// Work requests complete in order: one that does not keeps those behind it.
std::vector<bool> EndpointPlayer::sends_done() const {
  std::vector<bool> done;
  bool going = true;
  for (std::size_t i = 0; i < posted_; ++i) {
    const Post& post = script_.posts[i];
    const bool is_read = post.opcode == SendOpcode::kRead;
    going =
        going && (is_read ? response_arrived(post) : post.complete && post.end <= captured_at_end_);
    done.push_back(going);
  }
  return done;
}

void EndpointPlayer::judge_send(std::size_t index, const model::Completion& wc) {
  const Post& post = script_.posts[index];
  const std::uint32_t bytes = post.opcode == SendOpcode::kRead
                                  ? post.read.read_bytes
                                  : static_cast<std::uint32_t>(post.payload.size());
  if (wc.wr_id != index) {
    differ(post.begin, "order of send completions", std::to_string(index),
           std::to_string(wc.wr_id));
  } else if (wc.status == WcStatus::kSuccess && wc.byte_len != bytes) {
    differ(post.begin, "byte_len of a send completion", std::to_string(bytes),
           std::to_string(wc.byte_len));
  }
}

void EndpointPlayer::judge_receive(std::size_t index, const model::Completion& wc) {
  const Receive& receive = *receives_[index].receive;
  const std::uint64_t at = receive.end;
  const bool done =
      receive.complete && receive.end <= fed_at_end_ && receive.capacity >= receive.payload.size();
  const bool too_short = receive.capacity < receive.payload.size();
  const WcStatus failed = too_short ? WcStatus::kLocalLengthError : WcStatus::kFlushError;
  const WcStatus expected = done ? WcStatus::kSuccess : failed;
  if (wc.wr_id != index) {
    return differ(at, "order of receive completions", std::to_string(index),
                  std::to_string(wc.wr_id));
  }
  if (wc.status != expected) {
    return differ(at, "receive " + std::to_string(index) + " of the peer's message ending here",
                  status_text(expected), status_text(wc.status));
  }
  if (!done) return;
  const bool with = (wc.flags & model::kWcWithImmediate) != 0;
  if (with != receive.immediate.has_value() || (with && wc.immediate != *receive.immediate)) {
    return differ(at, "immediate data of a receive", with ? "none" : "some", "");
  }
  if (receive.of_write) return;
  if (wc.byte_len != receive.payload.size()) {
    return differ(at, "byte_len of a receive", std::to_string(receive.payload.size()),
                  std::to_string(wc.byte_len));
  }
  const Bytes buffer = receives_[index].bytes;
  const Bytes beyond = buffer.subspan(receive.payload.size());
  if (!std::ranges::equal(buffer.first(receive.payload.size()), receive.payload) ||
      std::ranges::count(beyond, kUntouched) != std::ssize(beyond)) {
    differ(at, "memory of a receive", "the message's payload", "something else");
  }
}

void EndpointPlayer::judge_completions() {
  const std::vector<bool> done = sends_done();
  const bool reordered = used_.contains(Deviation::kResponseOrder);
  if (send_completions_.size() != posted_) {
    return differ(captured_, "number of send completions", std::to_string(posted_),
                  std::to_string(send_completions_.size()));
  }
  for (std::size_t i = 0; i < posted_ && !difference_; ++i) {
    const model::Completion& wc = send_completions_[i];
    judge_send(i, wc);
    if (!difference_ && !reordered && (wc.status == WcStatus::kSuccess) != done[i]) {
      differ(script_.posts[i].begin, "completion of the work request that starts here",
             done[i] ? "success" : "an error", status_text(wc.status));
    }
  }
  if (!difference_ && receive_completions_.size() != receives_.size()) {
    return differ(captured_, "number of receive completions", std::to_string(receives_.size()),
                  std::to_string(receive_completions_.size()));
  }
  for (std::size_t i = 0; i < receives_.size() && !difference_; ++i) {
    judge_receive(i, receive_completions_[i]);
  }
}

void EndpointPlayer::differ(std::uint64_t offset, std::string what, std::string expected,
                            std::string ours) {
  if (difference_) return;
  difference_ = Difference{offset, std::move(what), std::move(expected), std::move(ours)};
}

std::string EndpointPlayer::compared() const {
  const FpduStream& own = script_.own->fpdus;
  std::string text = std::to_string(own.fpdus.size()) + " FPDUs of " +
                     std::to_string(own.messages.size()) + " messages sent";
  if (!difference_) {
    text += comparison_.identical ? " byte for byte"
            : comparison_.exact   ? " equal FPDU by FPDU"
                                  : " equal message by message";
  }
  text += ", " + std::to_string(script_.peer->fpdus.fpdus.size()) + " received; " +
          std::to_string(posted_) + " work requests, " + std::to_string(receives_.size()) +
          " receives, " + std::to_string(script_.peer_reads.size()) + " READs answered";
  return text;
}

}  // namespace airdma::interop
