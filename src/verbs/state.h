// SPDX-License-Identifier: MIT
// The objects behind the handles that programs hold, and the one place that has them all. A fork()
// child starts with an empty State, so its calls on its parent's handles find nothing and fail.
//
// Locks, in order: State::control (creation, destruction, use counts), then an EventGate (events
// handed out and acknowledged). The data path takes neither: it looks up its object and uses that
// object's own queues. Nothing waits for a program or a peer with `control` held.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/object_pool.h"
#include "base/process_global.h"
#include "base/spin_lock.h"
#include "io/fd.h"
#include "model/memory.h"
#include "runtime/completion_queue.h"
#include "runtime/packet_queue_pair.h"
#include "runtime/stream_queue_pair.h"
#include "runtime/xrc_domain.h"
#include "verbs/async_events.h"
#include "verbs/device.h"
#include "verbs/program_memory.h"

namespace airdma::verbs {

struct Context {
  verbs_context pub{};
  Device* device = nullptr;
  std::shared_ptr<AsyncEvents> events;
  io::Fd command;           // cmd_fd: says which context it is to import_device()
  std::uint64_t group = 0;  // of a context and those imported by its cmd_fd: they share handles

  ibv_context* handle() { return &pub.context; }
};

struct Td {
  ibv_td pub{};
  std::uint32_t users = 0;  // parent domains

  ibv_td* handle() { return &pub; }
};

struct Pd {
  ibv_pd pub{};
  Context* context = nullptr;
  PdId id;
  std::uint32_t users = 0;  // regions, windows, queue pairs, shared receive queues, parent domains
  bool shared = false;      // it was imported: others with the same pub.handle are the same domain
  // Of a parent domain:
  Pd* base = nullptr;  // what it extends
  Td* td = nullptr;    // may be null
  ProgramAllocator memory;

  ibv_pd* handle() { return &pub; }
};

/// Device memory is the host's. It lives as long as a handle to it or a region over it.
struct DeviceMemory {
  std::byte* start = nullptr;
  std::size_t bytes = 0;
  std::atomic<std::uint32_t> regions{0};

  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();
};

struct Dm {
  ibv_dm pub{};
  const Device* device = nullptr;
  std::shared_ptr<DeviceMemory> memory;  // imported handles have the same

  ibv_dm* handle() { return &pub; }
};

struct Counters {
  ibv_counters pub{};

  ibv_counters* handle() { return &pub; }
};

struct Mr {
  ibv_mr pub{};
  Pd* pd = nullptr;
  model::Region* region = nullptr;
  std::shared_ptr<void> backing;  // what its memory belongs to, if that is not the program
  bool fixed = false;             // rereg_mr() cannot change it
  bool shared = false;            // it was imported: others have the same region
  bool closing = false;

  ibv_mr* handle() { return &pub; }
};

struct Mw {
  ibv_mw pub{};
  Pd* pd = nullptr;
  model::Region* region = nullptr;

  ibv_mw* handle() { return &pub; }
};

struct Channel {
  ibv_comp_channel pub{};  // refcnt: completion queues that use it
  std::shared_ptr<runtime::CompletionChannel> queue;

  ibv_comp_channel* handle() { return &pub; }
};

/// Events of one object that were fetched, and how many of them were acknowledged.
struct EventLedger {
  std::uint32_t delivered = 0;
  std::uint32_t acked = 0;

  /// A program that acknowledges too often must not make the object's end wait for ever.
  void ack(std::uint32_t count) { acked += std::min(count, delivered - acked); }
  [[nodiscard]] bool settled() const { return delivered == acked; }
};

/// Held from ibv_start_poll to ibv_end_poll: the fields of the completion that is being read are
/// the queue's. A thread that starts a batch within its own is told so and does not wait for
/// itself.
class BatchLock {
 public:
  /// False when this thread holds it.
  bool acquire() {
    const pthread_t self = ::pthread_self();
    for (int spins = 0;; ++spins) {
      pthread_t expected = kNobody;
      if (owner_.compare_exchange_strong(expected, self, std::memory_order_acquire)) return true;
      if (expected == self) return false;
      spins < 128 ? cpu_relax() : static_cast<void>(::sched_yield());
    }
  }
  void release() { owner_.store(kNobody, std::memory_order_release); }
  [[nodiscard]] bool held() const { return owner_.load(std::memory_order_relaxed) != kNobody; }

