// SPDX-License-Identifier: MIT
// Which addresses are this host's, now.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/spin_lock.h"
#include "io/address_watch.h"
#include "model/address_vector.h"
#include "runtime/progress.h"

namespace airdma::runtime {

/// Thread-safe, and cheap to ask.
class LocalAddresses final : public Pollable, public std::enable_shared_from_this<LocalAddresses> {
 public:
  static std::shared_ptr<LocalAddresses> create(Progress& progress);

  [[nodiscard]] bool contains(const model::Gid& gid);
  /// Routes, not the device, say by which interface packets leave: the addresses of the loopback
  /// interface are the host's, wherever its networks are.
  [[nodiscard]] bool is_loopback(std::uint32_t interface_index) const {
    return interface_index == loopback_index();
  }
  [[nodiscard]] std::uint32_t loopback_index() const {
    return loopback_index_.load(std::memory_order_relaxed);
  }

  void on_ready(std::uint32_t events) override;
  void on_deadline() override {}

 private:
  explicit LocalAddresses(Progress& progress) : progress_(progress) {}
  void read();
  void read_if_old();

  Progress& progress_;
  io::AddressEvents events_;
  bool watched_ = false;
  std::atomic<std::uint32_t> loopback_index_{0};
  SpinLock lock_;                 // all below
  std::vector<model::Gid> gids_;  // sorted
  Time read_at_{};
};

}  // namespace airdma::runtime
