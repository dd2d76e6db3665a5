// SPDX-License-Identifier: MIT
#include "tests/sim/roce_shared_world.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

namespace airdma::sim {

using model::QpEvent;
using model::QpState;
using model::QpType;
using model::SendOpcode;
using model::WcStatus;
using std::chrono::microseconds;

namespace {

constexpr std::uint64_t kSourceBase = 0x100000;
constexpr std::uint64_t kReceiveBase = 0x40000000;  // of the first queue's memory
constexpr std::uint64_t kQueueStride = 0x10000000;
constexpr std::byte kUntouched{0xee};
constexpr std::size_t kIpv4At = 20;  // in the 40 bytes before a datagram

}  // namespace

// Queues.

void SharedWorld::Events::on_limit_reached() {
  count.fetch_add(1);
  count.notify_all();
}

void SharedWorld::Events::wait_for(std::uint32_t wanted) const {
  for (std::uint32_t now = count.load(); now < wanted; now = count.load()) count.wait(now);
}

SharedWorld::Queue::Queue(model::MemoryTable& table, std::uint32_t its_number, PdId its_pd)
    : number(its_number),
      pd(its_pd),
      key(Stag{0x3000 + its_number}),
      base(kReceiveBase + its_number * kQueueStride),
      memory(table, key, base, std::size_t{kSlots + kMessages} * kSlotBytes, kAllRights, its_pd),
      shared(std::make_shared<runtime::SharedReceiveQueue>(its_pd, kDepth, 2, events)) {
  std::fill(memory.bytes().begin(), memory.bytes().end(), kUntouched);
}

std::uint32_t SharedWorld::Queue::size() const {
  return static_cast<std::uint32_t>(shared->queue().tail() - shared->queue().head());
}

SharedWorld::Queue* SharedWorld::Domain::find(Srqn number) const {
  for (const auto& queue : *queues) {
    if (queue->number == number) return queue.get();
  }
  return nullptr;
}

rocev2::XrcReceives::Outcome SharedWorld::Domain::take(Srqn number, model::ReceiveQueue& queue,
                                                       PdId& pd) {
  Queue* const found = find(number);
  if (found == nullptr) return Outcome::kNoSuchQueue;
  pd = found->pd;
  return found->shared->take(queue) ? Outcome::kTaken : Outcome::kEmpty;
}

std::optional<PdId> SharedWorld::Domain::domain(Srqn number) {
  Queue* const found = find(number);
  return found == nullptr ? std::nullopt : std::optional(found->pd);
}

// The pair.

bool SharedWorld::Message::uses_receive() const {
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm ||
         opcode == SendOpcode::kWriteWithImm;
}

bool SharedWorld::Message::is_write() const {
  return opcode == SendOpcode::kWrite || opcode == SendOpcode::kWriteWithImm;
}

SharedWorld::SharedWorld(std::uint64_t seed, QpType type, Weather weather)
    : random_(seed),
      type_(type),
      weather_(weather),
      v6_(seed % 2 == 0),
      a_(1, sender(), kMessages),
      b_(2, receiver(), 1, 2),
      source_(a_.table, kKey, kSourceBase, std::size_t{kMessages} * kMost) {
  // They are known when the first packet comes, and live as long as the endpoints.
  const std::uint32_t count = xrc() ? 3 : 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    queues_.push_back(std::make_unique<Queue>(b_.table, i + 1, i == 1 ? kOtherPd : kPd));
  }
  shared_.queue = queues_[0]->shared.get();
  domain_.queues = &queues_;
  fill(source_.bytes(), static_cast<std::uint32_t>(seed));
  choose_messages();
  connect();
}

rocev2::EndpointConfig SharedWorld::sender() const {
  rocev2::EndpointConfig config;
  config.type = xrc() ? QpType::kXrcSend : type_;
  return config;
}

rocev2::EndpointConfig SharedWorld::receiver() {
  rocev2::EndpointConfig config;
  config.type = type_;
  if (xrc()) {
    config.xrc_receives = &domain_;
  } else {
    config.shared_receives = &shared_;
    config.receive_pd = kPd;
  }
  return config;
}

bool SharedWorld::reliable() const { return xrc() || type_ == QpType::kRc; }