 private:
  static constexpr pthread_t kNobody = 0;
  std::atomic<pthread_t> owner_{kNobody};
};

struct Cq {
  // Programs that made it with ibv_create_cq know the first part only.
  union {
    ibv_cq_ex ex{};
    ibv_cq pub;
  };
  // Of the batch that is open:
  BatchLock batch;
  model::Completion current;
  runtime::CompletionTime current_time;
  Context* context = nullptr;
  Channel* channel = nullptr;
  Pd* parent_domain = nullptr;  // or null
  ProgramMemory memory;         // of the queue's entries, if it is the parent domain's
  std::unique_ptr<runtime::CompletionQueue> queue;
  std::uint32_t users = 0;  // queue pairs, one for each role
  // Under the object's gate:
  EventLedger completion_events;
  EventLedger async_events;
  bool closing = false;

  ibv_cq* handle() { return &pub; }
  [[nodiscard]] bool settled() const {
    return completion_events.settled() && async_events.settled();
  }
};

// With <infiniband/verbs.h> a cast is all it takes to get from one to the other.
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);
static_assert(offsetof(ibv_cq, async_events_completed) ==
              offsetof(ibv_cq_ex, async_events_completed));

/// Turns a queue pair's events into asynchronous events of its context. The queue pair may report
/// one while it is being destroyed, so it outlives the object it speaks for.
class QpObserver final : public runtime::QueuePairObserver {
 public:
  QpObserver(ibv_qp* qp, std::shared_ptr<AsyncEvents> events)
      : qp_(qp), events_(std::move(events)) {}
  void on_qp_event(model::QpEvent event) override;
  /// No event follows.
  void detach();

 private:
  std::mutex mutex_;
  ibv_qp* qp_;
  std::shared_ptr<AsyncEvents> events_;
};

/// Tells each handle of an XRC target of its events.
class TargetObserver final : public runtime::QueuePairObserver {
 public:
  void on_qp_event(model::QpEvent event) override;
  void add(const std::shared_ptr<QpObserver>& handle);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<QpObserver>> handles_;
};

/// The same of a shared receive queue.
class SrqObserver final : public runtime::SharedReceiveObserver {
 public:
  SrqObserver(ibv_srq* srq, std::shared_ptr<AsyncEvents> events)
      : srq_(srq), events_(std::move(events)) {}
  void on_limit_reached() override;
  /// No event follows.
  void detach();

 private:
  std::mutex mutex_;
  ibv_srq* srq_;
  std::shared_ptr<AsyncEvents> events_;
};

/// Where packets of datagram queue pairs go. The public struct is all that programs see.
struct Ah {
  ibv_ah pub{};
  Pd* pd = nullptr;
  model::AddressVector address;

  ibv_ah* handle() { return &pub; }
};

/// One program's hold on an XRC domain, which others may have too.
struct Xrcd {
  ibv_xrcd pub{};
  Context* context = nullptr;
  std::shared_ptr<runtime::XrcDomain> domain;
  std::uint32_t users = 0;  // shared receive queues and queue pairs

  ibv_xrcd* handle() { return &pub; }
};

struct Srq {
  ibv_srq pub{};
  Context* context = nullptr;
  Pd* pd = nullptr;
  // Of an XRC domain: receives complete on a queue of their own, and messages name them by number.
  Xrcd* xrcd = nullptr;
  Cq* cq = nullptr;
  Srqn number;
  std::shared_ptr<SrqObserver> observer;
  std::shared_ptr<runtime::SharedReceiveQueue> queue;
  std::uint32_t users = 0;  // queue pairs
  // Under the object's gate:
  EventLedger async_events;
  bool closing = false;

