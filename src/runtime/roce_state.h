// SPDX-License-Identifier: MIT
// What is behind RocePort: the sockets, who receives from them, and to whom packets go.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/rocev2/attributes.h"
#include "io/udp_socket.h"
#include "runtime/inlet.h"
#include "runtime/known_blocks.h"
#include "runtime/local_addresses.h"
#include "runtime/local_groups.h"
#include "runtime/local_peers.h"
#include "runtime/qpn_lease.h"
#include "runtime/roce_port.h"
#include "runtime/sink_table.h"
#include "runtime/steering.h"
#include "runtime/udp_sender.h"

namespace airdma::runtime {

class UdpInlet;
class LocalAcceptor;

class RoceState final : public SteeredSockets {
 public:
  static RoceState& get();

  RocePort facade{*this};

  // Setting up. With no lock held.
  /// Everything but the UDP sockets has to succeed.
  Status open();
  [[nodiscard]] bool is_opened() const { return opened_.load(std::memory_order_acquire); }
  [[nodiscard]] int udp_error(bool v6) const { return families_[v6].error.load(); }
  Result<Qpn> allocate_qpn();
  void release_qpn(Qpn qpn);
  std::uint32_t first_block();
  PortReport report();

  // Once opened.
  [[nodiscard]] Progress& progress() { return *progress_; }
  [[nodiscard]] LocalPeers& peers() { return *peers_; }
  [[nodiscard]] LocalAddresses& addresses() { return *addresses_; }
  [[nodiscard]] SinkTable& sinks() { return sinks_; }
  [[nodiscard]] LocalGroups& groups() { return groups_; }
  [[nodiscard]] BusyInlets& busy() { return busy_; }
  /// Null while the family cannot be had.
  [[nodiscard]] UdpSender* sender(bool v6) {
    return families_[v6].sender_now.load(std::memory_order_acquire);
  }
  [[nodiscard]] UdpInlet* inlet(bool v6) {
    return families_[v6].inlet_now.load(std::memory_order_acquire);
  }

  // Sending.
  SendOutcome send_by_udp(const model::AddressVector& to, std::span<const Frame> frames);
  SendOutcome send_locally(const model::AddressVector& to, std::span<const Frame> frames);
  /// A group whose members are found by their names, not by the kernel.
  [[nodiscard]] bool is_local_group(const model::Gid& gid, std::uint32_t interface_index) const {
    return gid.is_multicast() && !gid.is_v4() && addresses_->is_loopback(interface_index);
  }
  /// To the members of a local group; what one has no room for it does not get.
  SendOutcome send_to_group(const model::AddressVector& to, std::span<const Frame> frames);

  // Delivery.
  void deliver_udp(bool v6, const io::UdpArrival& arrival);
  /// A packet did not come to its process at once.
  void note_stray() { steering_->suspect_stray(); }
  void deliver_local(const rocev2::PacketOrigin& origin, std::span<const Bytes> packets);
  /// Delivers what processes of this host have sent until now.
  void settle_local();
  void add_local(const std::shared_ptr<Inlet>& inlet);
  void remove_local(const Inlet* inlet);

  // Management datagrams.
  void set_mad_sink(std::weak_ptr<MadSink> sink);
  void tell_process_gone(std::uint32_t block);
  Status send_mad(Bytes mad, const model::AddressVector& destination);
  Result<ServiceLease> lease_service(PortSpace space, std::uint16_t port,
                                     const model::AddressScope& scope);
  void end_service(const std::string& name);
  Status accept_from(io::LocalListener listener, std::shared_ptr<LocalAcceptor>& acceptor,
                     WatchId& id);

  // For Steering.
  std::vector<std::uint32_t> blocks() override { return sinks_.blocks(); }
  bool is_open(bool v6) override { return inlet(v6) != nullptr; }
  Status steer(bool v6, std::span<const sock_filter> program) override;
  bool send_probe(bool v6, Bytes datagram) override;
  void receive(bool v6) override;

 private:
  struct Family {
    std::shared_ptr<UdpInlet> inlet;
    std::shared_ptr<UdpSender> sender;
    std::atomic<UdpInlet*> inlet_now{nullptr};
    std::atomic<UdpSender*> sender_now{nullptr};
    std::atomic<int> error{0};
  };
  // With the mutex.
  Status open_once();
  void open_family(bool v6);
  Status add_lease();

