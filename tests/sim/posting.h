// SPDX-License-Identifier: MIT
// Registered memory of a simulated program, and how it posts work: the same for every transport.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

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
  Qpn remote_qpn{};  // of a datagram, and the next two
  Qkey remote_qkey{};
  model::AddressVector address{};
  Srqn remote_srqn{};  // XRC
};

inline void post_to(model::SendQueue& queue, const Post& post) {
  model::SendWqe& wqe = queue.slot(0);
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
  wqe.remote_qpn = post.remote_qpn;
  wqe.remote_qkey = post.remote_qkey;
  wqe.remote_srqn = post.remote_srqn;
  if (wqe.address != nullptr) *wqe.address = post.address;
  if (post.inlined) {
    wqe.inlined = true;
    wqe.length = static_cast<std::uint32_t>(post.inline_data.size());
    std::copy(post.inline_data.begin(), post.inline_data.end(), wqe.inline_data);
  }
  for (const model::Sge& sge : post.sges) {
    wqe.sges[wqe.sge_count++] = sge;
    wqe.length += sge.length;
  }
  queue.publish(1);
}

inline void post_receive_to(model::ReceiveQueue& queue, std::uint64_t wr_id,
                            const std::vector<model::Sge>& sges) {
  model::ReceiveWqe& wqe = queue.slot(0);
  wqe.wr_id = wr_id;
  for (const model::Sge& sge : sges) {
    wqe.sges[wqe.sge_count++] = sge;
    wqe.length += sge.length;
  }
  queue.publish(1);
}

/// Bytes that differ from place to place and from seed to seed.
inline void fill(std::span<std::byte> bytes, std::uint32_t seed) {
  std::uint32_t x = seed * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(x >> 24);
  }
}

}  // namespace airdma::sim