  ibv_srq* handle() { return &pub; }
  [[nodiscard]] bool settled() const { return async_events.settled(); }
};

/// Requests between ibv_wr_start and ibv_wr_complete, under the send queue's lock.
struct SendBatch {
  static constexpr int kClosed = EINVAL;

  std::atomic<pthread_t> owner{0};  // the thread that holds the lock, if it is for a batch
  int error = kClosed;              // the first one
  bool begun = false;               // `wr` waits for its data
  bool lacks_peer = false;          // the last slot's datagram or XRC queue is not yet known
  std::uint32_t taken = 0;          // slots filled
  std::uint32_t room = 0;
  std::uint64_t bytes = 0;  // of payload in them
  ibv_send_wr wr{};

  [[nodiscard]] bool is_of_this_thread() const {
    return owner.load(std::memory_order_relaxed) == ::pthread_self();
  }
};

struct Qp {
  // Programs that made it without send operations know the first part only.
  union {
    ibv_qp_ex ex{};
    ibv_qp pub;
  };
  model::QpType type = model::QpType::kRc;
  bool extended = false;       // the program may use ibv_wr_*
  std::uint64_t send_ops = 0;  // IBV_QP_EX_WITH_* that it wanted
  SendBatch batch;
  Context* context = nullptr;
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* receive_cq = nullptr;
  Srq* srq = nullptr;  // where its receives come from, if not from itself
  Xrcd* xrcd = nullptr;
  ibv_qp_cap cap{};
  bool signal_all = false;
  std::shared_ptr<QpObserver> observer;
  std::shared_ptr<runtime::QueuePair> runtime;
  // The same by its kind: one of them is null.
  runtime::StreamQueuePair* stream = nullptr;
  runtime::PacketQueuePair* packets = nullptr;
  struct Group {
    model::Gid gid;
    std::uint32_t interface_index;
    std::uint16_t lid;  // means nothing on Ethernet, but a membership is named by it, too
    friend bool operator==(const Group&, const Group&) = default;
  };
  std::vector<Group> groups;  // multicast groups that it is a member of; with `control`
  // Attributes the program set since RESET.
  std::mutex attributes_mutex;
  ibv_qp_attr attributes{};
  bool moved = false;  // by the program, ever
  // Under the object's gate:
  EventLedger async_events;
  bool closing = false;

  ibv_qp* handle() { return &pub; }
  /// Programs read the field at any time: nothing is written that stands there.
  void show_state(ibv_qp_state now) {
    if (pub.state != now) pub.state = now;
  }
  [[nodiscard]] bool settled() const { return async_events.settled(); }
};

/// Guards the event counts of the objects that hash to it.
struct EventGate {
  std::mutex mutex;
  std::condition_variable acked;
};

/// Regions are recycled and never freed, because a late reader of the key table may still touch the
/// counter of one that was deregistered. Under State::control.
class RegionStore {
 public:
  model::Region* take();
  void give_back(model::Region* region) { free_.push_back(region); }

 private:
  std::vector<std::unique_ptr<model::Region>> all_;
  std::vector<model::Region*> free_;
};

/// Objects alive on one device, against its limits.
struct DeviceUse {
  int pds = 0;
  int regions = 0;
  int windows = 0;
  int cqs = 0;
  int srqs = 0;
  int qps = 0;
  int ahs = 0;
};

/// The target of an XRC connection, which any number of handles may name.
struct XrcTarget {
  std::shared_ptr<runtime::PacketQueuePair> queue_pair;
  std::shared_ptr<runtime::XrcDomain> domain;
  std::shared_ptr<TargetObserver> observer;
  int handles = 0;
};

/// XRC domains that were opened by a file: the same file, by device and inode, is the same domain.
using XrcFiles = std::map<std::pair<dev_t, ino_t>, std::weak_ptr<runtime::XrcDomain>>;

/// Bits from the system's random source, so that neither keys nor numbers can be guessed. Fetched a
/// handful at a time, and forgotten when given out. Its user holds State::control.
class RandomBits {
 public:
  Result<std::uint32_t> take();

