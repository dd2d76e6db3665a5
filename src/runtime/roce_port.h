// SPDX-License-Identifier: MIT
// This process on the RoCEv2 network: its queue pair numbers, its UDP sockets on port 4791, which
// it shares with the other processes of its user, its sockets for packets between processes of the
// host, and QP 1. All RoCEv2 devices of a process have one port of this kind.
//
// Packets to an address of this host go to the owner of the queue pair number by a unix socket and
// never touch UDP. What UDP brings is checked (ICRC) and given to its queue pair, or passed on to
// the process whose it is (docs/decisions/0010).
// Any thread that polls receives; the progress thread does while nobody polls. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "model/address_scope.h"
#include "model/address_vector.h"
#include "runtime/send_outcome.h"

namespace airdma::rocev2 {
class PacketBatch;
struct PacketOrigin;
}  // namespace airdma::rocev2

namespace airdma::runtime {

/// Where a queue pair's packets arrive.
class PacketSink {
 public:
  /// Packets for this queue pair, or for a multicast group it is a member of, in the order of their
  /// arrival: BTH to padding, no ICRC. They were checked, have a whole BTH, and are there until the
  /// call returns. `origin` is that of all of them.
  /// From any thread that receives, which holds a lock of the port: may send and wait for a lock of
  /// its own, but whoever holds that lock must not call poll().
  virtual void on_packets(std::span<const Bytes> packets, const rocev2::PacketOrigin& origin) = 0;
  /// What send() did not take for kBusy may be taken now. From any thread, without a lock.
  virtual void on_writable() {}

 protected:
  ~PacketSink() = default;
};

/// Where this process's management datagrams arrive: one for the connection manager.
class MadSink {
 public:
  /// One of 256 bytes, for QP 1, from QP `source` of origin.source. Under the same conditions as
  /// PacketSink::on_packets().
  virtual void on_mad(Bytes mad, const rocev2::PacketOrigin& origin, Qpn source) = 0;
  /// The process of this host that had this block of queue pair numbers is gone. On the progress
  /// thread.
  virtual void on_process_gone(std::uint32_t) {}

 protected:
  ~MadSink() = default;
};

/// Port spaces of the connection manager with the numbers that service ids carry.
enum class PortSpace : std::uint16_t {
  kIpoib = 0x0002,
  kTcp = 0x0106,
  kUdp = 0x0111,
  kIb = 0x013f
};

/// A port of a port space, this process's on this host until destroyed.
class ServiceLease {
 public:
  ServiceLease() = default;
  ServiceLease(std::shared_ptr<void> hold, std::uint16_t port)
      : hold_(std::move(hold)), port_(port) {}
  [[nodiscard]] explicit operator bool() const { return hold_ != nullptr; }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  std::shared_ptr<void> hold_;
  std::uint16_t port_ = 0;
};

/// How the process stands on the network, for people.
struct PortReport {
  /// 0 or the errno for which UDP port 4791 could not be had, by address family. EADDRINUSE:
  /// another user's processes have it, or the kernel's own RoCE driver.
  int ipv4_error = 0;
  int ipv6_error = 0;
  /// The kernel brings packets to the process whose they are, without a detour.
  bool ipv4_steered = false;
  bool ipv6_steered = false;
  bool segmentation = false;             // UDP_SEGMENT works
  std::size_t receive_buffer_bytes = 0;  // of each socket, as the kernel counts
};

class RoceState;

class RocePort {
 public:
  /// The process's instance. Its sockets are opened by the first call that needs them.
  static RocePort& get();

  // Queue pair numbers.
  /// A number that no other queue pair of this host has, of this process's until released. Errors:
  /// EMFILE, ENOMEM; EADDRNOTAVAIL when the host's numbers are used up.
  Result<Qpn> allocate_qpn();
  void release_qpn(Qpn qpn);
  /// Upper 12 bits of the first of this process's numbers: they begin the ids of its connections,
  /// so that management datagrams find it. Leases it if need be.
  Result<std::uint32_t> first_block();
  /// Packets for `qpn` go to `sink` while that lives; they are dropped without one. The number was
  /// allocated.
  void register_sink(Qpn qpn, std::weak_ptr<PacketSink> sink);
  /// No call begins after this one has returned, and none is in progress unless the caller is in
  /// it.
  void unregister_sink(Qpn qpn);

  // Sending.
  /// Sends packets [first, end) of the batch to its destination. Never blocks.
  SendOutcome send(const rocev2::PacketBatch& batch, std::size_t first = 0);
  /// Asks for on_writable(): once, when the way by which `packet` of the batch would go has room.
  void call_when_writable(const rocev2::PacketBatch& batch, std::size_t packet,
                          std::weak_ptr<PacketSink> sink);
  /// Whether there is a way at all: the destination is on this host, or the UDP port was had.
  /// Errors: that of the bind (see PortReport).
  Status reachable(const model::AddressVector& destination);
  /// One of this host's addresses, now.
  bool is_local(const model::Gid& gid);

  /// What may be on its way to a peer whose sockets are like ours: a part of their room.
  std::uint32_t window_bytes();

  // Receiving.
  /// For threads that poll: receives what there is, unless another thread is at it. True when
  /// something came.
  bool poll();
  /// Delivers what processes of this host have sent until now. With no lock that a sink takes.
  void settle();

  // The connection manager.
  void set_mad_sink(std::weak_ptr<MadSink> sink);
  void tell_process_gone(std::uint32_t block);
  /// Sends one (at most 256 bytes, filled up with zeros) from QP 1 to QP 1. Errors: EHOSTUNREACH,
  /// ECONNREFUSED (nobody of this host has that service or connection), EAGAIN.
  Status send_mad(Bytes mad, const model::AddressVector& destination);
  /// Takes a port (0: any) of a port space at addresses of this host. Requests
  /// to it come to this process's sink. Errors: EADDRINUSE, EMFILE.
  Result<ServiceLease> lease_service(PortSpace space, std::uint16_t port,
                                     const model::AddressScope& scope);

  // Multicast.
  /// The queue pair gets what is sent to the group on the interface. Twice is EINVAL. Errors:
  /// ENOBUFS (the kernel's limit of groups), ENODEV, those of the bind.
  Status join(const model::Gid& group, std::uint32_t interface_index, Qpn qpn);
  /// EINVAL when it is no member.
  Status leave(const model::Gid& group, std::uint32_t interface_index, Qpn qpn);

  /// Opens the sockets if need be.
  PortReport report();

 private:
  friend class RoceState;
  explicit RocePort(RoceState& state) : state_(state) {}
  RoceState& state_;
};

}  // namespace airdma::runtime
