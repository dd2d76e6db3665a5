// SPDX-License-Identifier: MIT
// Packets on their way from a queue pair to the network: headers that are written, and payload
// where it lies, in the program's registered memory, which the batch keeps registered. All of a
// batch go to one address. Whoever sends it adds ICRC, UDP and IP, and may join packets of equal
// size into one send.
// Bounded and allocated once: a driver keeps one for all of its queue pairs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/assert.h"
#include "base/bytes.h"
#include "model/address_vector.h"
#include "model/memory.h"
#include "wire/bth.h"
#include "wire/roce_opcode.h"

namespace airdma::rocev2 {

/// Who made a packet: whom to tell when its payload turns out to be unreadable.
enum class PacketOwner : std::uint8_t { kRequester, kResponder };

/// One packet to send.
struct OutPacket {
  std::array<std::byte, wire::kMaxRoceHeaderBytes> headers;  // BTH and extended headers
  std::uint8_t header_bytes;
  std::uint8_t pad_bytes;  // zeros behind the payload, before the ICRC
  PacketOwner owner;
  std::uint16_t payload_bytes;  // the sum of its pieces
  std::uint16_t first_piece;
  std::uint16_t piece_count;
  std::uint64_t position;  // requester: of the work request in its send queue
  std::uint64_t sequence;  // the PSN, extended to a number that never wraps

  [[nodiscard]] Bytes header() const { return {headers.data(), header_bytes}; }
  /// Bytes of the UDP payload without the ICRC.
  [[nodiscard]] std::size_t bytes() const {
    return std::size_t{header_bytes} + payload_bytes + pad_bytes;
  }
};

class PacketBatch {
 public:
  static constexpr std::size_t kMaxPackets = 64;
  static constexpr std::size_t kMaxPieces = 256;
  /// Bytes that are copied into the batch: inline data and other small things.
  static constexpr std::size_t kStorageBytes = 16384;

  PacketBatch() = default;
  PacketBatch(const PacketBatch&) = delete;
  PacketBatch& operator=(const PacketBatch&) = delete;

  // For the sender.
  [[nodiscard]] bool empty() const { return packet_count_ == 0; }
  [[nodiscard]] std::span<const OutPacket> packets() const {
    return {packets_.data(), packet_count_};
  }
  /// The payload, in order. A piece of a packet may lie in memory that the program has unmapped.
  [[nodiscard]] std::span<const Bytes> pieces(const OutPacket& packet) const {
    return {pieces_.data() + packet.first_piece, packet.piece_count};
  }
  [[nodiscard]] const model::AddressVector& destination() const { return destination_; }
  /// Releases the memory. Needed before the batch is filled again.
  void clear() {
    for (std::size_t i = 0; i < pin_count_; ++i) pins_[i] = model::Pin{};
    packet_count_ = piece_count_ = pin_count_ = storage_used_ = 0;
    most_packets_ = kMaxPackets;
  }

  // For the engines.
  void set_destination(const model::AddressVector& destination) { destination_ = destination; }
  /// The packets of a stream will have so many bytes of payload: the batch ends where whole sends
  /// of a network do, for one of two packets costs as much as one of sixty.
  void expect_payload(std::uint32_t bytes) {
    constexpr std::size_t kSendBytes = 65507;  // of UDP datagrams that are sent together
    constexpr std::size_t kAround = sizeof(wire::Bth) + 4;  // headers and ICRC
    const std::size_t together = std::clamp<std::size_t>(kSendBytes / (bytes + kAround), 1, 64);
    most_packets_ = kMaxPackets / together * together;
  }
  /// Whether a packet with as many pieces, and as many copied bytes, has room.
  [[nodiscard]] bool has_room(std::size_t pieces, std::size_t copied = 0) const {
    return packet_count_ < most_packets_ && kMaxPieces - piece_count_ >= pieces &&
           kMaxPieces - pin_count_ >= pieces && kStorageBytes - storage_used_ >= copied;
  }
  /// A new packet without headers and payload. Room for it was asked for. It is no part of the
  /// batch before commit().
  [[nodiscard]] OutPacket& next() {
    AIRDMA_ASSERT(packet_count_ < kMaxPackets);
    OutPacket& packet = packets_[packet_count_];
    packet.header_bytes = packet.pad_bytes = 0;
    packet.payload_bytes = packet.piece_count = 0;
    packet.first_piece = static_cast<std::uint16_t>(piece_count_);
    return packet;
  }
  void commit(const OutPacket& packet) {
    piece_count_ = std::size_t{packet.first_piece} + packet.piece_count;
    ++packet_count_;
  }
  /// Memory that stays registered until clear().
  const std::byte* keep(model::Pin pin) {
    const std::byte* data = pin.data();
    pins_[pin_count_++] = std::move(pin);
    return data;
  }
  void add_piece(OutPacket& packet, Bytes piece) {
    pieces_[std::size_t{packet.first_piece} + packet.piece_count++] = piece;
    packet.payload_bytes = static_cast<std::uint16_t>(packet.payload_bytes + piece.size());
  }
  /// Payload that may change before the batch is sent.
  void add_copy(OutPacket& packet, Bytes payload) {
    if (payload.empty()) return;
    std::byte* to = storage_.data() + storage_used_;
    std::memcpy(to, payload.data(), payload.size());
    storage_used_ += payload.size();
    add_piece(packet, {to, payload.size()});
  }
  /// The packet committed last, to be changed once more.
  [[nodiscard]] OutPacket& last() { return packets_[packet_count_ - 1]; }

 private:
  std::array<OutPacket, kMaxPackets> packets_;
  std::array<Bytes, kMaxPieces> pieces_;
  std::array<model::Pin, kMaxPieces> pins_;
  std::array<std::byte, kStorageBytes> storage_;
  model::AddressVector destination_;
  std::size_t packet_count_ = 0;
  std::size_t most_packets_ = kMaxPackets;
  std::size_t piece_count_ = 0;
  std::size_t pin_count_ = 0;
  std::size_t storage_used_ = 0;
};

}  // namespace airdma::rocev2