 private:
  std::array<std::uint32_t, 32> words_{};
  std::size_t left_ = 0;
};

struct State {
  std::mutex control;
  ObjectPool<Context> contexts;
  ObjectPool<Pd> pds;
  ObjectPool<Td> tds;
  ObjectPool<Dm> dms;
  ObjectPool<Counters> counters;
  ObjectPool<Mr> mrs;
  ObjectPool<Mw> mws;
  ObjectPool<Channel> channels;
  ObjectPool<Cq> cqs;
  ObjectPool<Srq> srqs;
  ObjectPool<Qp> qps;
  ObjectPool<Ah> ahs;
  ObjectPool<Xrcd> xrcds;
  model::MemoryTable memory{[] { ::sched_yield(); }};
  RegionStore regions;
  std::unordered_map<const Device*, DeviceUse> uses;
  // Null while it is being made, and for the targets of XRC connections.
  std::unordered_map<std::uint32_t, Qp*> qpns;
  std::unordered_map<std::uint32_t, Srq*> srqns;
  std::unordered_map<std::uint32_t, XrcTarget> xrc_targets;
  XrcFiles xrc_files;
  /// Of queue pairs that have none for one of their two roles.
  runtime::CompletionQueue no_completions{1, nullptr, nullptr};
  RandomBits random;
  std::uint32_t next_handle = 0;
  std::uint32_t next_pd = 0;
  std::uint64_t next_group = 0;
  std::array<EventGate, 16> gates;

  DeviceUse& use_of(const Context& context) { return uses[context.device]; }
  EventGate& gate_of(const void* handle) {
    return gates[(reinterpret_cast<std::uintptr_t>(handle) >> 6) % gates.size()];
  }

  ObjectPool<Context>& pool(const ibv_context*) { return contexts; }
  ObjectPool<Pd>& pool(const ibv_pd*) { return pds; }
  ObjectPool<Td>& pool(const ibv_td*) { return tds; }
  ObjectPool<Dm>& pool(const ibv_dm*) { return dms; }
  ObjectPool<Counters>& pool(const ibv_counters*) { return counters; }
  ObjectPool<Mr>& pool(const ibv_mr*) { return mrs; }
  ObjectPool<Mw>& pool(const ibv_mw*) { return mws; }
  ObjectPool<Channel>& pool(const ibv_comp_channel*) { return channels; }
  ObjectPool<Cq>& pool(const ibv_cq*) { return cqs; }
  ObjectPool<Srq>& pool(const ibv_srq*) { return srqs; }
  ObjectPool<Qp>& pool(const ibv_qp*) { return qps; }
  ObjectPool<Ah>& pool(const ibv_ah*) { return ahs; }
  ObjectPool<Xrcd>& pool(const ibv_xrcd*) { return xrcds; }
};

inline State& state() { return ProcessGlobal<State>::get(); }

/// The object behind a handle; null when it is not a live one of this process.
template <class Handle>
auto find_object(const Handle* handle) -> decltype(state().pool(handle).find(handle)) {
  State* current = ProcessGlobal<State>::peek();
  return current != nullptr ? current->pool(handle).find(handle) : nullptr;
}

/// The device of a context, one of the parent's included: in a fork() child the questions and the
/// memory that take no more than a device work on it, as programs expect that divide a device's
/// memory among their processes. Null for what is no context.
const Device* device_of(const ibv_context* handle);

// Ends of objects. Called without `control`. `wait`: until events are acknowledged (a context that
// is closed with objects alive does not wait, as nobody may be left to acknowledge).
void tear_down(Qp& qp, bool wait);
void tear_down(Cq& cq, bool wait);
void tear_down(Srq& srq, bool wait);
void tear_down(Mr& mr);
void tear_down(Mw& mw);
void tear_down(Ah& ah);
/// False while something is in it.
bool tear_down(Xrcd& xrcd);

/// Ends the bindings that this queue pair made. With `control` held.
void unbind_windows(State& all, Qpn qpn);

}  // namespace airdma::verbs
