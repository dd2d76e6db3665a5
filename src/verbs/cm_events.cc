// SPDX-License-Identifier: MIT
// Event channels: queues of events, with a descriptor that is readable while there are some.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "base/event_wait.h"
#include "base/log.h"
#include "base/memory_reserve.h"
#include "base/process_global.h"
#include "io/raw_calls.h"
#include "runtime/progress.h"
#include "verbs/cm_api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

// A thread takes a count from the descriptor first (there it may block) and the event afterwards,
// so a dropped event's count may be gone already: the thread then finds it void.
void take_back_count(Channel& channel) {
  if (!channel.counter->consume_if_any()) ++channel.void_tokens;
}

void fill(rdma_cm_event& event, const Id& subject, const EventDetails& details, const void* data,
          std::uint8_t length) {
  if (subject.datagram()) {
    rdma_ud_param& ud = event.param.ud;
    ud.private_data = details.context != nullptr ? details.context : data;
    ud.private_data_len = length;
    ud.ah_attr = details.path;
    ud.qp_num = details.qp_num;
    ud.qkey = details.qkey;
    return;
  }
  rdma_conn_param& conn = event.param.conn;
  conn.private_data = data;
  conn.private_data_len = length;
  conn.responder_resources = details.responder_resources;
  conn.initiator_depth = details.initiator_depth;
  conn.flow_control = details.flow_control;
  conn.retry_count = details.retry_count;
  conn.rnr_retry_count = details.rnr_retry_count;
  conn.srq = details.srq;
  conn.qp_num = details.qp_num;
}

bool enqueue(Id& owner, Id& subject, rdma_cm_event_type type, const EventDetails& details) {
  const MustNotRunOut memory;  // a program would wait for a lost event for ever
  if (owner.channel == nullptr) return false;
  Event* event = control().events.create();
  if (event == nullptr) return false;
  event->owner = &owner;
  event->pub.id = &subject.pub;
  event->pub.listen_id = &subject != &owner ? &owner.pub : nullptr;
  event->pub.event = type;
  event->pub.status = details.status;
  const std::size_t length = std::min(details.private_data.size(), event->private_data.size());
  std::copy_n(details.private_data.begin(), length, event->private_data.begin());
  const void* data = length > 0 ? event->private_data.data() : nullptr;
  fill(event->pub, subject, details, data, static_cast<std::uint8_t>(length));
  owner.channel->queue.push_back(event);
  owner.channel->counter->add();
  control().mutex.settle_later(owner.channel->counter);
  return true;
}

bool is_failure(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      return true;
    default:
      return false;
  }
}

bool is_request(const Event& event) { return event.pub.event == RDMA_CM_EVENT_CONNECT_REQUEST; }

Id* new_id_of(const Event& event) { return control().ids.find(event.pub.id); }

/// Ends an event that was taken off its queue without being reported.
void discard(Channel& channel, Event& event) {
  take_back_count(channel);
  if (is_request(event)) {
    --event.owner->unfetched_requests;
    if (Id* fresh = new_id_of(event)) {
      silence(*fresh);
      free_id(*fresh);
    }
  }
  control().events.destroy(&event);
}

/// Removes from the queue what `unwanted` says, and discards it.
template <class Predicate>
std::size_t discard_if(Channel& channel, Predicate unwanted) {
  std::deque<Event*> kept;
  std::deque<Event*> gone;
  for (Event* event : channel.queue) (unwanted(*event) ? gone : kept).push_back(event);
  channel.queue.swap(kept);
  for (Event* event : gone) discard(channel, *event);
  return gone.size();
}

/// The oldest event, once a thread has taken a count; null when that count was void.
Event* take_event(Channel& channel) {
  if (channel.void_tokens > 0) {
    --channel.void_tokens;
    return nullptr;
  }
  if (channel.queue.empty()) return nullptr;
  Event* event = channel.queue.front();
  channel.queue.pop_front();
  ++event->owner->unacked;
  if (is_request(*event)) {
    --event->owner->unfetched_requests;
    event->owner->last_request = event->pub.id;
    admit_waiting(*event->owner);
  }
  return event;
}

// How long a request may wait for the program to begin with the one before it, and how often that
// is looked at at least: the program's sign may be a store to a public field.
constexpr Duration kLongestHold = std::chrono::milliseconds(50);
constexpr long kLookAgainNs = 100'000;

/// No sign yet that the program has begun with the last request that it fetched.
bool untouched_request(const Id& listener) {
  Id* fresh = control().ids.find(listener.last_request);
  if (fresh == nullptr || fresh->state != IdState::kRequested || fresh->pub.qp != nullptr) {
    return false;
  }
  return std::atomic_ref(fresh->pub.context).load(std::memory_order_relaxed) ==
         listener.pub.context;
}

