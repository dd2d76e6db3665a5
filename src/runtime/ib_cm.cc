// SPDX-License-Identifier: MIT
#include "runtime/ib_cm.h"

#include <netinet/in.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/memory_reserve.h"
#include "base/process_global.h"
#include "engine/rocev2/attributes.h"
#include "io/address.h"
#include "wire/mad.h"

namespace airdma::runtime {
namespace {

using ibcm::CommunicationId;
using ibcm::EventKind;

struct Holder {
  std::mutex mutex;
  std::shared_ptr<IbCm> manager;
};

/// Processes that follow one another with the same block begin at different ids.
std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) {
    seed = static_cast<std::uint64_t>(Progress::now().time_since_epoch().count());
  }
  return seed;
}

/// A link-local address means nothing without its interface.
std::uint32_t interface_of(const model::Gid& local) {
  if (local.is_v4() || !local.is_link_local()) return 0;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  std::memcpy(&address.sin6_addr, local.bytes.data(), local.bytes.size());
  const auto known = io::Address::from(reinterpret_cast<const sockaddr*>(&address));
  return known ? io::interface_of(*known).value_or(0) : 0;
}

model::AddressVector way_back(const rocev2::PacketOrigin& origin) {
  model::AddressVector path;
  path.source = origin.destination;
  path.destination = origin.source;
  path.interface_index = interface_of(origin.destination);
  path.traffic_class = origin.traffic_class & 0xfc;  // without the mark of congestion
  return path;
}

/// The last of its connection or lookup.
bool is_last(EventKind kind) {
  switch (kind) {
    case EventKind::kRequestLost:
    case EventKind::kRejected:
    case EventKind::kUnreachable:
    case EventKind::kTimewaitOver:
    case EventKind::kLookupAnswered:
    case EventKind::kLookupUnreachable:
      return true;
    case EventKind::kRequest:
    case EventKind::kReply:
    case EventKind::kEstablished:
    case EventKind::kDisconnected:
    case EventKind::kLookup:
      return false;
  }
  return false;
}

/// A program that ends without a word would leave its peers in the belief that they are connected.
[[gnu::destructor]] void leave() { IbCm::say_goodbye(); }

Status status_of(bool done) { return done ? Status{} : fail(EINVAL); }

}  // namespace

Result<std::shared_ptr<IbCm>> IbCm::get() {
  Holder& holder = ProcessGlobal<Holder>::get();
  std::lock_guard lock(holder.mutex);
  if (holder.manager) return holder.manager;
  const auto progress = Progress::start();
  if (!progress) return std::unexpected(progress.error());
  const auto block = RocePort::get().first_block();
  if (!block) return std::unexpected(block.error());
  std::shared_ptr<IbCm> manager(new IbCm(**progress, *block, random_seed()));
  if (auto started = manager->start(); !started) return std::unexpected(started.error());
  holder.manager = manager;
  return manager;
}

IbCm::IbCm(Progress& progress, std::uint32_t id_block, std::uint64_t seed)
    : progress_(progress), manager_({.id_block = id_block, .seed = seed}) {}

Status IbCm::start() {
  const auto watch = progress_.add_control(Progress::kNoDescriptor, shared_from_this());
  if (!watch) return std::unexpected(watch.error());
  watch_ = *watch;
  RocePort::get().set_mad_sink(weak_from_this());
  return {};
}

// At the end of the process nothing may be waited for: a thread that is at work in here stays so.
void IbCm::say_goodbye() {
  Holder* holder = ProcessGlobal<Holder>::peek();
  if (holder == nullptr || !holder->mutex.try_lock()) return;
  const std::shared_ptr<IbCm> manager = holder->manager;
  holder->mutex.unlock();
  if (!manager || !manager->mutex_.try_lock()) return;
  manager->manager_.release_all(Progress::now());
  auto mads = manager->take_mads();
  manager->mutex_.unlock();
  for (const ibcm::OutMad& mad : mads) {
    [[maybe_unused]] const auto sent = RocePort::get().send_mad(mad.bytes, mad.destination);
  }
}

template <class Use>
auto IbCm::with_manager(Use use) {
  const MustNotRunOut memory;  // half a connection would be left
  std::unique_lock lock(mutex_);
  auto result = use(manager_);
  take_events();
  update_deadline();
  auto mads = take_mads();
  lock.unlock();
  transmit(std::move(mads));
  return result;
}

void IbCm::take_events() {
  while (auto event = manager_.poll_event()) events_.push_back(*event);
  if (events_.empty() || std::exchange(dispatching_, true)) return;
  progress_.defer([self = shared_from_this()] { self->dispatch(); });
}

void IbCm::update_deadline() {
  const Time wanted = manager_.next_deadline().value_or(Time::max());
  if (wanted == deadline_) return;
  deadline_ = wanted;
  progress_.set_deadline(watch_, wanted);
}

std::deque<ibcm::OutMad> IbCm::take_mads() {
  std::deque<ibcm::OutMad> mads;
  while (auto mad = manager_.poll_transmit()) mads.push_back(*mad);
  return mads;
}

// Without the lock: what is sent to this very process may come back in here. What cannot be sent
// now is as good as lost, and is sent again.
void IbCm::transmit(std::deque<ibcm::OutMad> mads) {
  for (const ibcm::OutMad& mad : mads) {
    const auto sent = RocePort::get().send_mad(mad.bytes, mad.destination);
    if (sent) continue;
    AIRDMA_LOG_DEBUG("connection manager: datagram not sent, errno %d", sent.error().code);
    if (sent.error().code != ECONNREFUSED || mad.id == CommunicationId{}) continue;
    with_manager([&](ibcm::Manager& manager) {
      manager.on_refused(mad.id, Progress::now());
      return 0;
    });
  }
}