  static rocev2::PacketOrigin origin_of(const model::AddressVector& to);
  bool leaves_by_interface(const model::AddressVector& to);
  Result<SendOutcome> send_to_peer(const rocev2::PacketOrigin& origin, std::uint32_t block,
                                   std::span<const Frame> frames);
  static Status send_to_service(const std::string& name, const rocev2::PacketOrigin& origin,
                                const Frame& frame);
  Status send_mad_by_udp(const model::AddressVector& destination, const Frame& frame);
  Status send_mad_locally(const model::AddressVector& destination, Bytes mad, const Frame& frame);
  Result<ServiceLease> take_service(PortSpace space, std::uint16_t port,
                                    const model::AddressScope& scope);

  // Delivery.
  void deliver_group(Qpn qpn, std::span<const Bytes> packets, const rocev2::PacketOrigin& origin,
                     std::uint32_t interface_index);
  void deliver_multicast(std::span<const Bytes> packets, const rocev2::PacketOrigin& origin,
                         std::uint32_t interface_index);
  void forward(std::uint32_t block, std::span<const Bytes> packets,
               const rocev2::PacketOrigin& origin);
  void route_mad_packet(Bytes packet, const rocev2::PacketOrigin& origin);
  void deliver_mad_packet(Bytes packet, const rocev2::PacketOrigin& origin);
  std::shared_ptr<MadSink> mad_sink();
  bool has_service(const std::string& name);
  void pass_to_others(const rocev2::PacketOrigin& origin, const Frame& frame);
  bool pass_to_service(std::uint32_t service, const rocev2::PacketOrigin& origin, Bytes packet);

  std::mutex mutex_;  // setting up
  std::atomic<bool> opened_{false};
  Progress* progress_ = nullptr;
  std::shared_ptr<LocalPeers> peers_;
  std::shared_ptr<LocalAddresses> addresses_;
  std::shared_ptr<Steering> steering_;
  std::array<Family, 2> families_;
  std::vector<std::unique_ptr<QpnLease>> leases_;
  SinkTable sinks_;
  LocalGroups groups_;
  BusyInlets busy_;

  SpinLock local_lock_;  // these two
  std::vector<std::shared_ptr<LocalAcceptor>> acceptors_;
  std::vector<std::shared_ptr<Inlet>> local_inlets_;

  std::mutex known_lock_;
  KnownBlocks known_;
  SpinLock mad_lock_;  // all below
  std::weak_ptr<MadSink> mad_sink_;
  std::set<std::string> services_;
  std::uint32_t mad_psn_ = 0;
};

/// Takes in the connections of other processes to a name of this one.
class LocalAcceptor final : public Pollable, public std::enable_shared_from_this<LocalAcceptor> {
 public:
  LocalAcceptor(RoceState& state, io::LocalListener listener)
      : state_(state), listener_(std::move(listener)) {}
  [[nodiscard]] int fd() const { return listener_.fd(); }
  void on_ready(std::uint32_t events) override;
  /// Takes in who waits. Who had connected at the call has been taken in on return.
  void accept_all();
  void on_deadline() override {}
  /// The name is free when this returns, whoever still serves the last connection.
  void close();

 private:
  std::optional<io::LocalConnection> accept();

  RoceState& state_;
  std::mutex accepting_;
  std::mutex mutex_;  // the listener
  io::LocalListener listener_;
};

/// Port 4791 of one family.
class UdpInlet final : public Inlet {
 public:
  UdpInlet(RoceState& state, bool v6, io::UdpSocket socket)
      : Inlet(state.progress()), state_(state), v6_(v6), socket_(std::move(socket)) {}
  Status begin() { return watch(socket_.fd()); }
  io::UdpSocket& socket() { return socket_; }

 protected:
  Received receive_once() override;

 private:
  // Receptions as large as this are taken one at a time: each is still in the cache then when its
  // payload is copied into place.
  static constexpr std::size_t kLargeBytes = 16 * 1024;

  RoceState& state_;
  const bool v6_;
  io::UdpSocket socket_;
  io::UdpInbox inbox_;
  bool large_ = false;  // the last one was
  bool came_ = false;   // something did when it was asked last
  std::array<io::UdpArrival, io::UdpInbox::kSlots> arrivals_;
};

/// What one process of this host, perhaps this one, sends here.
class LocalInlet final : public Inlet {
 public:
  LocalInlet(RoceState& state, io::LocalConnection connection)
      : Inlet(state.progress()), state_(state), connection_(std::move(connection)) {}
  Status begin() { return watch(connection_.fd()); }

 protected:
  Received receive_once() override;
  void on_end() override;

 private:
  RoceState& state_;
  io::LocalConnection connection_;
};

}  // namespace airdma::runtime