bool must_wait(const rdma_event_channel* handle) {
  const Channel* channel = control().channels.find(handle);
  if (channel == nullptr || channel->queue.empty()) return false;
  const Event& next = *channel->queue.front();
  return is_request(next) && !next.owner->collects_requests && untouched_request(*next.owner);
}

// A thread may hand each request to another one through a single variable: rping -P of rdma-core 44
// does, without a lock, and serves one client twice and another never when two requests come
// faster than its other thread wakes up. From a network they hardly do; on one host they do. So a
// thread that blocks for events gets the next request when the program has begun with the one
// before, or after 50 ms; in that case the program collects requests on purpose, and is not held up
// again at that listener. Those that poll a non-blocking channel never are. Calls that begin with a
// request wake the held thread.
void await_handover(std::unique_lock<ControlMutex>& lock, const rdma_event_channel* handle) {
  if (!must_wait(handle) || (::fcntl(handle->fd, F_GETFL) & O_NONBLOCK) != 0) return;
  ControlMutex& mutex = control().mutex;
  const Time limit = runtime::Progress::now() + kLongestHold;
  while (must_wait(handle) && runtime::Progress::now() < limit) {
    const std::uint32_t seen = mutex.handovers.load(std::memory_order_relaxed);
    ++mutex.handover_sleepers;
    lock.unlock();
    io::raw::sleep_on(mutex.handovers, seen, kLookAgainNs);
    lock.lock();
    --mutex.handover_sleepers;
  }
  if (must_wait(handle)) {
    control().channels.find(handle)->queue.front()->owner->collects_requests = true;
  }
}

// How long the end of a channel waits for its reader, and what that one needs from the beginning of
// its call to its sleep.
constexpr int kMostReaderLooks = 2000;
constexpr long kFallAsleepNs = 2'000'000;

/// The calling thread's number, without asking the kernel each time.
pid_t this_thread() {
  static thread_local pid_t number = 0;
  static std::atomic<bool> registered{false};
  if (number == 0) {
    if (!registered.exchange(true)) on_fork_child([] { number = 0; });
    number = ::gettid();
  }
  return number;
}

bool thread_lives(pid_t thread) { return ::tgkill(::getpid(), thread, 0) == 0; }

bool reader_is_away(const rdma_event_channel* handle) {
  const Channel* channel = control().channels.find(handle);
  return channel != nullptr && channel->reader_away != 0 && channel->reader_away != this_thread() &&
         thread_lives(channel->reader_away);
}

// An event thread tells the main thread of an event, and that one destroys the channel and exits:
// rping does. A kernel's calls take so long that the event thread sleeps in its next call by then,
// where nothing wakes it. Here it might come too late, get EINVAL, and end the program with that.
void await_reader(std::unique_lock<ControlMutex>& lock, const rdma_event_channel* handle) {
  if (!reader_is_away(handle)) return;
  for (int looks = 0; looks < kMostReaderLooks && reader_is_away(handle); ++looks) {
    lock.unlock();
    io::raw::sleep(kLookAgainNs);
    lock.lock();
  }
  lock.unlock();
  io::raw::sleep(kFallAsleepNs);
  lock.lock();
}

/// The live channel behind a handle, whose reader the calling thread is.
Channel* channel_to_read(const rdma_event_channel* handle) {
  Channel* channel = control().channels.find(handle);
  if (channel != nullptr && channel->reader_away == this_thread()) channel->reader_away = 0;
  return channel;
}

/// For a thread whose channel was destroyed while it slept in a call: it goes on sleeping, as with
/// a kernel's channel. rping's event thread would end the program with a failure.
Status sleep_for_ever() {
  EventWait* wait = EventWait::current;
  if (wait == nullptr) return fail(EINVAL);
  wait->state = EventWait::State::kWanted;
  wait->fd = EventWait::kForEver;
  return fail(EINPROGRESS, "wait");
}

/// The channel is not there (any more).
Status channel_gone() {
  const EventWait* wait = EventWait::current;
  const bool slept = wait != nullptr && wait->state == EventWait::State::kDone;
  return slept ? sleep_for_ever() : fail(EINVAL);
}

/// Takes a count from the channel. A call that waits by EventWait does not block in here, and keeps
/// the lock, because its program may destroy the channel meanwhile; one that blocks gives it up.
Status take_count(Channel& channel, std::unique_lock<ControlMutex>& lock) {
  io::EventCounter& counter = *channel.counter;
  if (EventWait::current != nullptr) return counter.consume();
  lock.unlock();
  auto taken = counter.consume();
  lock.lock();
  return taken;
}

}  // namespace

void ControlMutex::settle_later(const std::shared_ptr<io::EventCounter>& counter) {
  const MustNotRunOut memory;
  if (std::find(unsettled_.begin(), unsettled_.end(), counter) == unsettled_.end()) {
    unsettled_.push_back(counter);
  }
}

