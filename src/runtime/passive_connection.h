// SPDX-License-Identifier: MIT
// The accepted side's setup, shared by the listener, which owns it until its request is whole, and
// the connection manager, which answers it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "engine/cm/mpa_connection.h"
#include "runtime/connection.h"
#include "runtime/progress.h"
#include "runtime/stream_setup.h"

namespace airdma::runtime {

class PassiveSetup;

/// What a listener does for its connections. Called on the progress thread.
class SetupOwner {
 public:
  /// The request is complete.
  virtual void on_setup_requested(const std::shared_ptr<PassiveSetup>& setup) = 0;
  /// The peer sent nonsense, left, or took too long before its request was complete.
  virtual void on_setup_dropped(PassiveSetup& setup) = 0;
  /// The peer left between its request and our answer.
  virtual void on_setup_lost(PassiveSetup& setup) = 0;

 protected:
  ~SetupOwner() = default;
};

class PassiveSetup final : public PassiveConnection,
                           public Pollable,
                           public std::enable_shared_from_this<PassiveSetup> {
 public:
  PassiveSetup(Progress& progress, io::TcpSocket socket, const io::Address& peer,
               std::weak_ptr<SetupOwner> owner);

  /// On the progress thread. Most requests are there already: the owner may hear of it in here.
  void begin(Duration timeout);

  const mpa::Request& request() const override { return responder_.request(); }
  io::Address local_address() const override { return ends_.local; }
  io::Address peer_address() const override { return ends_.peer; }
  Result<mpa::Agreement> accept(const mpa::Offer& offer, Bytes private_data,
                                std::shared_ptr<StreamQueuePair> queue_pair,
                                std::weak_ptr<StreamObserver> stream_observer) override;
  void reject(Bytes private_data) override;
  void cancel() override;

  void on_ready(std::uint32_t events) override;
  void on_deadline() override;

 private:
  enum class Outcome : std::uint8_t { kGoesOn, kRequested, kDropped, kLost };

  // With the lock held.
  bool start_watching(Duration timeout);
  bool read_request();
  void end();
  bool send_answer();
  bool take_for_answer();
  /// Tells the owner, without the lock.
  void tell(Outcome outcome);

  Progress& progress_;
  std::mutex mutex_;  // answers against the progress thread
  WatchId watch_ = 0;
  bool answered_ = false;  // or over
  bool requested_ = false;
  io::TcpSocket socket_;
  const Ends ends_;
  mpa::Responder responder_;
  std::unique_ptr<trace::TcpTap> tap_;
  std::weak_ptr<SetupOwner> owner_;
};

}  // namespace airdma::runtime
