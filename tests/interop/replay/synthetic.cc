// SPDX-License-Identifier: MIT
#include "tests/interop/replay/synthetic.h"

#include <algorithm>
#include <ostream>

#include "engine/cm/mpa_connection.h"
#include "tests/sim/endpoint_pair.h"
#include "wire/mpa.h"

namespace airdma::interop {
namespace {

using model::SendOpcode;
using sim::Side;

constexpr std::size_t kBytes = 40000;
constexpr std::uint64_t kHere = 0x10000;
constexpr std::uint64_t kThere = 0x7f0000000000;

class Recorder {
 public:
  explicit Recorder(const SyntheticOptions& options) : options_(options) {
    connection_.client = {ByteVector(4, std::byte{1}), 1000};
    connection_.server = {ByteVector(4, std::byte{2}), 2000};
  }

  Connection run() {
    const iwarp::StreamParams agreed = set_up();
    start(a_, agreed, true);
    start(b_, agreed, false);
    sim::fill(here_.bytes(), 1);
    sim::fill(there_.bytes(), 2);
    for (int round = 0; round < 2; ++round) {
      post(a_, kHere, kThere);
      exchange();
      post(b_, kThere, kHere);
      exchange();
    }
    for (const Direction direction : {Direction::kFromClient, Direction::kFromServer}) {
      connection_.segments.push_back(
          {.direction = direction, .time_ns = time(), .bytes = {}, .fin = true});
    }
    rebuild_streams(connection_);
    return std::move(connection_);
  }

 private:
  /// The engines do not ask for markers; here somebody does.
  static std::vector<std::byte> with_markers(std::vector<std::byte> frame, bool markers) {
    constexpr std::size_t kFlags = 16;
    if (markers) frame.at(kFlags) |= std::byte{0x80};
    return frame;
  }

  iwarp::StreamParams set_up() {
    mpa::Offer offer{.crc = options_.crc ? mpa::CrcPolicy::kPrefer : mpa::CrcPolicy::kOff,
                     .peer_to_peer = options_.peer_to_peer,
                     .ird = 4,
                     .ord = 4};
    const ByteVector hello(5, std::byte{'h'});
    mpa::Initiator initiator(offer, hello);
    const auto request = with_markers(initiator.take_transmit(), options_.initiator_markers);
    record(Direction::kFromClient, request);
    mpa::Responder responder;
    (void)responder.on_bytes(request);
    responder.accept(offer, {});
    const auto reply = with_markers(responder.take_transmit(), options_.responder_markers);
    record(Direction::kFromServer, reply);
    (void)initiator.on_bytes(reply);
    const mpa::Agreement& agreement = initiator.agreement();
    return {.crc = agreement.crc,
            .send_markers = options_.responder_markers,
            .receive_markers = options_.initiator_markers,
            .ird = agreement.ird,
            .ord = agreement.ord,
            .max_ulpdu = options_.max_ulpdu,
            .rtr = agreement.rtr == mpa::Rtr::kWrite ? iwarp::Rtr::kWrite : iwarp::Rtr::kNone};
  }

  void start(Side& side, iwarp::StreamParams params, bool initiator) {
    params.initiator = initiator;
    if (!initiator) std::swap(params.send_markers, params.receive_markers);
    side.endpoint.start(params, now_);
  }

  static model::Sge piece(std::uint64_t base, std::size_t offset, std::size_t bytes) {
    return {.addr = base + offset, .length = static_cast<std::uint32_t>(bytes), .lkey = sim::kKey};
  }

  void post(Side& side, std::uint64_t own, std::uint64_t other) {
    Side& peer = &side == &a_ ? b_ : a_;
    for (const std::size_t bytes : {0u, 1u, 2u, 3u, 1424u, 1425u, 9001u}) {
      side.post({.opcode = SendOpcode::kWrite,
                 .sges = {piece(own, 0, bytes)},
                 .remote_addr = other + 20000});
      side.post({.opcode = SendOpcode::kRead,
                 .sges = {piece(own, 10000, bytes)},
                 .remote_addr = other + 100});
      for (const SendOpcode opcode :
           {SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kWriteWithImm}) {
        peer.post_receive(1, {piece(&side == &a_ ? kThere : kHere, 30000, 9001)});
        side.post({.opcode = opcode,
                   .sges = {piece(own, 7, bytes)},
                   .remote_addr = other + 20000,
                   .immediate = 0x01020304,
                   .solicited = bytes % 2 == 1});
      }
    }
  }

  void exchange() {
    while (move(Direction::kFromClient) || move(Direction::kFromServer)) {
    }
  }
  bool move(Direction direction) {
    Side& from = direction == Direction::kFromClient ? a_ : b_;
    Side& to = direction == Direction::kFromClient ? b_ : a_;
    std::vector<std::byte> out(std::size_t{1} << 18);
    out.resize(from.endpoint.poll_transmit(out, now_));
    from.endpoint.on_transmitted(out.size(), now_);
    record(direction, out);
    to.endpoint.on_bytes(out, now_);
    return !out.empty();
  }
  void record(Direction direction, const std::vector<std::byte>& bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += options_.cut) {
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      const std::size_t size = std::min(options_.cut, bytes.size() - at);
      connection_.segments.push_back({.direction = direction,
                                      .time_ns = time(),
                                      .bytes = {first, first + static_cast<std::ptrdiff_t>(size)}});
    }
  }
  std::uint64_t time() { return ++time_ * 1000; }

  SyntheticOptions options_;
  Connection connection_;
  Time now_{};
  std::uint64_t time_ = 0;
  Side a_;
  Side b_;
  sim::Buffer here_{a_.table, sim::kKey, kHere, kBytes};
  sim::Buffer there_{b_.table, sim::kKey, kThere, kBytes};
};

}  // namespace

Connection synthetic_connection(const SyntheticOptions& options) { return Recorder(options).run(); }

void rebuild_streams(Connection& connection) {
  connection.client_stream.clear();
  connection.server_stream.clear();
  for (const Segment& segment : connection.segments) {
    ByteVector& stream = segment.direction == Direction::kFromClient ? connection.client_stream
                                                                     : connection.server_stream;
    stream.insert(stream.end(), segment.bytes.begin(), segment.bytes.end());
  }
}

}  // namespace airdma::interop
