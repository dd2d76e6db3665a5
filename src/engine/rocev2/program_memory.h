// SPDX-License-Identifier: MIT
// Walks over the scatter/gather list of a work request: payload out of it goes into packets where
// it lies, payload into it is copied. Each registered piece is looked up once per batch of packets,
// not once per packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"
#include "engine/rocev2/packet_batch.h"
#include "model/memory.h"
#include "model/work.h"
#include "wire/roce_packet.h"

namespace airdma::rocev2 {

/// A place in a scatter/gather list.
struct SgePlace {
  std::uint16_t index = 0;
  std::uint32_t offset = 0;  // bytes of that piece that are behind
};

/// Puts the payload of send work requests into packets.
class Gather {
 public:
  Gather(const model::MemoryTable& memory, PdId pd) : memory_(memory), pd_(pd) {}

  /// Forgets where it stands: a request takes the place of another.
  void restart() { wqe_ = nullptr; }
  /// The next bytes come from `offset` bytes into the payload. Cheap when that is where it stands.
  void seek(const model::SendWqe& wqe, std::uint32_t offset);
  /// Appends the next `bytes`. False when memory is not ours to read: the packet is not for use.
  /// The batch has room for as many pieces as the request has.
  [[nodiscard]] bool append(PacketBatch& batch, OutPacket& packet, const model::SendWqe& wqe,
                            std::uint32_t bytes);
  /// What the last batch kept is not kept any longer.
  void batch_begins() { piece_ = nullptr; }
  /// Whether all pieces may be read (kAccessLocalRead) or written.
  [[nodiscard]] bool accessible(const model::SendWqe& wqe, model::AccessMask access) const;

 private:
  const model::MemoryTable& memory_;
  PdId pd_;
  const model::SendWqe* wqe_ = nullptr;
  std::uint32_t offset_ = 0;
  SgePlace place_;
  const std::byte* piece_ = nullptr;  // where the piece at place_ begins, once the batch keeps it
};

/// Copies payload into the pieces of a receive, or of a READ's sink.
class Scatter {
 public:
  explicit Scatter(const model::MemoryTable& memory) : memory_(memory) {}

  void begin(std::span<const model::Sge> pieces, PdId pd) {
    pieces_ = pieces;
    pd_ = pd;
    place_ = {};
    pin_ = {};
  }
  /// Copies the next bytes. They fit. False when memory is not ours to write.
  [[nodiscard]] bool place(Bytes payload);
  /// Lets go of the memory until the next bytes come. Needed before a driver turns to other work.
  void release() { pin_ = {}; }

 private:
  [[nodiscard]] bool pinned(std::size_t bytes) const;
  [[nodiscard]] bool pin(const model::Sge& sge, std::size_t bytes);

  const model::MemoryTable& memory_;
  PdId pd_;
  std::span<const model::Sge> pieces_;
  SgePlace place_;
  model::Pin pin_;  // of the piece at place_, between these offsets
  std::uint32_t pinned_from_ = 0;
  std::uint32_t pinned_until_ = 0;
};

/// Copies payload to consecutive addresses under one key, which a peer has named.
class RemoteTarget {
 public:
  explicit RemoteTarget(const model::MemoryTable& memory) : memory_(memory) {}

  /// Who asks: a protection domain and the queue pair over which it does.
  struct Requester {
    PdId pd;
    Qpn qpn;
  };
  /// Nothing is wrong, or what is: the whole range is checked.
  [[nodiscard]] std::optional<model::AccessFault> begin(const wire::RemoteRange& range,
                                                        Requester requester);
  /// Copies the next bytes, which lie in the range.
  [[nodiscard]] std::optional<model::AccessFault> place(Bytes payload);
  void release() { pin_ = {}; }

 private:
  [[nodiscard]] std::optional<model::AccessFault> pin();

  const model::MemoryTable& memory_;
  wire::RemoteRange range_;
  Requester requester_;
  std::uint32_t placed_ = 0;
  model::Pin pin_;
  std::uint32_t pinned_from_ = 0;
};

}  // namespace airdma::rocev2