void ControlMutex::unlock() {
  const bool handover = std::exchange(handover_, false);
  if (handover) handovers.fetch_add(1, std::memory_order_relaxed);
  auto unsettled = std::exchange(unsettled_, {});
  mutex_.unlock();
  if (handover) io::raw::wake_sleepers(handovers);
  for (const auto& counter : unsettled) counter->settle();
}

void note_handover() {
  if (control().mutex.handover_sleepers > 0) control().mutex.tell_handover_later();
}

Result<Channel*> make_channel() {
  auto counter = io::EventCounter::create();
  if (!counter) return std::unexpected(counter.error());
  Channel* channel = control().channels.create();
  if (channel == nullptr) return fail(ENOMEM);
  channel->counter = std::make_shared<io::EventCounter>(std::move(*counter));
  channel->pub.fd = channel->counter->fd();
  return channel;
}

void free_channel(Channel& channel) {
  discard_if(channel, [](const Event&) { return true; });
  control().ids.for_each([&](Id& id) {
    if (id.channel != &channel) return;
    id.channel = nullptr;
    admit_waiting(id);  // turns them away
  });
  control().channels.destroy(&channel);
}

void report(Id& id, rdma_cm_event_type type, const EventDetails& details) {
  if (is_failure(type)) {
    AIRDMA_LOG_INFO("%s -> %s: %s, status %d", source_of(id).text().c_str(),
                    destination_of(id).text().c_str(), event_str(type), details.status);
  }
  enqueue(id, id, type, details);
}

bool report_request(Id& listener, Id& fresh, const EventDetails& details) {
  if (!enqueue(listener, fresh, RDMA_CM_EVENT_CONNECT_REQUEST, details)) return false;
  ++listener.unfetched_requests;
  return true;
}

void drop_events(Id& id) {
  if (id.channel == nullptr) return;
  discard_if(*id.channel, [&](const Event& event) { return event.owner == &id; });
}

void drop_request(const Id& fresh) {
  if (fresh.channel == nullptr) return;
  Id* listener = nullptr;
  for (const Event* event : fresh.channel->queue) {
    if (is_request(*event) && event->pub.id == &fresh.pub) listener = event->owner;
  }
  if (listener == nullptr) return;
  discard_if(*listener->channel,
             [&](const Event& event) { return is_request(event) && event.pub.id == &fresh.pub; });
  admit_waiting(*listener);
}

void move_events(Id& id, Channel* to) {
  Channel* from = id.channel;
  id.channel = to;
  if (from == nullptr || from == to) return;
  std::deque<Event*> kept;
  for (Event* event : from->queue) {
    if (event->owner != &id) {
      kept.push_back(event);
      continue;
    }
    take_back_count(*from);
    to->queue.push_back(event);
    to->counter->add();
    control().mutex.settle_later(to->counter);
    Id* fresh = is_request(*event) ? new_id_of(*event) : nullptr;
    if (fresh == nullptr) continue;
    fresh->channel = to;
    fresh->pub.channel = &to->pub;
  }
  from->queue.swap(kept);
}

void acknowledge(Event& event) {
  --event.owner->unacked;
  Id* subject = control().ids.find(event.pub.id);
  if (subject != nullptr && subject->pub.event == &event.pub) subject->pub.event = nullptr;
  control().events.destroy(&event);
  control().acknowledged.notify_all();
}

Result<rdma_event_channel*> create_event_channel() {
  std::lock_guard lock(control().mutex);
  auto channel = make_channel();
  if (!channel) return std::unexpected(channel.error());
  return &(*channel)->pub;
}

void destroy_event_channel(rdma_event_channel* handle) {
  std::unique_lock lock(control().mutex);
  await_reader(lock, handle);
  if (Channel* channel = control().channels.find(handle)) free_channel(*channel);
}

Status get_cm_event(rdma_event_channel* handle, rdma_cm_event** event) {
  if (event == nullptr) return fail(EINVAL);
  std::unique_lock lock(control().mutex);
  while (true) {
    Channel* channel = channel_to_read(handle);
    if (channel == nullptr) return channel_gone();
    if (auto taken = take_count(*channel, lock); !taken) return taken;
    await_handover(lock, handle);
    if (control().channels.find(handle) == nullptr) return sleep_for_ever();
    if (Event* next = take_event(*channel)) {
      channel->reader_away = this_thread();
      *event = &next->pub;
      return {};
    }
  }
}

Status ack_cm_event(rdma_cm_event* handle) {
  std::lock_guard lock(control().mutex);
  Event* event = control().events.find(handle);
  if (event == nullptr) return fail(EINVAL);
  acknowledge(*event);
  return {};
}

}  // namespace airdma::cm
