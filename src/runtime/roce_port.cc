// SPDX-License-Identifier: MIT
#include "runtime/roce_port.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/rocev2/packet_batch.h"
#include "runtime/roce_state.h"
#include "runtime/roce_trace.h"

namespace airdma::runtime {
namespace {

/// The frames of a batch from packet `first` on.
class Frames {
 public:
  Frames(const rocev2::PacketBatch& batch, std::size_t first) {
    for (const rocev2::OutPacket& packet : batch.packets().subspan(first)) {
      frames_[count_++] = {.header = packet.header(),
                           .pieces = batch.pieces(packet),
                           .pad_bytes = packet.pad_bytes,
                           .bytes = packet.bytes()};
    }
  }
  [[nodiscard]] std::span<const Frame> all() const { return {frames_.data(), count_}; }

 private:
  static_assert(rocev2::PacketBatch::kMaxPackets <= kMaxFrames);
  static_assert(rocev2::PacketBatch::kMaxPieces <= kMaxFramePieces);
  std::array<Frame, kMaxFrames> frames_;
  std::size_t count_ = 0;
};

std::uint32_t block_of(const Frame& frame) { return QpnLease::block_of(frame.destination()); }

/// How many of the frames are for the same block as the first.
std::size_t same_block(std::span<const Frame> frames) {
  std::size_t count = 1;
  while (count < frames.size() && block_of(frames[count]) == block_of(frames[0])) ++count;
  return count;
}

}  // namespace

RocePort& RocePort::get() { return RoceState::get().facade; }

Result<Qpn> RocePort::allocate_qpn() { return state_.allocate_qpn(); }
void RocePort::release_qpn(Qpn qpn) { state_.release_qpn(qpn); }

Result<std::uint32_t> RocePort::first_block() {
  if (auto status = state_.open(); !status) return std::unexpected(status.error());
  return state_.first_block();
}

void RocePort::register_sink(Qpn qpn, std::weak_ptr<PacketSink> sink) {
  state_.sinks().set(qpn, std::move(sink));
}
void RocePort::unregister_sink(Qpn qpn) { state_.sinks().clear(qpn); }

// --- Sending ---

rocev2::PacketOrigin RoceState::origin_of(const model::AddressVector& to) {
  constexpr std::uint8_t kHopLimit = 64;
  return {.source = to.source,
          .destination = to.destination,
          .traffic_class = to.traffic_class,
          .hop_limit = to.hop_limit != 0 ? to.hop_limit : kHopLimit,
          .flow_label = to.flow_label};
}

bool RoceState::leaves_by_interface(const model::AddressVector& to) {
  return to.interface_index != 0 && !addresses_->is_loopback(to.interface_index) &&
         !addresses_->contains(to.destination);
}

SendOutcome RoceState::send_by_udp(const model::AddressVector& to, std::span<const Frame> frames) {
  UdpSender* way = sender(!to.destination.is_v4());
  if (way == nullptr) return {SendStatus::kUnreachable, frames.size()};
  const rocev2::PacketOrigin origin = origin_of(to);
  const SendTrace trace(origin, way->source_port());
  const SendOutcome outcome = way->send(to, leaves_by_interface(to), frames);
  trace.sent(frames, outcome);
  return outcome;
}

Result<SendOutcome> RoceState::send_to_peer(const rocev2::PacketOrigin& origin, std::uint32_t block,
                                            std::span<const Frame> frames) {
  const SendTrace trace(origin, 0);
  const auto outcome = peers_->send(origin, block, frames);
  if (outcome) trace.sent(frames, *outcome);
  return outcome;
}

SendOutcome RoceState::send_locally(const model::AddressVector& to, std::span<const Frame> frames) {
  const rocev2::PacketOrigin origin = origin_of(to);
  std::size_t done = 0;
  while (done < frames.size()) {
    const auto part = frames.subspan(done, same_block(frames.subspan(done)));
    auto outcome = send_to_peer(origin, block_of(part[0]), part);
    // Another user's process is reached as if it were on another host.
    if (!outcome) outcome = send_by_udp(to, part);
    done += outcome->packets;
    const bool dropped = outcome->status == SendStatus::kUnreachable && done < frames.size();
    if (outcome->status != SendStatus::kSent && !dropped) return {outcome->status, done};
  }
  return {SendStatus::kSent, done};
}

SendOutcome RoceState::send_to_group(const model::AddressVector& to,
                                     std::span<const Frame> frames) {
  const rocev2::PacketOrigin origin = origin_of(to);
  const SendTrace trace(origin, 0);
  SendOutcome whole{SendStatus::kSent, frames.size()};
  for (const std::uint32_t block : groups_.members(to.destination)) {
    const auto outcome = peers_->send(origin, block, frames.first(whole.packets));
    if (outcome && outcome->status == SendStatus::kUnreadable) whole = *outcome;
  }
  trace.sent(frames, whole);
  return whole;
}

SendOutcome RocePort::send(const rocev2::PacketBatch& batch, std::size_t first) {
  if (!state_.is_opened()) return {SendStatus::kUnreachable, batch.packets().size() - first};
  const Frames frames(batch, first);
  const model::AddressVector& to = batch.destination();
  if (state_.is_local_group(to.destination, to.interface_index)) {
    return state_.send_to_group(to, frames.all());
  }
  return is_local(to.destination) ? state_.send_locally(to, frames.all())
                                  : state_.send_by_udp(to, frames.all());
}

void RocePort::call_when_writable(const rocev2::PacketBatch& batch, std::size_t packet,
                                  std::weak_ptr<PacketSink> sink) {
  const model::AddressVector& to = batch.destination();
  if (is_local(to.destination)) {
    const Qpn qpn = Frame::destination_of(batch.packets()[packet].header());
    state_.peers().call_when_writable(QpnLease::block_of(qpn), std::move(sink));
  } else if (UdpSender* way = state_.sender(!to.destination.is_v4())) {
    way->call_when_writable(std::move(sink));
  }
}

Status RocePort::reachable(const model::AddressVector& destination) {
  if (auto status = state_.open(); !status) return status;
  const int error = state_.udp_error(!destination.destination.is_v4());
  if (error == 0 || is_local(destination.destination)) return {};
  return fail(error, "bind");
}

bool RocePort::is_local(const model::Gid& gid) {
  return (state_.is_opened() || state_.open()) && state_.addresses().contains(gid);
}

std::uint32_t RocePort::window_bytes() {
  constexpr std::size_t kLeast = 64 * 1024;
  constexpr std::size_t kMost = 1024 * 1024;
  std::size_t room = 2 * kMost;
  for (const bool v6 : {false, true}) {
    if (UdpInlet* inlet = state_.inlet(v6)) {
      room = std::min(room, inlet->socket().receive_buffer_bytes());
    }
  }
  return static_cast<std::uint32_t>(std::clamp(room / 2, kLeast, kMost));
}

// --- Receiving ---

bool RocePort::poll() {
  if (!state_.is_opened()) return false;
  state_.peers().retry();
  const bool any = state_.busy().poll();
  // Whoever polls asks epoll for the others now and then.
  if (state_.busy().size() == 0) state_.progress().serve_ready_streams();
  return any;
}

void RocePort::settle() {
  if (state_.is_opened()) state_.settle_local();
}

// --- The connection manager ---

void RocePort::set_mad_sink(std::weak_ptr<MadSink> sink) { state_.set_mad_sink(std::move(sink)); }
void RocePort::tell_process_gone(std::uint32_t block) { state_.tell_process_gone(block); }

Status RocePort::send_mad(Bytes mad, const model::AddressVector& destination) {
  return state_.send_mad(mad, destination);
}

Result<ServiceLease> RocePort::lease_service(PortSpace space, std::uint16_t port,
                                             const model::AddressScope& scope) {
  return state_.lease_service(space, port, scope);
}

// --- Multicast ---

Status RocePort::join(const model::Gid& group, std::uint32_t interface_index, Qpn qpn) {
  if (auto status = state_.open(); !status) return status;
  const bool v6 = !group.is_v4();
  UdpInlet* inlet = state_.inlet(v6);
  if (inlet == nullptr) return fail(state_.udp_error(v6), "bind");
  const auto first = state_.sinks().join({group, interface_index}, qpn);
  if (!first) return std::unexpected(first.error());
  if (!*first) return {};
  auto status = inlet->socket().join(address_of(group, interface_index), interface_index);
  if (status && state_.is_local_group(group, interface_index)) {
    status = state_.groups().join(group, state_.first_block());
    if (!status) [[maybe_unused]]
      const auto left = inlet->socket().leave(address_of(group, interface_index), interface_index);
  }
  if (!status) [[maybe_unused]]
    const auto undone = state_.sinks().leave({group, interface_index}, qpn);
  return status;
}

Status RocePort::leave(const model::Gid& group, std::uint32_t interface_index, Qpn qpn) {
  const auto last = state_.sinks().leave({group, interface_index}, qpn);
  if (!last) return std::unexpected(last.error());
  if (*last && state_.is_local_group(group, interface_index)) state_.groups().leave(group);
  UdpInlet* inlet = state_.inlet(!group.is_v4());
  if (!*last || inlet == nullptr) return {};
  return inlet->socket().leave(address_of(group, interface_index), interface_index);
}

PortReport RocePort::report() { return state_.report(); }

}  // namespace airdma::runtime
