// SPDX-License-Identifier: MIT
// Sends packets by UDP: adds the ICRC, and joins packets of equal size into one send that the
// kernel or the network card takes apart again (UDP_SEGMENT). Small packets are copied together;
// of large ones the payload is read twice where it lies, for the ICRC and by the kernel. Memory
// that the program has unmapped is found by the first pass. One socket per process and family, on a
// port of its own: networks spread flows by it, and a receiver's kernel joins what comes from one
// process only.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "io/udp_socket.h"
#include "model/address_vector.h"
#include "runtime/frame.h"
#include "runtime/progress.h"
#include "runtime/send_outcome.h"

namespace airdma::runtime {

class PacketSink;

class UdpSender final : public Pollable, public std::enable_shared_from_this<UdpSender> {
 public:
  /// Errors: EAFNOSUPPORT, EMFILE.
  static Result<std::shared_ptr<UdpSender>> open(Progress& progress, int family);

  /// Sends at most kMaxFrames. `by_interface`: leaves by that of the address vector, whatever the
  /// routes say.
  SendOutcome send(const model::AddressVector& to, bool by_interface,
                   std::span<const Frame> frames);
  /// One datagram that is no RoCEv2 packet. False when it was not sent.
  bool send_probe(const io::Address& to, Bytes datagram);
  void call_when_writable(std::weak_ptr<PacketSink> sink);
  [[nodiscard]] std::uint16_t source_port() const { return socket_.port(); }
  /// Whether any path has taken segments so far, or none was tried.
  [[nodiscard]] bool segments() const { return !refused_.load(std::memory_order_relaxed); }

  void on_ready(std::uint32_t events) override;
  void on_deadline() override {}

 private:
  UdpSender(Progress& progress, io::UdpSocket socket)
      : progress_(progress), socket_(std::move(socket)) {}
  bool takes_segments(const model::Gid& destination);
  void note_refusal(const model::Gid& destination);

  Progress& progress_;
  io::UdpSocket socket_;
  std::atomic<bool> refused_{false};
  SpinLock lock_;  // all below
  // Destinations whose path takes no segments, the latest few.
  std::array<model::Gid, 8> refusing_{};
  std::size_t next_refusing_ = 0;
  WatchId watch_ = 0;
  std::vector<std::weak_ptr<PacketSink>> waiting_;
};

/// The address of a GID, with the port of RoCEv2. `interface_index` becomes the scope where the
/// address needs one.
io::Address address_of(const model::Gid& gid, std::uint32_t interface_index);

}  // namespace airdma::runtime
