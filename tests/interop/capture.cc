// SPDX-License-Identifier: MIT
// Frames to TCP connections.
#include "tests/interop/capture.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tests/interop/ip_packet.h"

namespace airdma::interop {
namespace {

ByteVector copy_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

constexpr unsigned kTcp = 6;

struct TcpPacket {
  Endpoint source;
  Endpoint destination;
  std::uint32_t sequence = 0;
  bool syn = false;
  bool ack = false;
  bool fin = false;
  bool rst = false;
  Bytes bytes;
};

std::optional<TcpPacket> parse_tcp(const Frame& frame) {
  auto packet_of_ip = parse_ip(frame, kTcp);
  if (!packet_of_ip || packet_of_ip->payload.size() < 20) return std::nullopt;
  const Bytes tcp = packet_of_ip->payload;
  const std::size_t header = (std::to_integer<std::size_t>(tcp[12]) >> 4) * 4;
  if (header < 20 || header > tcp.size()) return std::nullopt;
  const unsigned flags = std::to_integer<unsigned>(tcp[13]);
  TcpPacket packet;
  packet.source = {std::move(packet_of_ip->source), u16(tcp, 0)};
  packet.destination = {std::move(packet_of_ip->destination), u16(tcp, 2)};
  packet.sequence = big_endian(tcp, 4, 4);
  packet.fin = flags & 1;
  packet.syn = flags & 2;
  packet.rst = flags & 4;
  packet.ack = flags & 16;
  packet.bytes = tcp.subspan(header);
  return packet;
}

/// What one direction has delivered, and what waits behind a gap. Sequence numbers are counted in
/// 64 bits from the first byte of the stream.
struct Half {
  std::optional<std::uint32_t> first;  // sequence number of stream offset 0
  std::uint64_t next = 0;
  bool fin_seen = false;
  std::map<std::uint64_t, Segment> early;  // by stream offset

  /// Stream offset of a sequence number near `next`; negative before the stream's start.
  [[nodiscard]] std::int64_t offset_of(std::uint32_t sequence) const {
    const auto expected = static_cast<std::uint32_t>(*first + next);
    return static_cast<std::int64_t>(next) + static_cast<std::int32_t>(sequence - expected);
  }
};

class Assembler {
 public:
  Assembler(Endpoint client, Endpoint server) {
    connection_.client = std::move(client);
    connection_.server = std::move(server);
  }

  [[nodiscard]] bool carries(const TcpPacket& packet) const {
    return direction_of(packet).has_value();
  }
  /// A SYN without ACK on these ports is a new connection unless it is this one's, sent again.
  [[nodiscard]] bool is_restarted_by(const TcpPacket& packet) const {
    const Half& half = halves_[0];
    return packet.syn && !packet.ack && half.first && *half.first != packet.sequence + 1;
  }

  void add(const TcpPacket& packet, const Frame& frame, std::size_t index) {
    const Direction direction = *direction_of(packet);
    Half& half = halves_[static_cast<std::size_t>(direction)];
    const bool new_syn = packet.syn && !half.first;
    if (!half.first) half.first = packet.sequence + (packet.syn ? 1 : 0);
    Segment segment{.direction = direction,
                    .time_ns = frame.time_ns,
                    .frame = index,
                    .bytes = copy_of(packet.bytes),
                    .syn = new_syn,
                    .fin = packet.fin,
                    .rst = packet.rst};
    const std::int64_t offset = half.offset_of(packet.sequence + (packet.syn ? 1 : 0));
    place(half, offset, std::move(segment));
  }

  [[nodiscard]] Connection finish() {
    for (Half& half : halves_) {
      for (const auto& [offset, segment] : half.early) {
        connection_.lost_bytes += segment.bytes.size();
      }
    }
    return std::move(connection_);
  }

 private:
  [[nodiscard]] std::optional<Direction> direction_of(const TcpPacket& packet) const {
    const auto& [client, server] = std::tie(connection_.client, connection_.server);
    if (packet.source == client && packet.destination == server) return Direction::kFromClient;
    if (packet.source == server && packet.destination == client) return Direction::kFromServer;
    return std::nullopt;
  }

  void place(Half& half, std::int64_t offset, Segment segment) {
    // A reset ends the connection whatever its sequence number says.
    if (segment.rst && segment.bytes.empty()) return deliver(half, std::move(segment));
    if (offset > static_cast<std::int64_t>(half.next)) {
      Segment& waiting = half.early[static_cast<std::uint64_t>(offset)];
      if (segment.bytes.size() >= waiting.bytes.size()) waiting = std::move(segment);
      return;
    }
    drop_seen(half, offset, segment);
    deliver(half, std::move(segment));
    while (!half.early.empty() && half.early.begin()->first <= half.next) {
      auto node = half.early.extract(half.early.begin());
      drop_seen(half, static_cast<std::int64_t>(node.key()), node.mapped());
      deliver(half, std::move(node.mapped()));
    }
  }

  void drop_seen(const Half& half, std::int64_t offset, Segment& segment) {
    const auto overlap = static_cast<std::size_t>(static_cast<std::int64_t>(half.next) - offset);
    const std::size_t seen = std::min(overlap, segment.bytes.size());
    if (seen > 0 && seen == segment.bytes.size()) ++connection_.retransmissions;
    segment.bytes.erase(segment.bytes.begin(),
                        segment.bytes.begin() + static_cast<std::ptrdiff_t>(seen));
  }

  void deliver(Half& half, Segment segment) {
    segment.fin = segment.fin && !half.fin_seen;
    half.fin_seen = half.fin_seen || segment.fin;
    if (segment.bytes.empty() && !segment.syn && !segment.fin && !segment.rst) return;
    half.next += segment.bytes.size();
    ByteVector& stream = segment.direction == Direction::kFromClient ? connection_.client_stream
                                                                     : connection_.server_stream;
    stream.insert(stream.end(), segment.bytes.begin(), segment.bytes.end());
    connection_.segments.push_back(std::move(segment));
  }

  Connection connection_;
  Half halves_[2];
};

/// The assembler a packet belongs to, a new one if it begins a connection.
Assembler& assembler_of(std::vector<Assembler>& all, const TcpPacket& packet) {
  // The latest on the same ports is the live one.
  const auto found =
      std::find_if(all.rbegin(), all.rend(), [&](const Assembler& a) { return a.carries(packet); });
  if (found != all.rend() && !found->is_restarted_by(packet)) return *found;
  // A SYN with ACK comes from the server; anything else is taken for the client's.
  const bool from_server = packet.syn && packet.ack;
  return from_server ? all.emplace_back(packet.destination, packet.source)
                     : all.emplace_back(packet.source, packet.destination);
}

}  // namespace

std::vector<Connection> tcp_connections(const std::vector<Frame>& frames) {
  std::vector<Assembler> assemblers;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const auto packet = parse_tcp(frames[i]);
    if (packet) assembler_of(assemblers, *packet).add(*packet, frames[i], i);
  }
  std::vector<Connection> connections;
  for (Assembler& assembler : assemblers) connections.push_back(assembler.finish());
  return connections;
}

std::expected<std::vector<Connection>, std::string> read_connections(const std::string& path) {
  const auto frames = read_frames(path);
  if (!frames) return std::unexpected(frames.error());
  return tcp_connections(*frames);
}

}  // namespace airdma::interop
