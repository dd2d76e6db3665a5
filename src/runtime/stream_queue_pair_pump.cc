// SPDX-License-Identifier: MIT
// The data path: engine to socket and back. Everything here but the entry points runs on the thread
// that holds transport_lock_.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "runtime/end_notice.h"
#include "runtime/stream_queue_pair.h"

namespace airdma::runtime {
namespace {

// How long the stream waits for the peer's FIN after ours, and for receives that would take what a
// departed peer has left.
constexpr Duration kLinger = std::chrono::seconds(2);
constexpr Duration kStalledLinger = std::chrono::milliseconds(500);
// One thread serves one stream for at most so many buffers before others get their turn.
constexpr int kBuffersPerTurn = 16;
// Bytes that are read without a large buffer.
constexpr std::size_t kSmallRead = 8192;

/// What is left of `pieces` behind their first `count` bytes.
std::span<iovec> without_front(std::span<iovec> pieces, std::size_t count) {
  while (!pieces.empty() && count >= pieces.front().iov_len) {
    count -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (count != 0) {
    iovec& first = pieces.front();
    first.iov_base = static_cast<std::byte*>(first.iov_base) + count;
    first.iov_len -= count;
  }
  return pieces;
}

}  // namespace

// --- Entry points ---

void StreamQueuePair::sends_posted(std::uint32_t count, std::uint64_t bytes) {
  if (!hold_posts(count, bytes)) drive(kTransmit);
}

void StreamQueuePair::receives_posted() {
  // Pairs with the fence in update_stall(): one of the two sides sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (stalled_.load(std::memory_order_relaxed) || state() == QpState::kError) drive(kReceives);
}

// Most polls find nothing, and how soon an arrival is noticed depends on what they cost: so the
// socket is asked first, and everything else is left out when it has nothing. No mark for a holder
// of the transport: a thread that polls will come again.
void StreamQueuePair::drive_polling() {
  {
    const std::unique_lock lock(transport_lock_, std::try_to_lock);
    if (!lock) return;
    leave_to_poller();
    const Received first = may_receive() ? receive_once() : Received::kNothing;
    const bool idle = first == Received::kNothing && !receive_ended_ && !input_.is_open() &&
                      backlog_.empty() && !endpoint_->may_transmit();
    if (!idle || pending_.load(std::memory_order_relaxed) != 0) {
      const std::uint32_t more = first == Received::kMore ? kReceive | kPoll : 0u;
      pump(pending_.exchange(0, std::memory_order_acq_rel) | more);
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (pending_.load(std::memory_order_relaxed) != 0) drive(0);
}

// What is asked at each poll need not be watched; but a stream that is not read may only hear of
// its end by an event.
void StreamQueuePair::leave_to_poller() {
  if (!polled_.load(std::memory_order_relaxed)) polled_.store(true, std::memory_order_relaxed);
  if (left_to_poller_.load(std::memory_order_relaxed) || !may_receive()) return;
  if (!progress_->delegated()) return;
  // Set first, for the progress thread may end it at once.
  left_to_poller_.store(true, std::memory_order_relaxed);
  if (!progress_->leave_to_poller(watch_)) left_to_poller_.store(false, std::memory_order_relaxed);
}

void StreamQueuePair::on_ready(std::uint32_t events) {
  const bool hang_up = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  const bool readable = hang_up || (events & EPOLLIN) != 0;
  const bool room = (events & EPOLLOUT) != 0;
  drive((readable ? kReceive : 0u) | (hang_up ? kHangUp : 0u) | (room ? kRoom : 0u) | kTransmit);
}

// --- One turn ---

void StreamQueuePair::pump(std::uint32_t work) {
  // What waits for a time waits for milliseconds, and the coarse clock costs a fifth of the other;
  // but who was called for a deadline must see that it has passed.
  now_ = (work & kDeadline) != 0 ? Progress::now() : Progress::coarse_now();
  if ((work & kFail) != 0 && state() != QpState::kReset) endpoint_->fail(now_);
  if ((work & kDeadline) != 0) on_time();
  if ((work & kReceives) != 0) endpoint_->on_receives_posted(now_);
  if ((work & kHangUp) != 0 && socket_) hung_up_ = true;
  if ((work & kRoom) != 0) full_.writable();
  if ((work & kReceive) != 0 && socket_) receive((work & kPoll) != 0);
  if ((work & kHangUp) != 0 && socket_) on_hang_up();
  keep_input();
  transmit();
  drain_completions();
  note_silent_write();
  drain_events();
  update_stream();
  update_stall();
  update_deadline();
}

// With work requests left a completion will come, and a program that sleeps hears of that.
void StreamQueuePair::note_silent_write() {
  if (!silent_write_ || destroyed_ || !send_queue_.empty()) return;
  silent_write_ = false;
  if (!receives_waiting()) send_cq_.note_silent_write();
}

void StreamQueuePair::receive(bool stop_at_completion) {
  for (int turn = 0; may_receive(); ++turn) {
    if (turn == kBuffersPerTurn) {
      progress_->serve_later(watch_);
      break;
    }
    const Received result = receive_once();
    const bool completed = drain_completions();
    if (result != Received::kMore) break;
    transmit();
    if (completed && stop_at_completion) {
      progress_->serve_later(watch_);
      break;
    }
  }
  keep_input();
}

StreamQueuePair::Received StreamQueuePair::receive_once() {
  if (!bulk_ && !input_.is_open()) return receive_small();
  // With much to read the next poll is far away.
  progress_->begin_busy();
  receiving_.store(true, std::memory_order_relaxed);
  const Received result = receive_bulk();
  receiving_.store(false, std::memory_order_relaxed);
  progress_->end_busy();
  return result;
}

// Small messages need no large buffer, and borrowing one is two atomic operations.
StreamQueuePair::Received StreamQueuePair::receive_small() {
  std::byte buffer[kSmallRead];
  const auto got = socket_.receive(buffer);
  if (!got) {
    receive_ended(got.error().code);
    return Received::kAll;
  }
  if (*got == 0) return Received::kNothing;
  const Bytes bytes = Bytes(buffer).first(*got);
  const Bytes rest = bytes.subspan(take(bytes, *got));
  if (!rest.empty()) {
    if (input_.open()) {
      std::ranges::copy(rest, input_.room().begin());
      input_.add(rest.size());
    } else {
      endpoint_->on_bytes(rest, now_);
    }
  }
  bulk_ = *got == kSmallRead;
  return bulk_ || hung_up_ ? Received::kMore : Received::kAll;
}

StreamQueuePair::Received StreamQueuePair::receive_bulk() {
  if (!input_.open()) {
    // The socket's edge is used up, so nobody else would come back for its bytes.
    progress_->serve_later(watch_);
    return Received::kNothing;
  }
  const MutableBytes room = input_.room();
  const auto got = socket_.receive(room);
  if (!got) {
    receive_ended(got.error().code);
    return Received::kAll;
  }
  if (*got == 0) return Received::kNothing;
  input_.use(take(input_.add(*got), *got));
  bulk_ = *got > kSmallRead || input_.held() != 0;
  // Edge-triggered epoll reports what arrives after a short read, but not the FIN behind the bytes
  // that it has reported together with them.
  return *got < room.size() && !hung_up_ ? Received::kAll : Received::kMore;
}

std::size_t StreamQueuePair::take(Bytes bytes, std::size_t fresh) {
  bytes_received_ += fresh;
  if (tap_) tap_->received(bytes.last(fresh));
  const std::uint64_t written_before = endpoint_->stats().payload_written;
  const std::size_t used = endpoint_->take_bytes(bytes, now_);
  if (endpoint_->stats().payload_written != written_before) silent_write_ = true;
  return used;
}

// At the end of a turn.
void StreamQueuePair::keep_input() {
  if (!input_.is_open() || input_.rest()) return;
  endpoint_->on_bytes(input_.content(), now_);
  input_.close();
}

void StreamQueuePair::receive_ended(int error) {
  receive_ended_ = true;
  input_.close();
  if (error == ENODATA) {
    endpoint_->on_stream_end(iwarp::StreamEnd::kFin, now_);
    return;
  }
  AIRDMA_LOG_INFO("qp 0x%x: connection lost, errno %d", config_.qpn.value(), error);
  endpoint_->on_stream_end(iwarp::StreamEnd::kReset, now_);
  shutdown_sent_ = true;
  backlog_.clear();
}

void StreamQueuePair::on_hang_up() {
  if (receive_ended_ || endpoint_->wants_input()) return;
  // The peer is gone and its last messages wait for receives that may still be posted. Those that
  // were read already wait in the endpoint, which has the same patience with them.
  linger_until_ = std::min(linger_until_, now_ + kStalledLinger);
}

// --- Sending ---

void StreamQueuePair::transmit() {
  burst_.release();
  if (!socket_ || !flush_backlog()) return;
  // Asked first: most polls find nothing to send.
  while (endpoint_->may_transmit()) {
    IoBuffer buffer = IoBuffer::borrow();
    if (!buffer) return progress_->serve_later(watch_);
    if (!(gathers_ ? transmit_gathered(std::move(buffer)) : transmit_once(std::move(buffer))))
      return;
  }
}

// These two: true when there may be more to send, and the socket takes it.
bool StreamQueuePair::transmit_once(IoBuffer buffer) {
  const std::size_t framed = endpoint_->poll_transmit(buffer.bytes(), now_);
  if (framed == 0) return false;
  std::size_t sent = 0;
  if (!send_some(Bytes(buffer.bytes()).first(framed), sent)) return false;
  if (sent == framed) return true;
  backlog_.adopt(std::move(buffer), sent, framed);
  return false;
}

bool StreamQueuePair::transmit_gathered(IoBuffer buffer) {
  gather_.start(buffer.bytes());
  const std::size_t framed = endpoint_->poll_transmit(gather_, now_);
  const bool sent = framed != 0 && send_pieces();
  gather_.clear();
  return sent;
}

// True when nothing is left over from earlier.
bool StreamQueuePair::flush_backlog() {
  if (!backlog_.empty() && !full_.may_try()) return false;
  while (!backlog_.empty()) {
    const Bytes rest = backlog_.front();
    std::size_t sent = 0;
    if (!send_some(rest, sent)) return false;
    backlog_.use(sent);
    if (sent < rest.size()) return false;
  }
  return true;
}

// Sends until the socket is full, so that its next EPOLLOUT is an edge. False when the stream
// broke.
bool StreamQueuePair::send_some(Bytes bytes, std::size_t& sent) {
  sent = 0;
  while (sent < bytes.size()) {
    const auto taken = socket_.send(bytes.subspan(sent));
    if (!taken) {
      send_failed(taken.error().code);
      return false;
    }
    if (*taken == 0) {
      full_.refused(sent != 0);
      break;
    }
    if (tap_) tap_->sent(bytes.subspan(sent, *taken));
    sent += *taken;
    bytes_sent_ += *taken;
    endpoint_->on_transmitted(*taken, now_);
  }
  return true;
}

void StreamQueuePair::send_failed(int error) {
  // Bytes of the peer (a Terminate, say) may still wait to be read, unless it reset the stream.
  receive(false);
  if (!receive_ended_) receive_ended(error);
  shutdown_sent_ = true;
  backlog_.clear();
}

// What was gathered; what the socket does not take is copied, so that nobody waits for the pins.
bool StreamQueuePair::send_pieces() {
  iovec pieces[iwarp::Gather::kMostPieces];
  const auto gathered = gather_.pieces();
  std::ranges::transform(gathered, pieces, [](const iwarp::Gather::Piece& piece) {
    return iovec{const_cast<std::byte*>(piece.bytes.data()), piece.bytes.size()};
  });
  std::span<iovec> rest = std::span(pieces).first(gathered.size());
  while (!rest.empty()) {
    const auto taken = socket_.send(rest);
    if (!taken && taken.error().code != EFAULT) {
      send_failed(taken.error().code);
      return false;
    }
    if (!taken) {
      payload_lost();
      return false;
    }
    if (*taken == 0) {
      full_.refused(true);
      if (!keep_rest(rest)) payload_lost();
      return false;
    }
    bytes_sent_ += *taken;
    rest = without_front(rest, *taken);
    endpoint_->on_transmitted(*taken, now_);
  }
  return true;
}

bool StreamQueuePair::keep_rest(std::span<const iovec> pieces) {
  return std::ranges::all_of(pieces, [this](const iovec& piece) {
    return backlog_.append({static_cast<const std::byte*>(piece.iov_base), piece.iov_len});
  });
}

// Nothing can follow the front of an FPDU whose rest is gone.
void StreamQueuePair::payload_lost() {
  backlog_.clear();
  shutdown_sent_ = true;
  endpoint_->on_payload_lost(now_);
}

// --- What the engine says ---

bool StreamQueuePair::drain_completions() {
  const bool any = report(endpoint_->completions());
  if (any) endpoint_->clear_completions();
  return any;
}

void StreamQueuePair::drain_events() {
  while (const auto event = endpoint_->poll_event()) announce(*event);
}

void StreamQueuePair::update_stall() {
  if (endpoint_->state() == iwarp::EndpointState::kError) {
    // Pairs with the fence in receives_posted(): who posted behind the flush, and before the state
    // said ERR, counts on this.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!receive_queue_.empty()) pending_.fetch_or(kReceives, std::memory_order_relaxed);
  }
  update_pause();
  if (!socket_ || !endpoint_->wants_receives()) {
    if (stalled_.load(std::memory_order_relaxed)) {
      stalled_.store(false, std::memory_order_relaxed);
      if (config_.shared_receives) config_.shared_receives->cancel(shared_wait_);
    }
    return;
  }
  stalled_.store(true, std::memory_order_relaxed);
  if (config_.shared_receives) {
    if (!config_.shared_receives->wait(shared_wait_)) pending_.fetch_or(kReceives);
    return;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!receive_queue_.empty()) pending_.fetch_or(kReceives, std::memory_order_relaxed);
}

void StreamQueuePair::update_pause() {
  const bool paused = socket_ && !endpoint_->wants_input();
  if (std::exchange(paused_, paused) && !paused) {
    if (endpoint_->stream_request() == iwarp::StreamRequest::kKeep) linger_until_ = Time::max();
    pending_.fetch_or(kReceive, std::memory_order_relaxed);
  }
  if (paused && left_to_poller_.load(std::memory_order_relaxed)) progress_->watch_again(watch_);
  if (paused && hung_up_) on_hang_up();
}

// --- The end of a stream ---

void StreamQueuePair::update_stream() {
  if (endpoint_->state() == iwarp::EndpointState::kError && state() != QpState::kReset) {
    state_.store(QpState::kError, std::memory_order_release);
  }
  if (!socket_) return;
  switch (endpoint_->stream_request()) {
    case iwarp::StreamRequest::kKeep:
      return;
    case iwarp::StreamRequest::kAbort:
      close_stream(true);
      return;
    case iwarp::StreamRequest::kShutdown:
      finish_sending();
      return;
  }
}

void StreamQueuePair::finish_sending() {
  if (!shutdown_sent_ && backlog_.empty()) {
    socket_.shutdown_send();
    shutdown_sent_ = true;
  }
  if (linger_until_ == Time::max()) {
    linger_until_ = now_ + kLinger;
    pending_.fetch_or(kReceive, std::memory_order_relaxed);
  }
  if (shutdown_sent_ && receive_ended_) close_stream(false);
}

void StreamQueuePair::close_stream(bool reset) {
  progress_->remove(watch_);
  watch_ = 0;
  if (tap_) tap_->closed(reset);
  tap_.reset();
  if (reset) {
    socket_.abort();
  } else {
    socket_.close();
  }
  backlog_.clear();
  if (!receive_ended_) endpoint_->on_stream_end(iwarp::StreamEnd::kReset, now_);
  drain_completions();
  log_closed();
  input_.close();
  bulk_ = false;
  full_.writable();
  receive_ended_ = shutdown_sent_ = hung_up_ = false;
  linger_until_ = deadline_set_ = Time::max();
  bytes_sent_ = bytes_received_ = 0;
  announce_end();
}

void StreamQueuePair::announce_end() {
  const bool at_once = ended_here_ || last_success_ + EndNotice::kLongest < now_;
  ended_here_ = false;
  if (!at_once) {
    const auto self = std::static_pointer_cast<StreamQueuePair>(weak_from_this().lock());
    EndNotice::start(*progress_, self, std::move(stream_observer_));
    return;
  }
  progress_->defer([observer = std::move(stream_observer_)] {
    if (const auto target = observer.lock()) target->on_stream_closed();
  });
}

void StreamQueuePair::log_closed() const {
  const iwarp::EndpointStats& stats = endpoint_->stats();
  AIRDMA_LOG_INFO(
      "qp 0x%x closed: sent %llu bytes, received %llu bytes, payload out %llu, payload in %llu%s%s",
      config_.qpn.value(), static_cast<unsigned long long>(bytes_sent_),
      static_cast<unsigned long long>(bytes_received_),
      static_cast<unsigned long long>(stats.payload_sent),
      static_cast<unsigned long long>(stats.payload_received), *endpoint_->failure() ? "; " : "",
      endpoint_->failure());
}

// --- Time ---

void StreamQueuePair::on_time() {
  deadline_set_ = Time::max();
  endpoint_->on_deadline(now_);
  if (!socket_ || now_ < linger_until_) return;
  if (endpoint_->stream_request() == iwarp::StreamRequest::kKeep) {
    receive_ended(ENODATA);  // nobody posted the receives
    linger_until_ = now_ + kLinger;
  } else {
    // What the peer's TCP has not taken by now meets a program that posts no receives and may be
    // waiting for just this end; a FIN would stay behind it for minutes. A reset gets through, and
    // leaves the peer what it has in its socket.
    close_stream(!shutdown_sent_ || socket_.has_unacknowledged());
  }
}

void StreamQueuePair::update_deadline() {
  if (!socket_) return;
  const Time next = std::min(endpoint_->next_deadline().value_or(Time::max()), linger_until_);
  if (next == deadline_set_) return;
  deadline_set_ = next;
  progress_->set_deadline(watch_, next);
}

}  // namespace airdma::runtime
