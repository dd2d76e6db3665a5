// SPDX-License-Identifier: MIT
// One watch per process, on the progress thread. It knows how each device was when it last told, so
// an event is pushed to all contexts of the device and names what is different.
#include "verbs/port_events.h"

#include <sys/epoll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/process_global.h"
#include "io/address_watch.h"
#include "runtime/progress.h"
#include "verbs/gid_table.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr Duration kSettling = std::chrono::milliseconds(5);

struct PortView {
  bool active = false;
  GidSlots gids;
};

PortView view_of(const Device& device) {
  const auto interface = device.look();
  return {.active = interface && interface->running, .gids = gid_slots(device)};
}

class PortWatch final : public runtime::Pollable {
 public:
  Status start(const std::shared_ptr<PortWatch>& self);
  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  void compare(const Device& device, const std::vector<std::shared_ptr<AsyncEvents>>& listeners);

  io::AddressEvents changes_;
  runtime::Progress* progress_ = nullptr;
  std::atomic<runtime::WatchId> id_{0};
  std::mutex mutex_;
  std::unordered_map<const Device*, PortView> known_;
};

void push(const std::vector<std::shared_ptr<AsyncEvents>>& listeners, ibv_event_type type) {
  ibv_async_event event{};
  event.element.port_num = 1;
  event.event_type = type;
  for (const auto& listener : listeners) listener->push(event);
}

Status PortWatch::start(const std::shared_ptr<PortWatch>& self) {
  const auto devices = list_devices();
  if (!devices) return std::unexpected(devices.error());
  {
    std::lock_guard lock(mutex_);
    for (const Device* device : *devices) known_.emplace(device, view_of(*device));
  }
  if (changes_.fd() < 0) return {};  // nothing to hear here
  const auto progress = runtime::Progress::start();
  if (!progress) return std::unexpected(progress.error());
  const auto added = (*progress)->add_control(changes_.fd(), self, EPOLLIN);
  if (!added) return std::unexpected(added.error());
  progress_ = *progress;
  id_.store(*added, std::memory_order_release);
  return {};
}

/// Where the events of each device's contexts go.
std::unordered_map<const Device*, std::vector<std::shared_ptr<AsyncEvents>>> all_listeners() {
  std::unordered_map<const Device*, std::vector<std::shared_ptr<AsyncEvents>>> found;
  State& all = state();
  std::lock_guard lock(all.control);
  all.contexts.for_each([&](Context& context) {
    if (context.device->roce()) found[context.device].push_back(context.events);
  });
  return found;
}

// A change seldom comes alone, and this socket may hear of it before the one that tells whether the
// list of interfaces is still good.
void PortWatch::on_ready(std::uint32_t) {
  if (!changes_.consume()) return;
  const runtime::WatchId id = id_.load(std::memory_order_acquire);
  if (id != 0) progress_->set_deadline(id, runtime::Progress::now() + kSettling);
}

void PortWatch::on_deadline() {
  for (const auto& [device, listeners] : all_listeners()) compare(*device, listeners);
}

void PortWatch::compare(const Device& device,
                        const std::vector<std::shared_ptr<AsyncEvents>>& listeners) {
  const PortView now = view_of(device);
  std::unique_lock lock(mutex_);
  const auto [entry, fresh] = known_.try_emplace(&device, now);
  const PortView before = std::exchange(entry->second, now);
  lock.unlock();
  if (before.gids != now.gids) push(listeners, IBV_EVENT_GID_CHANGE);
  if (before.active != now.active) {
    push(listeners, now.active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  }
}

struct TheWatch {
  std::mutex mutex;
  std::shared_ptr<PortWatch> watch;
};

}  // namespace

Status watch_ports() {
  TheWatch& the = ProcessGlobal<TheWatch>::get();
  std::lock_guard lock(the.mutex);
  if (the.watch != nullptr) return {};
  auto watch = std::make_shared<PortWatch>();
  if (Status started = watch->start(watch); !started) return started;
  the.watch = std::move(watch);
  return {};
}

}  // namespace airdma::verbs
