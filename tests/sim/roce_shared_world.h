// SPDX-License-Identifier: MIT
// One RoCEv2 queue pair sends to another one that draws its receives from shared receive queues:
// from one of them (RC, UC, UD), or from those that the messages name (XRC). The queues are those
// of the runtime. In virtual time and from one seed, through a network that may lose, double, delay
// and reorder. Each message says which it is, and is known by that.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/shared_receive_queue.h"
#include "tests/sim/packet_pair.h"
#include "tests/sim/random.h"

namespace airdma::sim {

enum class Weather : std::uint8_t {
  kCalm,
  kStorm,  // packets are lost, doubled, late, in any order
  kFail,   // a storm, in which the receiver's program moves its queue pair to ERR
};

class SharedWorld {
 public:
  /// `type` is that of the receiver; kXrcReceive: the sender's is kXrcSend.
  SharedWorld(std::uint64_t seed, model::QpType type, Weather weather);

  /// Empty, or what went wrong.
  std::string run();

 private:
  static constexpr std::uint32_t kMessages = 40;
  static constexpr std::uint32_t kMost = 1200;  // bytes of a message
  static constexpr std::uint32_t kGrh = 40;
  static constexpr std::uint32_t kDepth = 8;  // of a shared receive queue
  static constexpr std::uint32_t kSlots = 4 * kMessages;
  static constexpr std::uint32_t kSlotBytes = kMost + kGrh;

  struct Events final : runtime::SharedReceiveObserver {
    void on_limit_reached() override;
    /// Until so many have come; for ever when they do not.
    void wait_for(std::uint32_t count) const;
    std::atomic<std::uint32_t> count{0};
  };
  /// A shared receive queue, its memory, and what its program knows of it. A receive's wr_id is the
  /// number of its slot in the memory.
  struct Queue {
    Queue(model::MemoryTable& table, std::uint32_t number, PdId its_pd);
    [[nodiscard]] std::uint32_t size() const;
    Srqn number;
    PdId pd;
    Stag key;
    std::uint64_t base;
    Buffer memory;
    std::shared_ptr<Events> events = std::make_shared<Events>();
    std::shared_ptr<runtime::SharedReceiveQueue> shared;
    std::uint32_t posted = 0;
    std::uint32_t completed = 0;
    std::uint32_t seen_size = 0;
    std::uint32_t armed = 0;    // the limit that must be armed now
    std::uint32_t reached = 0;  // limits
  };
  struct Domain final : rocev2::XrcReceives {
    Outcome take(Srqn number, model::ReceiveQueue& queue, PdId& pd) override;
    std::optional<PdId> domain(Srqn number) override;
    [[nodiscard]] Queue* find(Srqn number) const;
    std::vector<std::unique_ptr<Queue>>* queues = nullptr;
  };
  /// The only queue, which is made later than the endpoint that draws from it.
  struct Shared final : model::SharedReceives {
    bool take(model::ReceiveQueue& to) override { return queue->take(to); }
    runtime::SharedReceiveQueue* queue = nullptr;
  };
  struct Message {
    model::SendOpcode opcode = model::SendOpcode::kSend;
    std::uint32_t length = 0;
    std::size_t queue = 0;
    bool solicited = false;
    [[nodiscard]] bool uses_receive() const;
    [[nodiscard]] bool is_write() const;
  };
  struct Flying {
    Time at{};
    bool to_b = false;
    PacketBytes bytes;
  };

  [[nodiscard]] rocev2::EndpointConfig sender() const;
  [[nodiscard]] rocev2::EndpointConfig receiver();
  void connect();
  void choose_messages();
  [[nodiscard]] model::SendOpcode choose_opcode();
  [[nodiscard]] bool reliable() const;
  [[nodiscard]] bool xrc() const { return type_ == model::QpType::kXrcReceive; }

  void step();
  void post_message();
  void post_receive();
  void arm();
  void transmit();
  void fly(PacketBytes bytes, bool to_b);
  void pass_time();
  void break_it();
  [[nodiscard]] bool done() const;

  void take_all();
  void sent(const model::Completion& wc);
  void arrived(const model::Completion& wc);
  void check_message(Queue& queue, std::uint32_t index, Bytes slot, const model::Completion& wc);
  void check_grh(Bytes grh);
  void check_limits();
  void check_end();
  [[nodiscard]] std::uint64_t place_of_write(std::uint32_t index) const;
  [[nodiscard]] Bytes source_of(std::uint32_t index);
  void fail(const std::string& what);

  Random random_;
  const model::QpType type_;
  const Weather weather_;
  const bool v6_;
  Time now_{};
  Shared shared_;
  Domain domain_;
  PacketSide a_;
  PacketSide b_;
  std::vector<std::unique_ptr<Queue>> queues_;  // their memory is registered at b
  Buffer source_;
  std::vector<Message> messages_;
  std::vector<Flying> flying_;
  std::uint32_t posted_ = 0;
  std::uint32_t next_send_ = 0;
  std::uint32_t next_message_ = 0;  // the first that may arrive
  bool broken_ = false;
  std::string failure_;
};

}  // namespace airdma::sim
