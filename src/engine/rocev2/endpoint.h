// SPDX-License-Identifier: MIT
// One RoCEv2 queue pair of any type: RC, UC, UD, and either end of XRC (IBTA vol. 1, ch. 9 to 11;
// annexes A14 and A17). Sans-IO: packets and time come in as parameters; packets to send,
// completions, events and a deadline are drained after every input.
// Not here: ICRC, UDP, sockets and threads (runtime), what a mask of attributes must name
// (model/qp_state.h), order across queue pairs.
// One progress agent drives it at a time; not thread-safe, except that work may be published to
// the two rings by other threads at any moment.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/time.h"
#include "engine/rocev2/attributes.h"
#include "engine/rocev2/packet_batch.h"
#include "model/completion.h"
#include "model/memory.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

/// Counters for people.
struct EndpointStats {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t payload_sent = 0;      // bytes, repetitions included
  std::uint64_t payload_received = 0;  // bytes placed
  std::uint64_t payload_written = 0;   // of payload_received, what WRITEs of the peer placed
  std::uint64_t duplicates = 0;        // requests that came again
  std::uint64_t out_of_sequence = 0;   // requests and responses behind a gap
  std::uint64_t sequence_naks = 0;     // received
  std::uint64_t rnr_naks_sent = 0;
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t timeouts = 0;  // of the transport timer
  std::uint64_t probes = 0;    // repetitions before it
  std::uint64_t packets_repeated = 0;
  std::uint64_t notifications_sent = 0;  // of congestion
  std::uint64_t notifications_received = 0;
  std::uint64_t dropped = 0;  // packets that had no business here
};

class EndpointImpl;

class Endpoint {
 public:
  /// The table, the rings and what the configuration points to outlive the endpoint. A queue pair
  /// without a send queue (QpType::kXrcReceive) or receive queue (kXrcSend) still has a ring of
  /// one slot there.
  Endpoint(const EndpointConfig& config, const model::MemoryTable& memory,
           model::SendQueue& send_queue, model::ReceiveQueue& receive_queue);
  ~Endpoint();

  // Inputs. Each may change state; none performs I/O.
  /// Takes those attributes that `mask` (model::kQpAttr*) names. The caller has checked the
  /// transition and the values. RESET forgets everything, the rings' contents too; ERR flushes.
  void modify(const QpAttributes& attributes, model::QpAttrMask mask, Time now);
  /// A packet for this queue pair (or multicast group, or a CNP) whose ICRC was good. Packets that
  /// were received together are given one by one, and then the outputs are drained once: one
  /// acknowledgement then speaks for all of them.
  void on_packet(const wire::RocePacket& packet, const PacketOrigin& origin, Time now);
  /// The same for one that cannot be read.
  void on_unreadable(const wire::RoceParseError& error, const PacketOrigin& origin, Time now);
  void on_deadline(Time now);
  /// Moves the queue pair to ERR, as modify() would: its program wants it, or it has lost its CQ.
  void fail(Time now);
  /// The payload of a packet could not be read when the batch was sent, and the packet was not
  /// sent. Before the outputs are drained.
  void on_unsent(const OutPacket& packet, Time now);

  // Outputs, drained after every input and after work was posted.
  /// False when poll_transmit would give nothing and change nothing: so that a driver which is
  /// asked often need not prepare for it. True promises nothing.
  [[nodiscard]] bool may_transmit() const;
  /// All there is to send is an acknowledgement of a few packets, and the program is about to hear
  /// of a message that they brought: the acknowledgement may wait a little, to go with its answer.
  [[nodiscard]] bool can_wait() const;
  /// Fills a cleared batch; false when there is nothing to send. Send it, then call again until
  /// false. Packets that the network does not take may be dropped. `now` also measures the network.
  [[nodiscard]] bool poll_transmit(PacketBatch& batch, Time now);
  /// Completions since the last clear, in order. In ERR this also flushes what was posted since.
  /// Sends of UC and UD are complete by this call, so batches are sent first.
  [[nodiscard]] std::span<const model::Completion> completions();
  void clear_completions();
  /// Affiliated asynchronous events, oldest first; after the completions.
  [[nodiscard]] std::optional<model::QpEvent> poll_event();
  [[nodiscard]] std::optional<Time> next_deadline() const;
  /// No work request that was begun is incomplete.
  [[nodiscard]] bool sends_drained() const;
  [[nodiscard]] model::QpState state() const;
  /// As they are now: PSNs too.
  [[nodiscard]] QpAttributes attributes() const;
  [[nodiscard]] EndpointStats stats() const;
  /// Text of the reason the queue pair failed, for logs ("" when it did not): a string literal.
  [[nodiscard]] const char* failure() const;

 private:
  std::unique_ptr<EndpointImpl> impl_;
};

}  // namespace airdma::rocev2
