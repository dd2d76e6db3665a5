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
#include "tests/sim/posting.h"

namespace airdma::sim {

/// One side: queues, memory, endpoint, and what came out of it.
class Side {
 public:
  explicit Side(std::uint32_t depth = 64, std::uint32_t max_sge = 4,
                model::AccessMask remote_access = kAllRights)
      : sq(depth, max_sge, 256),
        rq(depth, max_sge, 0),
        endpoint({.qpn = Qpn{1}, .pd = kPd, .remote_access = remote_access}, table, sq, rq) {}

  void post(const Post& work) { post_to(sq, work); }
  void post_receive(std::uint64_t wr_id, const std::vector<model::Sge>& sges) {
    post_receive_to(rq, wr_id, sges);
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
  bool gathers = false;  // large payloads are taken from where they are

 private:
  // Who skips a poll because of may_transmit() must miss nothing.
  std::size_t poll_transmit(iwarp::Endpoint& from) {
    const bool expected = from.may_transmit();
    const iwarp::EndpointState before = from.state();
    const std::size_t bytes = gathers ? poll_gather(from) : from.poll_transmit(scratch_, now);
    if (!expected && (bytes != 0 || from.state() != before)) std::abort();
    return bytes;
  }
  std::size_t poll_gather(iwarp::Endpoint& from) {
    std::vector<std::byte> buffer(room);
    gather_.start(buffer);
    const std::size_t bytes = from.poll_transmit(gather_, now);
    scratch_.clear();
    for (const iwarp::Gather::Piece& piece : gather_.pieces()) {
      scratch_.insert(scratch_.end(), piece.bytes.begin(), piece.bytes.end());
    }
    gather_.clear();
    if (scratch_.size() != bytes) std::abort();
    return bytes;
  }

  iwarp::Gather gather_;
  std::vector<std::byte> scratch_;
};

}  // namespace airdma::sim