void SharedWorld::connect() {
  rocev2::QpAttributes attributes = usual_attributes();
  attributes.path_mtu = random_.pick({256u, 512u, 1024u});
  attributes.sq_psn = attributes.rq_psn = Psn{0xfffff0};
  attributes.min_rnr_timer = static_cast<std::uint8_t>(random_.between(1, 14));
  a_.v6 = b_.v6 = v6_;
  a_.connect(attributes, 2, now_);
  b_.connect(attributes, 1, now_);
}

SendOpcode SharedWorld::choose_opcode() {
  switch (type_) {
    case QpType::kUd:
      return random_.pick({SendOpcode::kSend, SendOpcode::kSendWithImm});
    case QpType::kUc:
      return random_.pick({SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kWriteWithImm});
    case QpType::kRc:
    case QpType::kRawPacket:
    case QpType::kXrcSend:
    case QpType::kXrcReceive:
      break;
  }
  return random_.pick(
      {SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kWriteWithImm, SendOpcode::kWrite});
}

void SharedWorld::choose_messages() {
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    std::memcpy(source_.bytes().data() + std::size_t{i} * kMost, &i, sizeof i);
    Message message{.opcode = choose_opcode()};
    message.length =
        static_cast<std::uint32_t>(random_.between(sizeof i, type_ == QpType::kUd ? 256 : kMost));
    message.queue = random_.below(queues_.size());
    message.solicited = random_.one_in(2);
    messages_.push_back(message);
  }
}

void SharedWorld::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what + "; " + a_.endpoint.failure() + b_.endpoint.failure();
}

// What happens.

std::uint64_t SharedWorld::place_of_write(std::uint32_t index) const {
  const Queue& queue = *queues_[messages_[index].queue];
  return queue.base + std::uint64_t{kSlots + index} * kSlotBytes;
}

Bytes SharedWorld::source_of(std::uint32_t index) {
  return Bytes(source_.bytes()).subspan(std::size_t{index} * kMost, messages_[index].length);
}

void SharedWorld::post_message() {
  if (posted_ == kMessages || a_.sq.free_slots() == 0) return;
  const std::uint32_t index = posted_++;
  const Message& message = messages_[index];
  Post post{.opcode = message.opcode,
            .wr_id = index,
            .sges = {{kSourceBase + std::uint64_t{index} * kMost, message.length, kKey}}};
  if (message.is_write()) {
    post.remote_addr = place_of_write(index);
    post.rkey = queues_[message.queue]->key;
  }
  post.immediate = index;
  post.solicited = message.solicited;
  post.remote_srqn = queues_[message.queue]->number;
  post.remote_qpn = Qpn{2};
  post.remote_qkey = Qkey{0x11};
  post.address.source = host(1, v6_);
  post.address.destination = host(2, v6_);
  a_.post(post);
}

/// Every receive has memory of its own; its wr_id is which.
void SharedWorld::post_receive() {
  Queue& queue = *queues_[random_.below(queues_.size())];
  if (queue.posted == kSlots || queue.shared->queue().free_slots() == 0) return;
  const std::uint64_t at = queue.base + std::uint64_t{queue.posted} * kSlotBytes;
  const auto first = static_cast<std::uint32_t>(random_.between(1, kSlotBytes - 1));
  {
    std::lock_guard lock(queue.shared->lock());
    model::ReceiveWqe& wqe = queue.shared->queue().slot(0);
    wqe.wr_id = queue.posted++;
    wqe.sge_count = 2;
    wqe.sges[0] = {.addr = at, .length = first, .lkey = queue.key};
    wqe.sges[1] = {.addr = at + first, .length = kSlotBytes - first, .lkey = queue.key};
    wqe.length = kSlotBytes;
    queue.shared->publish(1);
  }
  queue.shared->receives_posted();
  queue.seen_size = queue.size();
}

void SharedWorld::arm() {
  Queue& queue = *queues_[random_.below(queues_.size())];
  const auto limit = static_cast<std::uint32_t>(random_.between(1, kDepth));
  if (!queue.shared->modify(nullptr, &limit)) return fail("a limit was refused");
  queue.armed = limit;
}

void SharedWorld::fly(PacketBytes bytes, bool to_b) {
  Time at = now_ + microseconds(20);
  if (weather_ != Weather::kCalm) {
    if (random_.one_in(12)) return;
    if (random_.one_in(12)) fly(bytes, to_b);
    at += microseconds(random_.below(random_.one_in(12) ? 2000 : 20));
  }
  flying_.push_back({.at = at, .to_b = to_b, .bytes = std::move(bytes)});
}

