// SPDX-License-Identifier: MIT
#include "tests/sim/exchange.h"

#include <algorithm>
#include <cstring>

#include "model/completion_log.h"

namespace airdma::sim {

using model::SendOpcode;
using model::WcOpcode;
using model::WcStatus;

namespace {

constexpr std::uint64_t kSourceBase = 0x100000;
constexpr std::uint64_t kSinkBase = 0x7f0000000000;
constexpr Stag kSourceKey{0x1111};
constexpr Stag kSinkKey{0x2222};
constexpr std::size_t kSpareReceives = 3;  // posted beyond what the peer sends
constexpr std::size_t kCounterBytes = 8;
constexpr std::byte kHandedOver{0xa5};  // what a program does with memory that is its own again

bool is_send(SendOpcode opcode) {
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm;
}

/// Filling megabytes byte by byte would be most of a run.
void fill_fast(std::vector<std::byte>& bytes, Random& random) {
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
}

}  // namespace

Program::Program(model::MemoryTable& table, model::SendQueue& its_sq, model::ReceiveQueue& its_rq,
                 const Scale& scale, Random& random)
    : sq(its_sq),
      rq(its_rq),
      source(table, kSourceKey, kSourceBase, scale.source_bytes, model::kAccessRemoteRead),
      sink(table, kSinkKey, kSinkBase, scale.sink_bytes),
      busy(scale.sink_bytes) {
  fill_fast(source.bytes(), random);
  fill_fast(sink.bytes(), random);
  std::fill_n(sink.bytes().end() - kCounterBytes, kCounterBytes, std::byte{0});
  std::fill_n(busy.end() - kCounterBytes, kCounterBytes, true);
  image = sink.bytes();
}

Exchange::Exchange(std::uint64_t seed, Scale (*choose)(Random&))
    : random_(seed), scale_(choose(random_)), posts_left_(random_.between(1, 60)) {}

void Exchange::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what + "; " + endpoints();
}

std::string Exchange::run() {
  const std::size_t steps = random_.between(10, 600);
  for (std::size_t i = 0; i < steps && !failed(); ++i) {
    step();
    look_at_memory();
  }
  if (!failed()) disturb();
  if (!failed()) settle();
  if (!failed()) check_end();
  return failure_;
}

// Posting.

bool Exchange::has_room(const Program& one, std::size_t bytes) const {
  return one.sink_used + bytes <= scale_.sink_bytes - kCounterBytes;
}

void Exchange::reserve(Program& owner, std::size_t offset, std::size_t length) {
  std::fill_n(owner.busy.begin() + static_cast<long>(offset), length, true);
}

/// The program has its memory back, and uses it. Whatever comes late must not touch it.
void Exchange::hand_over(Program& owner, std::size_t offset, std::size_t length) const {
  if (disturbed_) return;
  const auto at = static_cast<long>(offset);
  std::fill_n(owner.busy.begin() + at, length, false);
  std::fill_n(owner.image.begin() + at, length, kHandedOver);
  std::fill_n(owner.sink.bytes().begin() + at, length, kHandedOver);
}

/// Pieces of a contiguous range, so that gathering and scattering happen.
std::vector<model::Sge> Exchange::pieces(std::uint64_t base, std::uint32_t length, Stag key) {
  std::vector<model::Sge> sges;
  const std::size_t count = random_.between(length == 0 ? 0 : 1, Program::kMaxSge);
  std::uint32_t done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const auto piece =
        last ? length - done
             : static_cast<std::uint32_t>(random_.below(std::size_t{length} - done + 1));
    sges.push_back({.addr = base + done, .length = piece, .lkey = key});
    done += piece;
  }
  return sges;
}

void Exchange::choose_memory(Program& one, Program& peer, SendRecord& record) {
  record.length = static_cast<std::uint32_t>(random_.one_in(scale_.long_one_in)
                                                 ? random_.below(scale_.max_message + 1)
                                                 : random_.below(65));
  if (model::is_atomic(record.post.opcode)) return choose_counter(one, record);
  const std::uint32_t length = record.length;
  const bool read = record.post.opcode == SendOpcode::kRead;
  Program& owner = read ? one : peer;  // of the memory that changes
  record.target = owner.sink_used;
  record.source = random_.below(scale_.source_bytes - length + 1);
  if (read) {
    record.post.sges = pieces(kSinkBase + record.target, length, kSinkKey);
    record.post.remote_addr = kSourceBase + record.source;
    record.post.rkey = kSourceKey;
  } else {
    record.post.sges = pieces(kSourceBase + record.source, length, kSourceKey);
    record.post.remote_addr = kSinkBase + record.target;
    record.post.rkey = kSinkKey;
  }
  if (is_send(record.post.opcode)) return;
  owner.sink_used += length;
  reserve(owner, record.target, length);
}

