// SPDX-License-Identifier: MIT
// Two endpoints and the byte streams between them, in virtual time: what tests drive engines with.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/iwarp/endpoint.h"
#include "model/memory.h"
#include "model/work.h"

namespace airdma::sim {

inline constexpr PdId kPd{7};
inline constexpr PdId kOtherPd{8};
inline constexpr Stag kKey{0x1234};  // every right
inline constexpr model::AccessMask kAllRights =
    model::kAccessLocalWrite | model::kAccessRemoteWrite | model::kAccessRemoteRead |
    model::kAccessRemoteAtomic;

/// Memory of one side: bytes that start at a made-up address, published under one key.
class Buffer {
 public:
  Buffer(model::MemoryTable& table, Stag key, std::uint64_t base, std::size_t bytes,
         model::AccessMask access = kAllRights, PdId pd = kPd)
      : table_(table), bytes_(bytes) {
    region_.start = bytes_.data();
    region_.base = base;
    region_.length = bytes;
    region_.pd = pd;
    region_.access = access;
    if (!table.publish(key, region_)) std::abort();
  }
  ~Buffer() { withdraw(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void withdraw() { table_.retract(region_); }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] std::uint64_t base() const { return region_.base; }
  [[nodiscard]] bool idle() const { return model::MemoryTable::idle(region_); }

 private:
  model::MemoryTable& table_;
  std::vector<std::byte> bytes_;
  model::Region region_;
};

/// What a test posts on a send queue.
struct Post {
  model::SendOpcode opcode = model::SendOpcode::kSend;
  std::uint64_t wr_id = 0;
  std::vector<model::Sge> sges{};
  std::uint64_t remote_addr = 0;
  Stag rkey = kKey;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  std::uint32_t immediate = 0;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;
  bool inlined = false;  // payload: the bytes of inline_data
  std::vector<std::byte> inline_data{};
};

/// One side: queues, memory, endpoint, and what came out of it.
class Side {
 public:
  explicit Side(std::uint32_t depth = 64, std::uint32_t max_sge = 4,
                model::AccessMask remote_access = kAllRights)
      : sq(depth, max_sge, 256),
        rq(depth, max_sge, 0),
        endpoint({.qpn = Qpn{1}, .pd = kPd, .remote_access = remote_access}, table, sq, rq) {}

  void post(const Post& post) {
    model::SendWqe& wqe = sq.slot(0);
    wqe.wr_id = post.wr_id;
    wqe.opcode = post.opcode;
    wqe.signaled = post.signaled;
    wqe.solicited = post.solicited;
    wqe.fence = post.fence;
    wqe.immediate = post.immediate;
    wqe.rkey = post.rkey;
    wqe.remote_addr = post.remote_addr;
    wqe.compare_add = post.compare_add;
    wqe.swap = post.swap;
    if (post.inlined) {
      wqe.inlined = true;
      wqe.length = static_cast<std::uint32_t>(post.inline_data.size());
      std::copy(post.inline_data.begin(), post.inline_data.end(), wqe.inline_data);
    }
    for (const model::Sge& sge : post.sges) {
      wqe.sges[wqe.sge_count++] = sge;
      wqe.length += sge.length;
    }
    sq.publish(1);
  }
  void post_receive(std::uint64_t wr_id, const std::vector<model::Sge>& sges) {
    model::ReceiveWqe& wqe = rq.slot(0);
    wqe.wr_id = wr_id;
    for (const model::Sge& sge : sges) {
      wqe.sges[wqe.sge_count++] = sge;
      wqe.length += sge.length;
    }
    rq.publish(1);
  }
  /// Takes what the endpoint has to say.
  void drain() {
    for (const model::Completion& wc : endpoint.completions()) completions.push_back(wc);
    endpoint.clear_completions();
    while (const auto event = endpoint.poll_event()) events.push_back(*event);
  }

  model::MemoryTable table;
  model::SendQueue sq;
  model::ReceiveQueue rq;
  iwarp::Endpoint endpoint;
  std::vector<model::Completion> completions;
  std::vector<model::QpEvent> events;
};

/// A connected pair. Each run() moves everything there is until nothing moves.
class EndpointPair {
 public:
  explicit EndpointPair(iwarp::StreamParams common = {}) {
    common.initiator = true;
    a.endpoint.start(common, now);
    common.initiator = false;
    std::swap(common.ird, common.ord);
    std::swap(common.send_markers, common.receive_markers);
    b.endpoint.start(common, now);
  }

  /// Bytes of one round from `from` to `to`, in pieces of at most `cut`.
  bool move(Side& from, Side& to) {
    scratch_.resize(room);
    bool moved = false;
    while (to.endpoint.wants_input()) {
      const std::size_t bytes = poll_transmit(from.endpoint);
      from.drain();
      if (bytes == 0) break;
      moved = true;
      from.endpoint.on_transmitted(bytes, now);
      from.drain();
      for (std::size_t at = 0; at < bytes; at += cut) {
        to.endpoint.on_bytes(Bytes{scratch_}.subspan(at, std::min(cut, bytes - at)), now);
        to.drain();
      }
    }
    return moved;
  }
  void run() {
    while (true) {
      const bool forth = move(a, b);
      const bool back = move(b, a);
      if (!forth && !back) break;
    }
    a.drain();
    b.drain();
  }

  Side a;
  Side b;
  Time now{};
  std::size_t cut = std::size_t{1} << 30;
  std::size_t room = std::size_t{256} * 1024;

 private:
  // Who skips a poll because of may_transmit() must miss nothing.
  std::size_t poll_transmit(iwarp::Endpoint& from) {
    const bool expected = from.may_transmit();
    const iwarp::EndpointState before = from.state();
    const std::size_t bytes = from.poll_transmit(scratch_, now);
    if (!expected && (bytes != 0 || from.state() != before)) std::abort();
    return bytes;
  }

  std::vector<std::byte> scratch_;
};

/// Bytes that differ from place to place and from seed to seed.
inline void fill(std::span<std::byte> bytes, std::uint32_t seed) {
  std::uint32_t x = seed * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(x >> 24);
  }
}

}  // namespace airdma::sim
