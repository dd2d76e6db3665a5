// SPDX-License-Identifier: MIT
#include "runtime/steering.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"

namespace airdma::runtime {
namespace {

// Long enough for what happens together to be looked at once.
constexpr Duration kPause = std::chrono::milliseconds(2);
// When the own index could not be found, it is looked for a few times more, at growing distances.
constexpr int kMostFailures = 8;
// A process that ends closes its name and its sockets in an order that nobody promises, and
// anything may come in between.
constexpr int kLooksAfterAnEnd = 3;
// How long a probe may take that another thread receives.
constexpr Duration kProbeWait = std::chrono::milliseconds(2);
constexpr int kMostRounds = 4;
constexpr Duration kLongestStrayPause = std::chrono::seconds(1);
// Limit: processes that this one watches, a descriptor each. Of others it hears when packets go
// astray.
constexpr std::size_t kMostWatches = 128;
// Sockets of the port that a search goes through when those that are known do not suffice.
constexpr std::size_t kLongSearch = 256;

std::uint64_t random_number() {
  std::uint64_t value = 0;
  [[maybe_unused]] const ssize_t got = ::getrandom(&value, sizeof value, GRND_NONBLOCK);
  return value;
}

}  // namespace

/// A connection to the name of another process. Nothing comes by it but its end.
class SteeringWatch final : public Pollable, public std::enable_shared_from_this<SteeringWatch> {
 public:
  SteeringWatch(std::weak_ptr<Steering> steering, std::string name, io::LocalConnection connection)
      : steering_(std::move(steering)),
        name_(std::move(name)),
        connection_(std::move(connection)) {}

  // With the mutex of the steering, so that id_ is there when the end is told of.
  Status begin(Progress& progress) {
    const auto id = progress.add_control(connection_.fd(), shared_from_this(), EPOLLRDHUP);
    if (!id) return std::unexpected(id.error());
    id_ = *id;
    return {};
  }
  void end(Progress& progress) { progress.remove(std::exchange(id_, 0)); }

  void on_ready(std::uint32_t) override {
    if (const auto steering = steering_.lock()) steering->on_watch_ended(name_, this);
  }
  void on_deadline() override {}