/// An atomic on the peer's counter; its old value goes to a place of its own.
void Exchange::choose_counter(Program& one, SendRecord& record) {
  record.length = kCounterBytes;
  record.target = one.sink_used;
  one.sink_used += kCounterBytes;
  reserve(one, record.target, kCounterBytes);
  record.post.sges = pieces(kSinkBase + record.target, record.length, kSinkKey);
  record.post.remote_addr = kSinkBase + scale_.sink_bytes - kCounterBytes;
  record.post.rkey = kSinkKey;
  record.post.compare_add = random_.below(4);
  record.post.swap = random_.below(4);
}

bool Exchange::post_send(Program& one, Program& peer) {
  if (one.sq.free_slots() == 0) return false;
  // Room for what the operation may change, and for the receives that are still to be posted.
  const std::size_t receives = kSpareReceives + 1 + one.messages - peer.receives.size();
  if (!has_room(one, (kSpareReceives + 2) * scale_.max_message)) return false;
  if (!has_room(peer, (receives + 1) * scale_.max_message)) return false;
  SendRecord record;
  record.post.opcode = random_.pick(
      {SendOpcode::kSend, SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kWrite,
       SendOpcode::kWrite, SendOpcode::kWriteWithImm, SendOpcode::kRead, SendOpcode::kRead,
       SendOpcode::kFetchAdd, SendOpcode::kCompareSwap});
  choose_memory(one, peer, record);
  record.post.wr_id = one.sends.size();
  record.post.signaled = !random_.one_in(3);
  record.post.fence = random_.one_in(6);
  record.post.solicited = random_.one_in(3);
  record.post.immediate = static_cast<std::uint32_t>(random_.next());
  record.consumes_receive =
      is_send(record.post.opcode) || record.post.opcode == SendOpcode::kWriteWithImm;
  if (record.consumes_receive) ++one.messages;
  post_to(one.sq, record.post);
  one.sends.push_back(record);
  return true;
}

bool Exchange::post_receive(Program& one, const Program& peer) {
  if (one.rq.free_slots() == 0) return false;
  if (one.receives.size() == peer.messages + kSpareReceives) return false;
  if (!has_room(one, scale_.max_message)) return false;
  const ReceiveRecord record{.offset = one.sink_used, .capacity = scale_.max_message};
  one.sink_used += record.capacity;
  reserve(one, record.offset, record.capacity);
  post_receive_to(one.rq, one.receives.size(),
                  pieces(kSinkBase + record.offset, record.capacity, kSinkKey));
  one.receives.push_back(record);
  return true;
}

// Completions.

void Exchange::take(Program& one, Program& peer, const model::Completion& wc) {
  wc.receive ? take_receive(one, peer, wc) : take_send(one, peer, wc);
}

void Exchange::take_send(Program& one, Program& peer, const model::Completion& wc) {
  if (wc.wr_id >= one.sends.size()) return fail("completion of a send nobody posted");
  if (wc.wr_id < one.next_send) return fail("send completed twice or out of order");
  for (; one.next_send < wc.wr_id; ++one.next_send) {
    const SendRecord& skipped = one.sends[one.next_send];
    if (skipped.post.signaled) return fail("signaled send was skipped");
    sent(one, peer, skipped);  // in silence, but a success: a failure is always reported
  }
  const SendRecord& record = one.sends[one.next_send++];
  if (wc.status == WcStatus::kSuccess) {
    if (!record.post.signaled) return fail("unsignaled success was reported");
    if (one.blamed) return fail("success after a failure");
    if (wc.byte_len != record.length) return fail("wc's length");
    if (wc.opcode != model::wc_opcode(record.post.opcode)) return fail("wc's opcode");
    return sent(one, peer, record);
  }
  if (!disturbed_) return fail("send failed: " + std::to_string(int(wc.status)));
  if (wc.status == WcStatus::kFlushError) return;
  if (one.blamed) return fail("a second work request failed for a reason of its own");
  one.blamed = true;
  if (!may_fail_with(wc.status)) fail("send's wrong status: " + std::to_string(int(wc.status)));
}

/// A send was carried out, as its program is told.
void Exchange::sent(Program& one, Program& peer, const SendRecord& record) {
  if (!payload_is_safe()) return;
  if (record.post.opcode == SendOpcode::kRead) {
    if (!same(one, record.target, peer, record.source, record.length)) {
      return fail("READ brought wrong bytes");
    }
    return hand_over(one, record.target, record.length);
  }
  if (model::is_atomic(record.post.opcode)) return atomic_done(one, peer, record);
  if (record.post.opcode != SendOpcode::kWrite || !scale_.write_is_placed) return;
  if (!same(peer, record.target, one, record.source, record.length)) {
    return fail("WRITE brought wrong bytes");
  }
  hand_over(peer, record.target, record.length);
}

