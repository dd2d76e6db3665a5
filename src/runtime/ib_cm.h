// SPDX-License-Identifier: MIT
// InfiniBand's communication manager at work (engine/cm/ib_manager.h): its datagrams go through QP
// 1 of the process's RoCEv2 port, its deadlines are the progress thread's, and its events go to the
// connection managers' ids.
// Thread-safe. Observers are called on the progress thread, one after the other, with no runtime
// lock held; they are weak pointers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/result.h"
#include "engine/cm/ib_manager.h"
#include "runtime/progress.h"
#include "runtime/roce_port.h"

namespace airdma::runtime {

class IbObserver {
 public:
  /// Of a connection or lookup; of a listener the requests and lookups, and what becomes of these
  /// until observe() is called for them.
  virtual void on_ib_event(const ibcm::Event& event) = 0;

 protected:
  ~IbObserver() = default;
};

class IbCm final : public MadSink, public Pollable, public std::enable_shared_from_this<IbCm> {
 public:
  /// The process's instance. Errors: those of the port and the progress thread.
  static Result<std::shared_ptr<IbCm>> get();
  /// Ends all connections of a process that exits; their peers hear of it.
  static void say_goodbye();

  // As Manager's. EINVAL where that answers false, EAGAIN when ids have run out.
  Result<ibcm::CommunicationId> connect(const ibcm::ConnectParams& params,
                                        std::weak_ptr<IbObserver> observer);
  Status ready(ibcm::CommunicationId id, Bytes private_data);
  Status accept(ibcm::CommunicationId id, const ibcm::AcceptParams& params);
  Status reject(ibcm::CommunicationId id, wire::CmRejectReason reason, Bytes additional,
                Bytes private_data);
  Status disconnect(ibcm::CommunicationId id);
  void traffic_seen(ibcm::CommunicationId id);
  void release(ibcm::CommunicationId id);
  void observe(ibcm::CommunicationId id, std::weak_ptr<IbObserver> observer);

  ibcm::ListenerId listen(ibcm::ServiceId service, const model::AddressScope& scope,
                          std::size_t most_pending, std::weak_ptr<IbObserver> observer);
  void stop_listening(ibcm::ListenerId listener);

  Result<ibcm::CommunicationId> look_up(const ibcm::LookupParams& params,
                                        std::weak_ptr<IbObserver> observer);
  Status answer(ibcm::CommunicationId id, const ibcm::LookupAnswer& answer);

  void on_mad(Bytes mad, const rocev2::PacketOrigin& origin, Qpn source) override;
  void on_process_gone(std::uint32_t block) override;
  void on_ready(std::uint32_t) override {}
  void on_deadline() override;

 private:
  IbCm(Progress& progress, std::uint32_t id_block, std::uint64_t seed);
  Status start();

  /// Calls `use(manager)` and sees to what that has left to do.
  template <class Use>
  auto with_manager(Use use);
  // With mutex_ held.
  void take_events();
  void update_deadline();
  std::deque<ibcm::OutMad> take_mads();
  std::shared_ptr<IbObserver> observer_of(const ibcm::Event& event);

  void transmit(std::deque<ibcm::OutMad> mads);
  void dispatch();

  Progress& progress_;
  WatchId watch_ = 0;
  std::mutex mutex_;
  ibcm::Manager manager_;
  Time deadline_ = Time::max();
  std::deque<ibcm::Event> events_;
  bool dispatching_ = false;  // the progress thread will call dispatch()
  std::unordered_map<std::uint32_t, std::weak_ptr<IbObserver>> observers_;
  std::unordered_map<std::uint32_t, std::weak_ptr<IbObserver>> listeners_;
};

}  // namespace airdma::runtime
