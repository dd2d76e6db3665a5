// SPDX-License-Identifier: MIT
#include "runtime/local_addresses.h"

#include <sys/epoll.h>

#include <algorithm>
#include <mutex>

#include "io/address.h"

namespace airdma::runtime {
namespace {

// Where the kernel does not tell of changes.
constexpr Duration kOld = std::chrono::seconds(1);

bool always_local(const model::Gid& gid) {
  if (gid.is_v4()) return gid.v4()[0] == 127;
  constexpr model::Gid kLoopback{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return gid == kLoopback;
}

}  // namespace

std::shared_ptr<LocalAddresses> LocalAddresses::create(Progress& progress) {
  std::shared_ptr<LocalAddresses> addresses(new LocalAddresses(progress));
  if (addresses->events_.fd() >= 0) {
    const auto id = progress.add_control(addresses->events_.fd(), addresses, EPOLLIN);
    addresses->watched_ = static_cast<bool>(id);
  }
  addresses->read();
  return addresses;
}

void LocalAddresses::read() {
  const auto interfaces = io::list_interfaces();
  if (!interfaces) return;
  std::vector<model::Gid> gids;
  for (const io::Interface& one : *interfaces) {
    if (one.loopback) loopback_index_.store(one.index, std::memory_order_relaxed);
    for (const io::Address& address : one.addresses) gids.push_back({address.gid()});
  }
  std::ranges::sort(gids);
  const Time now = Progress::coarse_now();
  std::lock_guard lock(lock_);
  gids_.swap(gids);
  read_at_ = now;
}

void LocalAddresses::read_if_old() {
  bool old = false;
  {
    std::lock_guard lock(lock_);
    old = Progress::coarse_now() - read_at_ > kOld;
  }
  if (old) read();
}

void LocalAddresses::on_ready(std::uint32_t) {
  while (events_.consume()) read();
}

bool LocalAddresses::contains(const model::Gid& gid) {
  if (always_local(gid)) return true;
  if (!watched_) read_if_old();
  std::lock_guard lock(lock_);
  return std::ranges::binary_search(gids_, gid);
}

}  // namespace airdma::runtime