 private:
  const std::weak_ptr<Steering> steering_;
  const std::string name_;
  io::LocalConnection connection_;
  WatchId id_ = 0;
};

Result<std::shared_ptr<Steering>> Steering::create(Progress& progress, SteeredSockets& sockets) {
  std::shared_ptr<Steering> steering(new Steering(progress, sockets));
  const auto timer = progress.add_control(Progress::kNoDescriptor, steering);
  if (!timer) return std::unexpected(timer.error());
  steering->timer_ = *timer;
  return steering;
}

Steering::Steering(Progress& progress, SteeredSockets& sockets)
    : progress_(progress),
      sockets_(sockets),
      self_(random_number()),
      stray_pause_(kPause),
      found_{kUnknown, kUnknown},
      index_{kUnknown, kUnknown} {}

void Steering::suspect() {
  if (scheduled_.exchange(true)) return;
  progress_.set_deadline(timer_, Progress::now() + kPause);
}

void Steering::suspect_stray() {
  const Time now = Progress::coarse_now();
  if (now < stray_after_.load(std::memory_order_relaxed)) return;
  const Duration pause = stray_pause_.load(std::memory_order_relaxed);
  stray_after_.store(now + pause, std::memory_order_relaxed);
  stray_pause_.store(std::min(2 * pause, kLongestStrayPause), std::memory_order_relaxed);
  suspect();
}

void Steering::on_deadline() {
  scheduled_.store(false);
  check();
}

void Steering::check() {
  std::lock_guard lock(mutex_);
  look();
}

void Steering::look() {
  SteeringTable table = read_table();
  attach(table);
  SteeringIndices indices;
  for (const bool v6 : {false, true}) {
    auto& index = v6 ? indices.v6 : indices.v4;
    if (sockets_.is_open(v6)) index = find_index(v6, table.blocks.size());
    index_[v6].store(index.value_or(kUnknown));
  }
  publish(indices);
  bool attached = false;
  for (int round = 0; round < kMostRounds; ++round) {
    table = read_table();
    attached = attach(table);
    if (read_table() == table) break;
  }
  steered_[0].store(attached && indices.v4);
  steered_[1].store(attached && indices.v6);
  if (table != last_) stray_pause_.store(kPause, std::memory_order_relaxed);
  last_ = std::move(table);
  accept_watchers();
  const bool lost =
      (sockets_.is_open(false) && !indices.v4) || (sockets_.is_open(true) && !indices.v6);
  look_again_later(lost);
  AIRDMA_LOG_DEBUG("steering: %zu blocks, index %d/%d, attached %d", last_.blocks.size(),
                   static_cast<int>(index_[0].load()), static_cast<int>(index_[1].load()),
                   attached);
}

void Steering::look_again_later(bool lost) {
  failures_ = lost ? failures_ + 1 : 0;
  int doublings = 0;
  if (failures_ > 0 && failures_ < kMostFailures) {
    doublings = failures_;
  } else if (looks_left_ > 0) {
    doublings = 2 * (kLooksAfterAnEnd - --looks_left_);
  } else {
    return;
  }
  if (scheduled_.exchange(true)) return;
  progress_.set_deadline(timer_, Progress::now() + kPause * (1 << doublings));
}

// --- The others ---

// Without names that other users hold.
SteeringTable Steering::read_table() {
  SteeringTable table = SteeringTable::read();
  watch(table);
  if (watches_.size() >= kMostWatches) return table;
  std::erase_if(table.blocks, [this](const SteeringTable::Block& entry) {
    return !published_.contains(entry.name) && !watches_.contains(entry.name);
  });
  return table;
}

void Steering::watch(const SteeringTable& table) {
  for (const auto& entry : table.blocks) {
    if (watches_.size() >= kMostWatches) return;
    if (published_.contains(entry.name) || watches_.contains(entry.name)) continue;
    auto connection = io::LocalConnection::connect(entry.name);
    if (!connection) continue;  // gone meanwhile, or another user's
    auto watch =
        std::make_shared<SteeringWatch>(weak_from_this(), entry.name, std::move(*connection));
    if (watch->begin(progress_)) watches_.emplace(entry.name, std::move(watch));
  }
}

void Steering::on_watch_ended(const std::string& name, const SteeringWatch* ended) {
  {
    std::lock_guard lock(mutex_);
    const auto found = watches_.find(name);
    if (found == watches_.end() || found->second.get() != ended) return;
    found->second->end(progress_);
    watches_.erase(found);
    looks_left_ = kLooksAfterAnEnd;
  }
  suspect();
}

// Connections of others to the own names say nothing but that they are watched. Taking them in and
// dropping those that have ended keeps room for more.
void Steering::accept_watchers() {
  std::erase_if(watchers_, [](const io::LocalConnection& watcher) { return watcher.ended(); });
  for (auto& [name, listener] : published_) {
    while (auto watcher = listener.accept()) watchers_.push_back(std::move(*watcher));
  }
}

// --- The program ---

bool Steering::attach(const SteeringTable& table) {
  bool attached = true;
  for (const bool v6 : {false, true}) {
    if (!sockets_.is_open(v6)) continue;
    const auto status = sockets_.steer(v6, steering_program(table, v6));
    if (status) continue;
    AIRDMA_LOG_INFO("steering: cannot attach a program, errno %d", status.error().code);
    attached = false;
  }
  return attached;
}

// --- The own index ---

std::optional<std::uint32_t> Steering::find_index(bool v6, std::size_t members) {
  // An index below the number of sockets reaches just one of them. Above it the kernel chooses.
  const std::uint32_t known = index_[v6].load();
  if (known < members) {
    if (const auto index = probe(v6, known, known + 1)) return index;
  }
  // All sockets that are known, and one more: a new one is the last.
  if (const auto index = probe(v6, 0, members + 1)) return index;
  return probe(v6, 0, members + kLongSearch);
}

// The lowest index whose probe comes here is right: every lower one reached its own socket.
std::optional<std::uint32_t> Steering::probe(bool v6, std::size_t first, std::size_t last) {
  found_[v6].store(kUnknown);
  bool any = false;
  SteeringProbe probe{.sender = self_, .round = round_.fetch_add(1) + 1};
  for (std::size_t index = first; index < last; ++index) {
    probe.index = static_cast<std::uint16_t>(index);
    std::byte packet[SteeringProbe::kBytes];
    probe.write(packet);
    any = sockets_.send_probe(v6, packet) || any;
  }
  if (!any) return std::nullopt;  // the loopback interface is down, or lacks an address
  const Time end = Progress::now() + kProbeWait;
  do {
    sockets_.receive(v6);
    const std::uint32_t found = found_[v6].load();
    if (found != kUnknown) return found;
    ::sched_yield();
  } while (Progress::now() < end);
  return std::nullopt;
}

void Steering::on_probe(bool v6, const SteeringProbe& probe) {
  if (probe.sender != self_) {
    if (probe.index != index_[v6].load()) suspect();
    return;
  }
  if (probe.round != round_.load()) return;
  std::uint32_t lowest = found_[v6].load();
  while (probe.index < lowest && !found_[v6].compare_exchange_weak(lowest, probe.index)) {
  }
}

// The new name first: for a moment both stand, and that is better than none.
void Steering::publish(const SteeringIndices& indices) {
  std::map<std::string, io::LocalListener> names;
  if (indices.v4 || indices.v6) {
    for (const std::uint32_t block : sockets_.blocks()) {
      std::string name = SteeringTable::name_of(block, indices);
      if (const auto known = published_.find(name); known != published_.end()) {
        names.emplace(std::move(name), std::move(known->second));
        continue;
      }
      if (auto listener = io::LocalListener::open(name)) {
        names.emplace(std::move(name), std::move(*listener));
      }
    }
  }
  published_.swap(names);
}

}  // namespace airdma::runtime