/// One program alone works on the other's counter, in posting order: every old value is known.
void Exchange::atomic_done(Program& one, Program& peer, const SendRecord& record) {
  std::uint64_t brought = 0;
  std::memcpy(&brought, one.sink.bytes().data() + record.target, sizeof brought);
  if (brought != peer.counter) return fail("an atomic brought a wrong value");
  if (record.post.opcode == SendOpcode::kFetchAdd) {
    peer.counter += record.post.compare_add;
  } else if (peer.counter == record.post.compare_add) {
    peer.counter = record.post.swap;
  }
  hand_over(one, record.target, record.length);
}

void Exchange::take_receive(Program& one, Program& peer, const model::Completion& wc) {
  if (wc.wr_id != one.next_receive) return fail("receive completed twice or out of order");
  const ReceiveRecord& receive = one.receives[one.next_receive++];
  if (wc.status != WcStatus::kSuccess) {
    if (!disturbed_) fail("receive failed: " + std::to_string(int(wc.status)));
    return;
  }
  if (!payload_is_safe()) return;
  while (peer.next_message < peer.sends.size() && !peer.sends[peer.next_message].consumes_receive) {
    ++peer.next_message;
  }
  if (peer.next_message == peer.sends.size()) return fail("receive of a message nobody sent");
  check_message(one, peer, receive, peer.sends[peer.next_message++], wc);
}

bool Exchange::same(Program& to, std::size_t sink_at, Program& from, std::size_t source_at,
                    std::uint32_t length) {
  return std::equal(to.sink.bytes().begin() + static_cast<long>(sink_at),
                    to.sink.bytes().begin() + static_cast<long>(sink_at + length),
                    from.source.bytes().begin() + static_cast<long>(source_at));
}

void Exchange::check_message(Program& one, Program& peer, const ReceiveRecord& receive,
                             const SendRecord& message, const model::Completion& wc) {
  const bool after_write = message.post.opcode == SendOpcode::kWriteWithImm;
  const bool immediate = model::has_immediate(message.post.opcode);
  if (wc.opcode != (after_write ? WcOpcode::kReceiveRdmaWithImm : WcOpcode::kReceive)) {
    return fail("receive's opcode");
  }
  if (wc.byte_len != message.length) return fail("receive's length");
  if ((wc.flags == model::kWcWithImmediate) != immediate) return fail("receive's flags");
  if (immediate && wc.immediate != message.post.immediate) return fail("immediate data");
  if (wc.solicited != message.post.solicited) return fail("solicited");
  const std::size_t at = after_write ? message.target : receive.offset;
  if (!same(one, at, peer, message.source, message.length)) {
    return fail("message brought wrong bytes");
  }
  if (after_write) hand_over(one, message.target, message.length);
  hand_over(one, receive.offset, receive.capacity);
}

// The end.

void Exchange::check_rest(Program& one, Program& peer) {
  for (; one.next_send < one.sends.size() && !failed(); ++one.next_send) {
    const SendRecord& last = one.sends[one.next_send];
    if (last.post.signaled) return fail("a send did not complete");
    sent(one, peer, last);
  }
  if (scale_.write_is_placed) return;
  for (const SendRecord& record : one.sends) {
    if (record.post.opcode != SendOpcode::kWrite) continue;
    if (!same(peer, record.target, one, record.source, record.length)) {
      return fail("WRITE brought wrong bytes");
    }
  }
}

void Exchange::check_memory(Program& one) {
  if (!one.sink.idle() || !one.source.idle()) fail("a region is still pinned");
  check_memory(one, 0, scale_.sink_bytes);
}

void Exchange::look_at_memory() {
  constexpr std::size_t kPart = 512;
  const std::size_t begin = random_.below(scale_.sink_bytes);
  if (!payload_is_safe()) return;
  check_memory(program(random_.below(2)), begin, std::min(begin + kPart, scale_.sink_bytes));
}

void Exchange::check_memory(Program& one, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; ++at) {
    if (!one.busy[at] && one.sink.bytes()[at] != one.image[at]) {
      return fail("memory changed where it must not, at " + std::to_string(at));
    }
  }
}

void Exchange::check_counter(Program& one) {
  std::uint64_t left = 0;
  std::memcpy(&left, one.sink.bytes().data() + scale_.sink_bytes - kCounterBytes, sizeof left);
  if (left != one.counter) fail("a counter has a wrong value");
}

}  // namespace airdma::sim