void SharedWorld::transmit() {
  for (PacketBytes& bytes : a_.transmit(now_)) fly(std::move(bytes), true);
  for (PacketBytes& bytes : b_.transmit(now_)) fly(std::move(bytes), false);
}

/// To the next thing that happens by itself.
void SharedWorld::pass_time() {
  std::optional<Time> next;
  const auto consider = [&](std::optional<Time> at) {
    if (at && (!next || *at < *next)) next = at;
  };
  for (const Flying& packet : flying_) consider(packet.at);
  for (PacketSide* side : {&a_, &b_}) consider(side->endpoint.next_deadline());
  if (!next) return;
  now_ = std::max(now_, *next);
  for (PacketSide* side : {&a_, &b_}) side->endpoint.on_deadline(now_);
  std::stable_sort(flying_.begin(), flying_.end(),
                   [](const Flying& x, const Flying& y) { return x.at < y.at; });
  while (!flying_.empty() && flying_.front().at <= now_ && failure_.empty()) {
    const Flying packet = std::move(flying_.front());
    flying_.erase(flying_.begin());
    (packet.to_b ? b_ : a_).receive(packet.bytes, packet.to_b ? 1 : 2, now_);
    take_all();
  }
  transmit();
}

void SharedWorld::step() {
  switch (random_.below(8)) {
    case 0:
      return post_message();
    case 1:
    case 2:
      return post_receive();
    case 3:
      return arm();
    case 4:
      return transmit();
    default:
      pass_time();
  }
}

void SharedWorld::break_it() {
  broken_ = true;
  b_.endpoint.fail(now_);
  b_.drain();
  take_all();
}

bool SharedWorld::done() const {
  return posted_ == kMessages && a_.sq.empty() && flying_.empty() && !a_.endpoint.may_transmit() &&
         !b_.endpoint.may_transmit();
}

std::string SharedWorld::run() {
  const std::size_t steps = random_.between(20, 400);
  for (std::size_t i = 0; i < steps && failure_.empty(); ++i) {
    step();
    take_all();
  }
  if (weather_ == Weather::kFail && failure_.empty()) break_it();
  constexpr std::size_t kPatience = 200000;
  for (std::size_t i = 0; !done() && failure_.empty(); ++i) {
    post_message();
    post_receive();
    transmit();
    pass_time();
    take_all();
    if (i == kPatience) fail("the run does not end");
  }
  if (failure_.empty()) check_end();
  return failure_;
}

// What must hold.

void SharedWorld::take_all() {
  a_.drain();
  b_.drain();
  for (const model::Completion& wc : a_.completions) sent(wc);
  for (const model::Completion& wc : b_.completions) arrived(wc);
  a_.completions.clear();
  b_.completions.clear();
  check_limits();
}

void SharedWorld::sent(const model::Completion& wc) {
  if (wc.wr_id != next_send_++) return fail("sends complete out of order");
  const auto index = static_cast<std::uint32_t>(wc.wr_id);
  if (wc.status != WcStatus::kSuccess) {
    if (!broken_) fail("a send failed");
    return;
  }
  const Message& message = messages_[index];
  if (!reliable()) return;
  if (message.uses_receive() && next_message_ <= index) return fail("a send before its message");
  if (!message.is_write()) return;
  Queue& queue = *queues_[message.queue];
  const Bytes written =
      Bytes(queue.memory.bytes()).subspan(place_of_write(index) - queue.base, message.length);
  if (!std::ranges::equal(written, source_of(index))) fail("a WRITE brought wrong bytes");
}

void SharedWorld::arrived(const model::Completion& wc) {
  Queue* const queue = xrc() ? domain_.find(wc.srqn) : queues_[0].get();
  if (queue == nullptr) return fail("a completion of no queue");
  if (wc.wr_id != queue->completed++) return fail("receives out of order");
  if (wc.status != WcStatus::kSuccess) {
    if (!broken_ || wc.status != WcStatus::kFlushError) fail("a receive failed");
    return;
  }
  const std::size_t grh = type_ == QpType::kUd ? kGrh : 0;
  const Bytes slot =
      Bytes(queue->memory.bytes()).subspan(std::size_t{wc.wr_id} * kSlotBytes, kSlotBytes);
  std::uint32_t index = wc.immediate;
  const bool immediate = (wc.flags & model::kWcWithImmediate) != 0;
  if (!immediate) std::memcpy(&index, slot.data() + grh, sizeof index);
  if (index >= posted_) return fail("a message nobody sent");
  if (grh != 0) check_grh(slot.first(grh));
  check_message(*queue, index, slot, wc);
}

