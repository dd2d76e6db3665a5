// SPDX-License-Identifier: MIT
// What tests of the RoCEv2 port share: sinks that keep what came, and batches of packets.
#pragma once

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "engine/rocev2/attributes.h"
#include "engine/rocev2/packet_batch.h"
#include "runtime/roce_port.h"
#include "wire/roce_packet.h"

namespace airdma::runtime::testing {

inline const model::Gid kLoopbackV4 = model::Gid::from_v4({127, 0, 0, 1});
inline const model::Gid kLoopbackV6{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

inline model::AddressVector loopback(const model::Gid& gid) {
  return {.source = gid, .destination = gid, .interface_index = 1};
}

/// Keeps what came. wait() has the test's time limit.
class KeepingSink : public PacketSink {
 public:
  void on_packets(std::span<const Bytes> packets, const rocev2::PacketOrigin& origin) override {
    std::lock_guard lock(mutex_);
    ++calls_;
    origin_ = origin;
    for (const Bytes packet : packets) packets_.emplace_back(packet.begin(), packet.end());
    changed_.notify_all();
  }
  void on_writable() override {
    std::lock_guard lock(mutex_);
    ++writable_;
    changed_.notify_all();
  }
  std::vector<std::vector<std::byte>> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return packets_.size() >= count; });
    return packets_;
  }
  void wait_writable() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return writable_ > 0; });
  }
  std::size_t count() {
    std::lock_guard lock(mutex_);
    return packets_.size();
  }
  std::size_t calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  rocev2::PacketOrigin origin() {
    std::lock_guard lock(mutex_);
    return origin_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> packets_;
  rocev2::PacketOrigin origin_;
  std::size_t calls_ = 0;
  int writable_ = 0;
};

/// Adds a WRITE middle packet for `qpn`, whose payload stays where it is.
inline void add_packet(rocev2::PacketBatch& batch, Qpn qpn, Bytes payload, std::uint32_t psn = 0) {
  wire::RocePacket packet;
  packet.info = &wire::kRoceOpcodes[0x07];
  packet.destination = qpn;
  packet.psn = Psn(psn);
  packet.pad_bytes = wire::roce_pad_bytes(payload.size());
  rocev2::OutPacket& out = batch.next();
  out.header_bytes = static_cast<std::uint8_t>(wire::emit_roce_headers(out.headers, packet));
  out.pad_bytes = packet.pad_bytes;
  if (!payload.empty()) batch.add_piece(out, payload);
  batch.commit(out);
}

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + seed);
  return data;
}

}  // namespace airdma::runtime::testing
