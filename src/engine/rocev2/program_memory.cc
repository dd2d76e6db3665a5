// SPDX-License-Identifier: MIT
#include "engine/rocev2/program_memory.h"

#include <algorithm>
#include <utility>

#include "base/guarded_copy.h"

namespace airdma::rocev2 {

using model::AccessFault;
using model::SendWqe;
using model::Sge;

void Gather::seek(const SendWqe& wqe, std::uint32_t offset) {
  if (wqe_ == &wqe && offset_ == offset) return;
  wqe_ = &wqe;
  offset_ = offset;
  place_ = {};
  piece_ = nullptr;
  if (wqe.inlined) return;
  while (place_.index < wqe.sge_count && offset >= wqe.sges[place_.index].length) {
    offset -= wqe.sges[place_.index].length;
    ++place_.index;
  }
  place_.offset = offset;
}

bool Gather::append(PacketBatch& batch, OutPacket& packet, const SendWqe& wqe,
                    std::uint32_t bytes) {
  if (wqe.inlined) {
    batch.add_copy(packet, Bytes{wqe.inline_data + offset_, bytes});
    offset_ += bytes;
    return true;
  }
  offset_ += bytes;
  while (bytes != 0) {
    const Sge& sge = wqe.sges[place_.index];
    const std::uint32_t piece = std::min(bytes, sge.length - place_.offset);
    if (piece == 0) {
      place_ = {.index = static_cast<std::uint16_t>(place_.index + 1)};
      piece_ = nullptr;
      continue;
    }
    if (piece_ == nullptr) {
      auto pin = memory_.pin(sge.lkey, pd_, sge.addr, sge.length, model::kAccessLocalRead);
      if (!pin) {
        wqe_ = nullptr;
        return false;
      }
      piece_ = batch.keep(std::move(*pin));
    }
    batch.add_piece(packet, Bytes{piece_ + place_.offset, piece});
    place_.offset += piece;
    bytes -= piece;
  }
  return true;
}

bool Gather::accessible(const SendWqe& wqe, model::AccessMask access) const {
  return std::all_of(wqe.sges, wqe.sges + wqe.sge_count, [&](const Sge& sge) {
    return memory_.pin(sge.lkey, pd_, sge.addr, sge.length, access).has_value();
  });
}

bool Scatter::pinned(std::size_t bytes) const {
  return pin_.data() != nullptr && place_.offset >= pinned_from_ &&
         pinned_until_ - place_.offset >= bytes;
}

/// The rest of the piece at place_ at once, so that the next packets find it. When that is not
/// ours, what is needed now: no message may ever reach what lies behind.
bool Scatter::pin(const Sge& sge, std::size_t bytes) {
  const std::uint64_t from = sge.addr + place_.offset;
  const std::size_t rest = sge.length - place_.offset;
  for (const std::size_t length : {rest, bytes}) {
    auto pin = memory_.pin(sge.lkey, pd_, from, length, model::kAccessLocalWrite);
    if (!pin) continue;
    pin_ = std::move(*pin);
    pinned_from_ = place_.offset;
    pinned_until_ = place_.offset + static_cast<std::uint32_t>(length);
    return true;
  }
  return false;
}

bool Scatter::place(Bytes payload) {
  while (!payload.empty()) {
    const Sge& sge = pieces_[place_.index];
    const std::size_t piece = std::min<std::size_t>(payload.size(), sge.length - place_.offset);
    if (piece == 0) {
      place_ = {.index = static_cast<std::uint16_t>(place_.index + 1)};
      pin_ = {};
      continue;
    }
    if (!pinned(piece) && !pin(sge, piece)) return false;
    std::byte* to = pin_.data() + (place_.offset - pinned_from_);
    if (!copy_to_program(to, payload.first(piece))) return false;
    place_.offset += static_cast<std::uint32_t>(piece);
    payload = payload.subspan(piece);
  }
  return true;
}

std::optional<AccessFault> RemoteTarget::begin(const wire::RemoteRange& range,
                                               Requester requester) {
  range_ = range;
  requester_ = requester;
  placed_ = 0;
  pin_ = {};
  return pin();
}

std::optional<AccessFault> RemoteTarget::pin() {
  auto pin = memory_.pin(range_.rkey, requester_.pd, range_.address + placed_,
                         range_.bytes - placed_, model::kAccessRemoteWrite, requester_.qpn);
  if (!pin) return pin.error();
  pin_ = std::move(*pin);
  pinned_from_ = placed_;
  return std::nullopt;
}

std::optional<AccessFault> RemoteTarget::place(Bytes payload) {
  if (payload.empty()) return std::nullopt;
  if (pin_.data() == nullptr) {
    if (const auto fault = pin()) return fault;
  }
  if (!copy_to_program(pin_.data() + (placed_ - pinned_from_), payload)) {
    return AccessFault::kDenied;
  }
  placed_ += static_cast<std::uint32_t>(payload.size());
  return std::nullopt;
}

}  // namespace airdma::rocev2