void SharedWorld::check_message(Queue& queue, std::uint32_t index, Bytes slot,
                                const model::Completion& wc) {
  const Message& message = messages_[index];
  const std::size_t grh = type_ == QpType::kUd ? kGrh : 0;
  if (queues_[message.queue].get() != &queue) return fail("a message on the wrong queue");
  const bool write = wc.opcode == model::WcOpcode::kReceiveRdmaWithImm;
  const bool immediate = (wc.flags & model::kWcWithImmediate) != 0;
  if (!message.uses_receive() || write != message.is_write() ||
      immediate != (message.opcode != SendOpcode::kSend) || wc.solicited != message.solicited) {
    return fail("a message is not what was sent");
  }
  if (wc.byte_len != message.length + grh) return fail("a message has the wrong length");
  const Bytes bytes =
      write
          ? Bytes(queue.memory.bytes()).subspan(place_of_write(index) - queue.base, message.length)
          : slot.subspan(grh, message.length);
  if (!std::ranges::equal(bytes, source_of(index))) return fail("a message has wrong bytes");
  // What a UC message left behind that did not come whole may be there.
  const Bytes rest = write ? slot : slot.subspan(grh + message.length);
  const bool clean = std::ranges::all_of(rest, [](std::byte byte) { return byte == kUntouched; });
  if (!clean && type_ != QpType::kUc) return fail("bytes beside a message");
  if (type_ == QpType::kUd) return;
  if (index < next_message_) return fail("a message came twice, or late");
  while (next_message_ < index) {
    if (reliable() && messages_[next_message_].uses_receive()) return fail("a message is missing");
    ++next_message_;
  }
  ++next_message_;
}

void SharedWorld::check_grh(Bytes grh) {
  const model::Gid from = host(1, v6_);
  const model::Gid to = host(2, v6_);
  const std::span source = v6_ ? std::span(from.bytes) : std::span(from.bytes).last(4);
  const std::span target = v6_ ? std::span(to.bytes) : std::span(to.bytes).last(4);
  const std::size_t at = grh.size() - 2 * source.size();
  const auto version = std::to_integer<unsigned>(grh[v6_ ? 0 : kIpv4At]) >> 4;
  if (version != (v6_ ? 6u : 4u) ||
      std::memcmp(grh.data() + at, source.data(), source.size()) != 0 ||
      std::memcmp(grh.data() + at + source.size(), target.data(), target.size()) != 0) {
    fail("a datagram's header");
  }
}

/// A limit is reached when a receive was taken, or none found, and fewer are left; once.
void SharedWorld::check_limits() {
  for (auto& queue : queues_) {
    const std::uint32_t size = queue->size();
    const bool taken = size < std::exchange(queue->seen_size, size);
    if (queue->armed == 0) continue;
    const bool passed = queue->shared->limit() == 0;
    if (passed && size >= queue->armed) return fail("a limit is reached too early");
    if (!passed && taken && size < queue->armed) return fail("a limit is not reached");
    if (!passed) continue;
    queue->armed = 0;
    ++queue->reached;
  }
}

void SharedWorld::check_end() {
  if (next_send_ != kMessages) return fail("sends are left");
  for (auto& queue : queues_) {
    // One may have been taken for a message that did not come whole.
    const std::uint32_t held = queue->posted - queue->completed - queue->size();
    if (held > 1 || (held == 1 && (reliable() || broken_))) return fail("receives are missing");
    queue->events->wait_for(queue->reached);
    if (queue->events->count.load() != queue->reached) return fail("too many limits");
  }
  const bool failed = b_.endpoint.state() == QpState::kError;
  if (failed != broken_) return fail("the receiver's state");
  const auto last = std::ranges::count(b_.events, QpEvent::kLastWqeReached);
  // The target of an XRC connection has no shared receive queue of its own.
  if (last != (broken_ && !xrc() ? 1 : 0)) return fail("the event of the last receive");
  if (!broken_ && a_.endpoint.state() != QpState::kRts) fail("the sender's state");
}

}  // namespace airdma::sim