std::shared_ptr<IbObserver> IbCm::observer_of(const ibcm::Event& event) {
  const auto own = observers_.find(event.id.value());
  if (own != observers_.end()) return own->second.lock();
  const auto listener = listeners_.find(event.listener.value());
  return listener != listeners_.end() ? listener->second.lock() : nullptr;
}

void IbCm::dispatch() {
  while (true) {
    ibcm::Event event;
    std::shared_ptr<IbObserver> observer;
    {
      std::lock_guard lock(mutex_);
      if (events_.empty()) {
        dispatching_ = false;
        return;
      }
      event = events_.front();
      events_.pop_front();
      observer = observer_of(event);
      if (is_last(event.kind)) observers_.erase(event.id.value());
    }
    if (observer) {
      observer->on_ib_event(event);
    } else if (!is_last(event.kind)) {
      release(event.id);
    }
  }
}

void IbCm::on_mad(Bytes mad, const rocev2::PacketOrigin& origin, Qpn source) {
  if (source != wire::kManagementQpn) return;
  with_manager([&](ibcm::Manager& manager) {
    manager.on_mad(mad, way_back(origin), Progress::now());
    return 0;
  });
}

// The kernel would say so for a process that was killed. To other hosts nobody does.
void IbCm::on_process_gone(std::uint32_t block) {
  std::vector<std::pair<CommunicationId, model::Gid>> peers;
  {
    std::lock_guard lock(mutex_);
    peers = manager_.peers_of(block);
  }
  for (const auto& [id, address] : peers) {
    if (!RocePort::get().is_local(address)) continue;
    with_manager([&](ibcm::Manager& manager) {
      manager.on_peer_gone(id, Progress::now());
      return 0;
    });
  }
}

void IbCm::on_deadline() {
  with_manager([&](ibcm::Manager& manager) {
    deadline_ = Time::max();  // the progress thread has forgotten it
    manager.on_deadline(Progress::now());
    return 0;
  });
}

// Calls.

Result<CommunicationId> IbCm::connect(const ibcm::ConnectParams& params,
                                      std::weak_ptr<IbObserver> observer) {
  if (params.private_data.size() > wire::kReqPrivateBytes) return fail(EINVAL, "connect");
  const auto id = with_manager([&](ibcm::Manager& manager) {
    const auto fresh = manager.connect(params, Progress::now());
    if (fresh) observers_[fresh->value()] = std::move(observer);
    return fresh;
  });
  if (!id) return fail(EAGAIN, "connect");
  return *id;
}

Status IbCm::ready(CommunicationId id, Bytes private_data) {
  return status_of(
      with_manager([&](ibcm::Manager& manager) { return manager.ready(id, private_data); }));
}

Status IbCm::accept(CommunicationId id, const ibcm::AcceptParams& params) {
  return status_of(with_manager(
      [&](ibcm::Manager& manager) { return manager.accept(id, params, Progress::now()); }));
}

Status IbCm::reject(CommunicationId id, wire::CmRejectReason reason, Bytes additional,
                    Bytes private_data) {
  return status_of(with_manager([&](ibcm::Manager& manager) {
    return manager.reject(id, reason, additional, private_data, Progress::now());
  }));
}

Status IbCm::disconnect(CommunicationId id) {
  return status_of(with_manager(
      [&](ibcm::Manager& manager) { return manager.disconnect(id, {}, Progress::now()); }));
}

void IbCm::traffic_seen(CommunicationId id) {
  with_manager([&](ibcm::Manager& manager) { return manager.traffic_seen(id); });
}

void IbCm::release(CommunicationId id) {
  with_manager([&](ibcm::Manager& manager) {
    manager.release(id, Progress::now());
    observers_.erase(id.value());
    std::erase_if(events_, [&](const ibcm::Event& event) { return event.id == id; });
    return 0;
  });
}

void IbCm::observe(CommunicationId id, std::weak_ptr<IbObserver> observer) {
  std::lock_guard lock(mutex_);
  observers_[id.value()] = std::move(observer);
}

ibcm::ListenerId IbCm::listen(ibcm::ServiceId service, const model::AddressScope& scope,
                              std::size_t most_pending, std::weak_ptr<IbObserver> observer) {
  return with_manager([&](ibcm::Manager& manager) {
    const auto listener = manager.listen(service, scope, most_pending);
    listeners_[listener.value()] = std::move(observer);
    return listener;
  });
}

void IbCm::stop_listening(ibcm::ListenerId listener) {
  with_manager([&](ibcm::Manager& manager) {
    manager.stop_listening(listener, Progress::now());
    listeners_.erase(listener.value());
    return 0;
  });
}

Result<CommunicationId> IbCm::look_up(const ibcm::LookupParams& params,
                                      std::weak_ptr<IbObserver> observer) {
  if (params.private_data.size() > wire::kSidrReqPrivateBytes) return fail(EINVAL, "connect");
  const auto id = with_manager([&](ibcm::Manager& manager) {
    const auto fresh = manager.look_up(params, Progress::now());
    if (fresh) observers_[fresh->value()] = std::move(observer);
    return fresh;
  });
  if (!id) return fail(EAGAIN, "connect");
  return *id;
}

Status IbCm::answer(CommunicationId id, const ibcm::LookupAnswer& answer) {
  return status_of(with_manager(
      [&](ibcm::Manager& manager) { return manager.answer(id, answer, Progress::now()); }));
}

}  // namespace airdma::runtime
