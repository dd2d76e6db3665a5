// SPDX-License-Identifier: MIT
// What queue pairs of all transports share.
#include "runtime/queue_pair.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace airdma::runtime {
namespace {

const char* name_of(model::WcStatus status) {
  using enum model::WcStatus;
  switch (status) {
    case kSuccess:
      return "SUCCESS";
    case kLocalLengthError:
      return "LOC_LEN_ERR";
    case kLocalQpOperationError:
      return "LOC_QP_OP_ERR";
    case kLocalProtectionError:
      return "LOC_PROT_ERR";
    case kFlushError:
      return "WR_FLUSH_ERR";
    case kMwBindError:
      return "MW_BIND_ERR";
    case kBadResponse:
      return "BAD_RESP_ERR";
    case kLocalAccessError:
      return "LOC_ACCESS_ERR";
    case kRemoteInvalidRequest:
      return "REM_INV_REQ_ERR";
    case kRemoteAccessError:
      return "REM_ACCESS_ERR";
    case kRemoteOperationError:
      return "REM_OP_ERR";
    case kRetryExceeded:
      return "RETRY_EXC_ERR";
    case kRnrRetryExceeded:
      return "RNR_RETRY_EXC_ERR";
    case kFatal:
      return "FATAL_ERR";
    case kGeneralError:
      return "GENERAL_ERR";
  }
  return "an unknown status";
}

/// The request that brought the queue pair down; those behind it are flushed.
void log_failure(Qpn qpn, std::span<const model::Completion> completions) {
  for (const model::Completion& one : completions) {
    if (one.status == model::WcStatus::kSuccess || one.status == model::WcStatus::kFlushError) {
      continue;
    }
    AIRDMA_LOG_INFO("qp 0x%x: %s 0x%llx ended with %s", qpn.value(),
                    one.receive ? "receive" : "send", static_cast<unsigned long long>(one.wr_id),
                    name_of(one.status));
  }
}

}  // namespace

QueuePair::QueuePair(const QueuePairConfig& config, const model::MemoryTable& memory,
                     CompletionQueue& send_cq, CompletionQueue& receive_cq,
                     std::weak_ptr<QueuePairObserver> observer)
    : config_(config),
      memory_(memory),
      send_cq_(send_cq),
      receive_cq_(receive_cq),
      observer_(std::move(observer)),
      send_queue_(config.max_send_wr, config.max_send_sge, config.max_inline_data,
                  config.type == model::QpType::kUd),
      receive_queue_(
          config.shared_receives ? 1 : config.max_recv_wr,
          config.shared_receives ? config.shared_receives->max_sge() : config.max_recv_sge, 0) {}

QueuePair::~QueuePair() = default;

void QueuePair::attach() {
  send_cq_.attach(this);
  if (&send_cq_ == &receive_cq_) return;
  try {
    receive_cq_.attach(this);
  } catch (...) {
    send_cq_.detach(this);
    throw;
  }
}

void QueuePair::detach() {
  send_cq_.detach(this);
  if (&send_cq_ != &receive_cq_) receive_cq_.detach(this);
}

// --- Posting ---

std::uint32_t QueuePair::send_room() const {
  const std::uint64_t taken = send_queue_.tail() - sends_released_.load(std::memory_order_acquire);
  return send_queue_.depth() - static_cast<std::uint32_t>(taken);
}

bool QueuePair::hold_posts(std::uint32_t count, std::uint64_t bytes) {
  const bool more = burst_.expects_more(polls(), send_cq_.bursts());
  if (!more || bytes > PostBurst::kLargestHeld) return false;
  if (state() != QpState::kRts || !burst_.hold(count)) return false;
  return flush_follows();
}

bool QueuePair::flush_follows() {
  // Looked at before it is set, because mostly it is.
  if (flush_listed_.load(std::memory_order_seq_cst)) return true;
  if (flush_listed_.exchange(true, std::memory_order_seq_cst)) return true;
  const auto progress = Progress::start();
  if (progress && (*progress)->flush_later(weak_from_this())) return true;
  flush_listed_.store(false, std::memory_order_relaxed);
  return false;
}

void QueuePair::on_flush(bool overdue) {
  flush_listed_.store(false, std::memory_order_seq_cst);
  if (!burst_.holds()) return;
  if (overdue) burst_.forced(polls());
  drive(kTransmit);
}

bool QueuePair::receives_waiting() const {
  return !receive_queue_.empty() || (config_.shared_receives && !config_.shared_receives->empty());
}

// --- Whose turn it is ---

void QueuePair::drive(std::uint32_t work) {
  pending_.fetch_or(work, std::memory_order_seq_cst);
  do {
    {
      const std::unique_lock lock(transport_lock_, std::try_to_lock);
      if (!lock) return;  // the holder looks at pending_ again
      pump(pending_.exchange(0, std::memory_order_acq_rel));
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } while (pending_.load(std::memory_order_relaxed) != 0);
}

// --- What a transport says ---

bool QueuePair::report(std::span<const model::Completion> completions) {
  const auto is_send = [](const model::Completion& completion) { return !completion.receive; };
  const auto sends = static_cast<std::uint64_t>(std::ranges::count_if(completions, is_send));
  const std::uint64_t head = send_queue_.head();
  const std::uint64_t silent = head - std::exchange(sends_drained_, head) - sends;
  if (silent != 0) sends_released_.fetch_add(silent, std::memory_order_release);
  if (completions.empty()) return false;
  if (completions.back().status != model::WcStatus::kSuccess && log_enabled(LogLevel::kInfo)) {
    log_failure(config_.qpn, completions);
  }
  bool lost = false;
  while (!completions.empty() && !destroyed_) {  // destroyed: the queues may be gone
    const bool receive = completions.front().receive;
    const auto end = std::ranges::find(completions, !receive, &model::Completion::receive);
    const auto run = completions.first(static_cast<std::size_t>(end - completions.begin()));
    completions = completions.subspan(run.size());
    if (!push_run(run, receive)) lost = true;
  }
  if (lost && state() != QpState::kError) pending_.fetch_or(kFail, std::memory_order_relaxed);
  return true;
}

// Completions of one side, in one go. False when the queue did not take them all.
bool QueuePair::push_run(std::span<const model::Completion> run, bool receive) {
  CompletionQueue& queue = receive ? receive_cq_ : send_cq_;
  std::uint64_t position = 0;
  const std::size_t taken = queue.push(run, &position, receive ? nullptr : &sends_released_);
  for (std::size_t i = taken; i-- > 0; --position) {
    if (run[i].status != model::WcStatus::kSuccess) continue;
    (receive ? receive_success_ : send_success_) = position;
    last_success_ = now_;
    break;
  }
  return taken == run.size();
}

void QueuePair::announce(model::QpEvent event) {
  const auto progress = Progress::start();
  if (!progress) return;
  (*progress)->defer([observer = observer_, event] {
    if (const auto target = observer.lock()) target->on_qp_event(event);
  });
}

void QueuePair::forget_work() {
  // Before the counts start anew: taking these gives places back.
  send_cq_.discard(config_.qpn);
  receive_cq_.discard(config_.qpn);
  // Nobody posts from here on, and what was posted until here goes.
  state_.store(QpState::kReset, std::memory_order_release);
  std::lock_guard sends(send_lock_);
  std::lock_guard receives(receive_lock_);
  send_queue_.reset();
  sends_released_.store(0, std::memory_order_release);
  sends_drained_ = 0;
  receive_queue_.reset();
}

}  // namespace airdma::runtime
