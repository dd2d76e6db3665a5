// SPDX-License-Identifier: MIT
// From the sockets to the sinks: whole packets with a right ICRC, those of one queue pair together.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <utility>

#include "runtime/io_buffer.h"
#include "runtime/local_message.h"
#include "runtime/mad_route.h"
#include "runtime/roce_state.h"
#include "runtime/roce_trace.h"
#include "wire/icrc.h"
#include "wire/mad.h"
#include "wire/roce_packet.h"

namespace airdma::runtime {
namespace {

// In the place of a queue pair number: the members of the group that is the destination.
constexpr Qpn kMulticastQpn{0xffffff};

wire::IpAddress ip_address(const std::array<std::uint8_t, 16>& gid) {
  return std::bit_cast<wire::IpAddress>(gid);
}

/// The packet without its ICRC; nothing when it is too short or not what was sent. `identification`
/// is what it most likely has.
std::optional<Bytes> check(const wire::IcrcFlow& flow, Bytes datagram,
                           std::uint16_t identification) {
  if (datagram.size() < sizeof(wire::Bth) + wire::kIcrcBytes) return std::nullopt;
  const Bytes packet = datagram.first(datagram.size() - wire::kIcrcBytes);
  const std::uint32_t computed =
      wire::icrc_headers(flow.start(datagram.size(), identification), packet);
  const std::uint32_t received = wire::load_icrc(packet.data() + packet.size());
  if (!flow.accepts(received, computed, datagram.size())) return std::nullopt;
  return packet;
}

/// Gathers packets that follow each other and are for the same queue pair.
template <class Deliver>
class Gatherer {
 public:
  explicit Gatherer(Deliver deliver) : deliver_(deliver) {}
  ~Gatherer() { flush(); }
  void add(Bytes packet) {
    const Qpn qpn = Frame::destination_of(packet);
    if (count_ == packets_.size() || (count_ != 0 && qpn != qpn_)) flush();
    qpn_ = qpn;
    packets_[count_++] = packet;
  }

 private:
  void flush() {
    if (count_ != 0) deliver_(qpn_, std::span<const Bytes>(packets_.data(), count_));
    count_ = 0;
  }
  Deliver deliver_;
  Qpn qpn_;
  std::size_t count_ = 0;
  std::array<Bytes, kMaxFrames> packets_;
};

}  // namespace

// --- Inlets ---

Inlet::Received UdpInlet::receive_once() {
  // One at first: to ask for a second that is not there costs a lone packet a tenth of its way.
  const std::size_t most = large_ || !came_ ? 1 : arrivals_.size();
  const auto arrivals = socket_.receive(inbox_, std::span(arrivals_).first(most));
  came_ = !arrivals.empty();
  if (!came_) return Received::kNothing;
  const BusyScope busy(state_.progress());
  state_.busy().note(*this);
  large_ = arrivals.back().data.size() >= kLargeBytes;
  for (const io::UdpArrival& arrival : arrivals) state_.deliver_udp(v6_, arrival);
  return Received::kSome;
}

Inlet::Received LocalInlet::receive_once() {
  const IoBuffer buffer = IoBuffer::borrow();
  if (!buffer) return Received::kNothing;
  const auto got = connection_.receive(buffer.bytes());
  if (!got) {
    const int error = got.error().code;
    if (error == EMSGSIZE) return Received::kSome;
    return error == EAGAIN || error == ENOMEM ? Received::kNothing : Received::kEnd;
  }
  const BusyScope busy(state_.progress());
  state_.busy().note(*this);
  if (const auto message = LocalMessage::read(Bytes(buffer.bytes()).first(*got))) {
    const std::span packets(message->packets.data(), message->count);
    if (message->recorded_in != trace_mark()) {
      for (const Bytes packet : packets) trace_received(message->origin, 0, packet);
    }
    if (message->strayed) state_.note_stray();
    state_.deliver_local(message->origin, packets);
  }
  return Received::kSome;
}

void LocalInlet::on_end() {
  stop_watching();
  state_.busy().forget(this);
  state_.remove_local(this);
}

// --- Delivery ---

void RoceState::deliver_udp(bool v6, const io::UdpArrival& arrival) {
  if (const auto probe = SteeringProbe::read(arrival.data.data(), arrival.data.size())) {
    return steering_->on_probe(v6, *probe);
  }
  const rocev2::PacketOrigin origin{.source = {arrival.source},
                                    .destination = {arrival.destination},
                                    .traffic_class = arrival.traffic_class,
                                    .hop_limit = arrival.hop_limit,
                                    .flow_label = arrival.flow_label};
  const wire::IcrcFlow flow(ip_address(arrival.source), ip_address(arrival.destination),
                            arrival.source_port);
  Gatherer gatherer([&](Qpn qpn, std::span<const Bytes> packets) {
    deliver_group(qpn, packets, origin, arrival.interface_index);
  });
  std::uint16_t number = 0;  // what was sent together most likely came together
  for (Bytes rest = arrival.data; !rest.empty(); ++number) {
    const Bytes datagram = rest.first(std::min(rest.size(), arrival.segment_bytes));
    rest = rest.subspan(datagram.size());
    if (const auto packet = check(flow, datagram, number)) {
      trace_received(origin, arrival.source_port, *packet);
      gatherer.add(*packet);
    }
  }
}

void RoceState::deliver_group(Qpn qpn, std::span<const Bytes> packets,
                              const rocev2::PacketOrigin& origin, std::uint32_t interface_index) {
  if (qpn == kMulticastQpn) return deliver_multicast(packets, origin, interface_index);
  if (qpn == wire::kManagementQpn) {
    for (const Bytes packet : packets) route_mad_packet(packet, origin);
    return;
  }
  if (const auto sink = sinks_.find(qpn)) return sink->on_packets(packets, origin);
  const std::uint32_t block = QpnLease::block_of(qpn);
  if (!sinks_.owns(block)) forward(block, packets, origin);
}

void RoceState::deliver_multicast(std::span<const Bytes> packets,
                                  const rocev2::PacketOrigin& origin,
                                  std::uint32_t interface_index) {
  if (!origin.destination.is_multicast()) return;
  for (const Qpn member : sinks_.members({origin.destination, interface_index})) {
    if (const auto sink = sinks_.find(member)) sink->on_packets(packets, origin);
  }
}

// They were checked here; between the processes of a host there is no ICRC.
void RoceState::forward(std::uint32_t block, std::span<const Bytes> packets,
                        const rocev2::PacketOrigin& origin) {
  std::array<Frame, kMaxFrames> frames;
  std::ranges::transform(packets, frames.begin(), [](Bytes packet) {
    return Frame{.header = packet, .pieces = {}, .pad_bytes = 0, .bytes = packet.size()};
  });
  [[maybe_unused]] const auto sent =
      peers_->send(origin, block, {frames.data(), packets.size()}, true);
  note_stray();
}

void RoceState::deliver_local(const rocev2::PacketOrigin& origin, std::span<const Bytes> packets) {
  Gatherer gatherer([&](Qpn qpn, std::span<const Bytes> of_one) {
    if (qpn == wire::kManagementQpn) {
      for (const Bytes packet : of_one) deliver_mad_packet(packet, origin);
    } else if (qpn == kMulticastQpn) {
      deliver_multicast(of_one, origin, addresses_->loopback_index());
    } else if (const auto sink = sinks_.find(qpn)) {
      sink->on_packets(of_one, origin);
    }
  });
  for (const Bytes packet : packets) {
    if (packet.size() >= sizeof(wire::Bth)) gatherer.add(packet);
  }
}

}  // namespace airdma::runtime
