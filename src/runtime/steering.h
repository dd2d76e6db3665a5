// SPDX-License-Identifier: MIT
// Keeps the program that steers packets among the processes of the port in agreement with who they
// are. Every process does this for all; nobody leads, and nobody is waited for.
//
// A process learns the index of its socket by sending itself packets that the program gives to the
// index they name. It publishes what it found as a name, builds the program from all names,
// attaches it, and looks again until the names stay the same. It watches the names of the others:
// who ends, or finds its index changed, closes its name, and all look again. Nothing depends on the
// program being right but speed: a packet for another process is passed on to it, and makes the
// receiver look.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "io/local_socket.h"
#include "runtime/progress.h"
#include "runtime/steering_table.h"

namespace airdma::runtime {

/// What the sockets do for it.
class SteeredSockets {
 public:
  /// This process's blocks of queue pair numbers.
  virtual std::vector<std::uint32_t> blocks() = 0;
  virtual bool is_open(bool v6) = 0;
  virtual Status steer(bool v6, std::span<const sock_filter> program) = 0;
  /// Sends a datagram to this host's port. False when that cannot be done.
  virtual bool send_probe(bool v6, Bytes datagram) = 0;
  /// Receives what has arrived.
  virtual void receive(bool v6) = 0;

 protected:
  ~SteeredSockets() = default;
};

class SteeringWatch;

class Steering final : public Pollable, public std::enable_shared_from_this<Steering> {
 public:
  /// The sockets outlive it.
  static Result<std::shared_ptr<Steering>> create(Progress& progress, SteeredSockets& sockets);

  /// Something does not fit what was found: looks again soon, on the progress thread.
  void suspect();
  /// The same because of a packet that came to another process than its own, in both. Not often,
  /// when looking changes nothing: of a process that is stopped the index cannot be learned.
  void suspect_stray();
  /// Looks now, on this thread.
  void check();
  /// A probe has arrived at a socket of this process.
  void on_probe(bool v6, const SteeringProbe& probe);
  /// Packets of that family are brought to this process by the program.
  [[nodiscard]] bool steered(bool v6) const { return steered_[v6 ? 1 : 0].load(); }

  void on_ready(std::uint32_t) override {}
  void on_deadline() override;

 private:
  friend class SteeringWatch;
  Steering(Progress& progress, SteeredSockets& sockets);

  // With the mutex.
  void look();
  SteeringTable read_table();
  void watch(const SteeringTable& table);
  bool attach(const SteeringTable& table);
  std::optional<std::uint32_t> find_index(bool v6, std::size_t members);
  std::optional<std::uint32_t> probe(bool v6, std::size_t first, std::size_t last);
  void publish(const SteeringIndices& indices);
  void accept_watchers();
  void look_again_later(bool lost);
  void on_watch_ended(const std::string& name, const SteeringWatch* ended);

  Progress& progress_;
  SteeredSockets& sockets_;
  WatchId timer_ = 0;
  const std::uint64_t self_;
  std::atomic<bool> scheduled_{false};
  std::atomic<Time> stray_after_{Time{}};
  std::atomic<Duration> stray_pause_;
  std::array<std::atomic<bool>, 2> steered_{};
  // By family: what probes of the current round have told, and what was published.
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  std::atomic<std::uint64_t> round_{0};
  std::array<std::atomic<std::uint32_t>, 2> found_;
  std::array<std::atomic<std::uint32_t>, 2> index_;

  std::mutex mutex_;    // all below
  int failures_ = 0;    // in a row
  int looks_left_ = 0;  // after the end of another process
  SteeringTable last_;
  std::map<std::string, io::LocalListener> published_;
  std::vector<io::LocalConnection> watchers_;
  std::map<std::string, std::shared_ptr<SteeringWatch>> watches_;
};

}  // namespace airdma::runtime
