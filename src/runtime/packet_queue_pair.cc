// SPDX-License-Identifier: MIT
#include "runtime/packet_queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "io/fault_handler.h"
#include "wire/roce_packet.h"

namespace airdma::runtime {
namespace {

rocev2::EndpointConfig endpoint_config(const QueuePairConfig& config,
                                       const PacketQueuePair::Options& options) {
  rocev2::EndpointConfig wanted{.type = config.type, .qpn = config.qpn, .pd = config.pd};
  if (config.shared_receives) {
    wanted.shared_receives = config.shared_receives.get();
    wanted.receive_pd = config.shared_receives->pd();
  }
  wanted.xrc_receives = options.xrc_domain.get();
  wanted.datagram_bytes = options.datagram_bytes;
  wanted.window_bytes = RocePort::get().window_bytes();
  return wanted;
}

}  // namespace

// --- Life ---

PacketQueuePair::PacketQueuePair(const QueuePairConfig& config, const Options& options,
                                 const model::MemoryTable& memory, CompletionQueue& send_cq,
                                 CompletionQueue& receive_cq,
                                 std::weak_ptr<QueuePairObserver> observer)
    : QueuePair(config, memory, send_cq, receive_cq, std::move(observer)),
      options_(options),
      endpoint_(endpoint_config(config, options), memory, send_queue_, receive_queue_) {}

PacketQueuePair::~PacketQueuePair() = default;

Result<std::shared_ptr<PacketQueuePair>> PacketQueuePair::create(
    const QueuePairConfig& config, const Options& options, const model::MemoryTable& memory,
    CompletionQueue& send_cq, CompletionQueue& receive_cq,
    std::weak_ptr<QueuePairObserver> observer) {
  io::watch_faults();
  std::shared_ptr<PacketQueuePair> queue_pair(
      new PacketQueuePair(config, options, memory, send_cq, receive_cq, std::move(observer)));
  if (Status started = queue_pair->start(); !started) return std::unexpected(started.error());
  queue_pair->attach();
  return queue_pair;
}

Status PacketQueuePair::start() {
  const auto progress = Progress::start();
  if (!progress) return std::unexpected(progress.error());
  const auto watch = (*progress)->add_control(Progress::kNoDescriptor, shared_from_this());
  if (!watch) return std::unexpected(watch.error());
  progress_ = *progress;
  watch_ = *watch;
  port_.register_sink(config_.qpn, weak_sink());
  return {};
}

std::weak_ptr<PacketSink> PacketQueuePair::weak_sink() {
  return std::static_pointer_cast<PacketQueuePair>(weak_from_this().lock());
}

void PacketQueuePair::destroy() {
  detach();
  // Without the transport, for which a call in progress may wait.
  port_.unregister_sink(config_.qpn);
  with_transport([&] {
    destroyed_ = true;
    transmit();  // what was held back
    log_closed();
    drop_batch();
    endpoint_.clear_completions();
    reset();
  });
  progress_->remove(watch_);
}

// --- State ---

bool PacketQueuePair::modify(QpState from, const PacketAttributes& attributes,
                             model::QpAttrMask mask) {
  bool taken = false;
  with_transport([&] {
    if (destroyed_ || state() != from) return;
    taken = true;
    if (answer_.held()) transmit();
    if ((mask & model::kQpAttrState) != 0 && attributes.state == QpState::kReset) return reset();
    endpoint_.modify(attributes, mask, now_);
  });
  return taken;
}

void PacketQueuePair::reset() {
  drop_batch();
  {
    // Nobody posts from here on.
    state_.store(QpState::kReset, std::memory_order_release);
    std::scoped_lock lock(send_lock_, receive_lock_);
    endpoint_.modify(rocev2::QpAttributes{}, model::kQpAttrState, now_);
  }
  endpoint_.clear_completions();
  forget_work();
}

PacketAttributes PacketQueuePair::attributes() {
  PacketAttributes found;
  with_transport([&] { found = endpoint_.attributes(); });
  return found;
}

bool PacketQueuePair::sends_draining() {
  bool draining = false;
  with_transport([&] { draining = state() == QpState::kSqd && !endpoint_.sends_drained(); });
  return draining;
}

void PacketQueuePair::fail() {
  with_transport([&] {
    if (answer_.held()) transmit();
    drop_batch();
    endpoint_.fail(now_);
  });
}

// --- Entry points ---

void PacketQueuePair::sends_posted(std::uint32_t count, std::uint64_t bytes) {
  answer_.posted();
  if (!hold_posts(count, bytes)) drive(kTransmit);
}

// Whoever lacked a receive was told to come again.
void PacketQueuePair::receives_posted() {
  // Pairs with the fence in update_state(): one of the two sides sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (state() == QpState::kError) drive(kReceives);
}

// What finds no receive is lost, also when nobody has looked at the socket until now.
void PacketQueuePair::before_receives() {
  const bool reliable = config_.type != model::QpType::kUd && config_.type != model::QpType::kUc;
  if (reliable || receive_queue_.free_slots() != receive_queue_.depth()) return;
  if (state() != QpState::kInit) port_.settle();
}

// What arrives comes through the port, which the completion queue has asked already.
void PacketQueuePair::drive_polling() {
  const bool answer = answer_.polled(polls());
  if (answer || burst_.holds() || pending_.load(std::memory_order_relaxed) != 0) drive(kTransmit);
}

void PacketQueuePair::on_packets(std::span<const Bytes> packets,
                                 const rocev2::PacketOrigin& origin) {
  {
    std::lock_guard lock(transport_lock_);
    now_ = Progress::now();
    if (!destroyed_) {
      for (const Bytes packet : packets) {
        bytes_received_ += packet.size();
        take_packet(packet, origin);
      }
    }
    pump(pending_.exchange(0, std::memory_order_acq_rel) | kArrived);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (pending_.load(std::memory_order_relaxed) != 0) drive(0);
}

void PacketQueuePair::take_packet(Bytes packet, const rocev2::PacketOrigin& origin) {
  const auto parsed = wire::parse_roce_packet(packet);
  if (parsed) return endpoint_.on_packet(*parsed, origin, now_);
  endpoint_.on_unreadable(parsed.error(), origin, now_);
}

void PacketQueuePair::on_writable() { drive(kWritable | kTransmit); }

// --- One turn ---

void PacketQueuePair::pump(std::uint32_t work) {
  now_ = Progress::now();
  if ((work & kFail) != 0 && state() != QpState::kReset) endpoint_.fail(now_);
  if ((work & kWritable) != 0) waiting_ = false;
  if ((work & kDeadline) != 0) on_time();
  transmit(work == kArrived);
  drain_completions();
  while (const auto event = endpoint_.poll_event()) announce(*event);
  update_state();
  update_deadline();
}

// With the program's answer, with its next poll that finds nothing, or when the progress thread
// says so. Not of a program that sleeps: it would take longer than that.
bool PacketQueuePair::hold_answer() {
  if (!answer_.arrived(polls()) || !progress_->delegated()) return false;
  answer_.hold();
  return flush_follows();
}

void PacketQueuePair::on_flush(bool overdue) {
  QueuePair::on_flush(overdue);
  if (!answer_.held()) return;
  if (overdue) answer_.distrust();
  drive(kTransmit);
}

void PacketQueuePair::transmit(bool arrived) {
  burst_.release();
  if (waiting_) return;
  if (batch_ && !send_batch()) return;
  if (arrived && endpoint_.can_wait() && hold_answer()) return;
  answer_.release();
  // Asked first: most turns find nothing to send.
  if (!endpoint_.may_transmit()) return;
  const BusyScope busy(*progress_);
  while (endpoint_.may_transmit()) {
    batch_ = BorrowedBatch::borrow();
    if (!batch_) return;  // later, when memory is there again: each post and each packet tries
    batch_sent_ = 0;
    const bool any = endpoint_.poll_transmit(*batch_, now_);
    if (any && !send_batch()) return;
    batch_.give_back();
    if (!any) return;
  }
}

// False when packets are left, which the port does not take now.
bool PacketQueuePair::send_batch() {
  while (batch_sent_ < batch_->packets().size()) {
    const SendOutcome outcome = port_.send(*batch_, batch_sent_);
    for (const auto& packet : batch_->packets().subspan(batch_sent_, outcome.packets)) {
      bytes_sent_ += packet.bytes();
    }
    batch_sent_ += outcome.packets;
    switch (outcome.status) {
      case SendStatus::kBusy:
        wait_for_room();
        return false;
      case SendStatus::kUnreadable:
        endpoint_.on_unsent(batch_->packets()[batch_sent_], now_);
        ++batch_sent_;
        break;
      case SendStatus::kSent:
      case SendStatus::kUnreachable:
      case SendStatus::kTooLong:
        if (outcome.packets == 0) ++batch_sent_;
        break;
    }
  }
  drop_batch();
  return true;
}

void PacketQueuePair::wait_for_room() {
  waiting_ = true;
  if (give_up_at_ == Time::max()) give_up_at_ = now_ + kLongestWait;
  port_.call_when_writable(*batch_, batch_sent_, weak_sink());
}

void PacketQueuePair::drop_batch() {
  batch_.give_back();
  batch_sent_ = 0;
  waiting_ = false;
  give_up_at_ = Time::max();
}

void PacketQueuePair::log_closed() const {
  if (bytes_sent_ == 0 && bytes_received_ == 0) return;
  AIRDMA_LOG_INFO("qp 0x%x closed: sent %llu bytes, received %llu bytes", config_.qpn.value(),
                  static_cast<unsigned long long>(bytes_sent_),
                  static_cast<unsigned long long>(bytes_received_));
}

bool PacketQueuePair::reliable() const {
  return config_.type != model::QpType::kUc && config_.type != model::QpType::kUd;
}

// A send without acknowledgement is complete when its packets are gone.
void PacketQueuePair::drain_completions() {
  if (batch_ && !reliable()) {
    if (endpoint_.state() != QpState::kError) return;
    drop_batch();
  }
  const auto completions = endpoint_.completions();
  if (options_.xrc_domain != nullptr) {
    report_shared(completions);
  } else {
    report(completions);
  }
  endpoint_.clear_completions();
}

void PacketQueuePair::report_shared(std::span<const model::Completion> completions) {
  bool lost = false;
  for (const model::Completion& completion : completions) {
    if (!destroyed_ && !options_.xrc_domain->report(completion)) lost = true;
  }
  if (lost && state() != QpState::kError) pending_.fetch_or(kFail, std::memory_order_relaxed);
}

void PacketQueuePair::update_state() {
  const QpState now = endpoint_.state();
  if (now != state()) state_.store(now, std::memory_order_release);
  if (now != QpState::kError) return;
  // Who posted behind the flush, and before the state said ERR, counts on this.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!receive_queue_.empty()) pending_.fetch_or(kReceives, std::memory_order_relaxed);
}

// --- Time ---

void PacketQueuePair::on_time() {
  deadline_set_ = Time::max();
  if (now_ >= give_up_at_) drop_batch();
  endpoint_.on_deadline(now_);
}

// An acknowledgement moves the deadline, and most of the time another takes its place before it
// passes: one that was set too early only wakes the progress thread for nothing, now and then.
void PacketQueuePair::update_deadline() {
  const Time next = std::min(endpoint_.next_deadline().value_or(Time::max()), give_up_at_);
  if (next >= deadline_set_ || destroyed_) return;
  deadline_set_ = next;
  progress_->set_deadline(watch_, next);
}

}  // namespace airdma::runtime
