// SPDX-License-Identifier: MIT
// Ways to the other processes of this host, and to this one: a connection to the owner of each
// block of queue pair numbers that packets were sent to. Messages carry what would be the payload
// of UDP datagrams (local_message.h). A process that does not read what it is sent, because it is
// stopped, fills its own connection and nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/spin_lock.h"
#include "engine/rocev2/attributes.h"
#include "io/local_socket.h"
#include "runtime/frame.h"
#include "runtime/progress.h"
#include "runtime/send_outcome.h"

namespace airdma::runtime {

class PacketSink;
class LocalPeer;

/// Thread-safe.
class LocalPeers : public std::enable_shared_from_this<LocalPeers> {
 public:
  explicit LocalPeers(Progress& progress) : progress_(progress) {}

  /// Sends frames for one block, kMaxFrames at most. `strayed`: they came here by UDP. EACCES: the
  /// block's owner is another user's process.
  Result<SendOutcome> send(const rocev2::PacketOrigin& origin, std::uint32_t block,
                           std::span<const Frame> frames, bool strayed = false);
  /// Calls at once (on the progress thread) when there is no such way.
  void call_when_writable(std::uint32_t block, std::weak_ptr<PacketSink> sink);
  /// For threads that poll: lets those try again that wait for room.
  void retry() {
    if (waiting_.load(std::memory_order_relaxed) != 0) retry_waiting();
  }
  /// Sends one frame to whoever listens at the name, by a connection of its own. Errors:
  /// ECONNREFUSED (nobody), EACCES, EAGAIN.
  static Status send_once(std::string_view name, const rocev2::PacketOrigin& origin,
                          const Frame& frame);

 private:
  friend class LocalPeer;
  std::shared_ptr<LocalPeer> find(std::uint32_t block);
  Result<std::shared_ptr<LocalPeer>> get(std::uint32_t block);
  void renew(std::uint32_t block, io::LocalConnection connection);
  void forget(std::uint32_t block, const LocalPeer* peer);
  void retry_waiting();

  Progress& progress_;
  std::mutex connect_mutex_;             // two threads do not connect to one peer
  std::atomic<std::size_t> waiting_{0};  // for room, of all peers
  SpinLock lock_;
  std::unordered_map<std::uint32_t, std::shared_ptr<LocalPeer>> peers_;
};

}  // namespace airdma::runtime
