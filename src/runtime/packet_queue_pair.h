// SPDX-License-Identifier: MIT
// A queue pair over RoCEv2, of any type: its engine, and its way to and from the process's port.
// Who posts sends at once and on its own thread; who receives from the port (a thread that polls,
// or the progress thread) brings the packets here. Both hold the transport meanwhile.
// When the port takes no more packets now, those that are left stay with the queue pair until it
// does, but no longer than kLongestWait: they keep the program's memory registered.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/rocev2/endpoint.h"
#include "runtime/answer_hold.h"
#include "runtime/batch_pool.h"
#include "runtime/queue_pair.h"
#include "runtime/roce_port.h"
#include "runtime/xrc_domain.h"

namespace airdma::runtime {

/// What ibv_modify_qp sets, with the indices looked up.
using PacketAttributes = rocev2::QpAttributes;

class PacketQueuePair final : public QueuePair, public PacketSink {
 public:
  /// Limit: packets that the port did not take are dropped after this.
  static constexpr Duration kLongestWait = std::chrono::milliseconds(100);

  struct Options {
    std::uint32_t datagram_bytes = 4096;              // UD: payload of the largest datagram
    std::shared_ptr<XrcDomain> xrc_domain = nullptr;  // of the target of an XRC connection
  };

  /// The number in `config` was allocated from the port, and is released by the caller after
  /// destroy(). The table and the completion queues outlive the queue pair (destroy() detaches it).
  /// Errors: EAGAIN, EMFILE, ENOMEM.
  static Result<std::shared_ptr<PacketQueuePair>> create(const QueuePairConfig& config,
                                                         const Options& options,
                                                         const model::MemoryTable& memory,
                                                         CompletionQueue& send_cq,
                                                         CompletionQueue& receive_cq,
                                                         std::weak_ptr<QueuePairObserver> observer);
  ~PacketQueuePair() override;

  void sends_posted(std::uint32_t count, std::uint64_t bytes) override;
  void receives_posted() override;
  void before_receives() override;

  // State, as ibv_modify_qp wants it.
  /// Takes the attributes that `mask` names (model::kQpAttr*); the caller has checked that they are
  /// in order for a queue pair in `from`. False when it has left that state meanwhile. RESET
  /// forgets all work without completions.
  bool modify(QpState from, const PacketAttributes& attributes, model::QpAttrMask mask);
  [[nodiscard]] PacketAttributes attributes();
  bool sends_draining() override;
  void fail() override;
  void destroy() override;

  // Progress.
  void drive_polling() override;
  bool receives_from_port() const override { return true; }
  void on_packets(std::span<const Bytes> packets, const rocev2::PacketOrigin& origin) override;
  void on_writable() override;
  void on_flush(bool overdue) override;
  void on_ready(std::uint32_t) override {}

 private:
  static constexpr std::uint32_t kWritable = kFirstOwn;
  static constexpr std::uint32_t kArrived = kFirstOwn * 2;

  PacketQueuePair(const QueuePairConfig& config, const Options& options,
                  const model::MemoryTable& memory, CompletionQueue& send_cq,
                  CompletionQueue& receive_cq, std::weak_ptr<QueuePairObserver> observer);

  std::weak_ptr<PacketSink> weak_sink();
  Status start();
  // All below: by the thread that holds transport_lock_.
  void pump(std::uint32_t work) override;
  void transmit(bool arrived = false);
  [[nodiscard]] bool hold_answer();
  bool send_batch();
  void wait_for_room();
  void drop_batch();
  void take_packet(Bytes packet, const rocev2::PacketOrigin& origin);
  void drain_completions();
  void report_shared(std::span<const model::Completion> completions);
  void update_state();
  void update_deadline();
  void on_time();
  void reset();
  void log_closed() const;
  [[nodiscard]] bool reliable() const;

  const Options options_;
  RocePort& port_ = RocePort::get();
  rocev2::Endpoint endpoint_;
  Progress* progress_ = nullptr;
  WatchId watch_ = 0;
  AnswerHold answer_;
  BorrowedBatch batch_;  // what the port did not take
  std::size_t batch_sent_ = 0;
  bool waiting_ = false;  // for on_writable()
  Time give_up_at_ = Time::max();
  Time deadline_set_ = Time::max();
  std::uint64_t bytes_sent_ = 0;  // of packets, from BTH to pad
  std::uint64_t bytes_received_ = 0;
};

}  // namespace airdma::runtime
