// SPDX-License-Identifier: MIT
#include "tests/interop/replay/conversation.h"

#include <arpa/inet.h>

#include <algorithm>

namespace airdma::interop {
namespace {

using wire::MpaFrameKind;

constexpr std::size_t kKeyBytes = 16;

bool begins_with(Bytes stream, MpaFrameKind kind) {
  return stream.size() >= kKeyBytes &&
         wire::parse_mpa(stream, kind).error != wire::MpaError::kWrongKey;
}

/// FPDUs from the first byte on, as in a capture that began after connection setup.
bool looks_like_fpdus(Bytes stream) {
  const FpduStream read = read_fpdus(stream, 0, false);
  return read.fpdus.size() > 1 && std::ranges::all_of(read.fpdus, [](const Fpdu& fpdu) {
           return fpdu.valid && fpdu.header.ddp_version == wire::kDdpVersion &&
                  fpdu.header.rdmap_version == wire::kRdmapVersion &&
                  wire::find_opcode(fpdu.header.opcode) != nullptr;
         });
}

Half read_half(const Connection& connection, Direction direction, MpaFrameKind kind) {
  Half half;
  half.direction = direction;
  half.raw =
      direction == Direction::kFromClient ? connection.client_stream : connection.server_stream;
  const wire::MpaParse parse = wire::parse_mpa(half.raw, kind);
  half.mpa = parse.frame;
  half.mpa_bytes = parse.frame ? parse.frame_bytes : half.raw.size();
  return half;
}

std::string text_of(const Endpoint& endpoint) {
  char text[INET6_ADDRSTRLEN] = "?";
  const int family = endpoint.address.size() == 4 ? AF_INET : AF_INET6;
  inet_ntop(family, endpoint.address.data(), text, sizeof text);
  const std::string address = family == AF_INET ? std::string(text) : "[" + std::string(text) + "]";
  return address + ":" + std::to_string(endpoint.port);
}

}  // namespace

ConnectionKind kind_of(const Connection& connection) {
  const Bytes client = connection.client_stream;
  const Bytes server = connection.server_stream;
  if (client.empty() && server.empty()) return ConnectionKind::kNoBytes;
  if (begins_with(client, MpaFrameKind::kRequest) || begins_with(server, MpaFrameKind::kRequest)) {
    return ConnectionKind::kIwarp;
  }
  const bool fpdus =
      (client.empty() || looks_like_fpdus(client)) && (server.empty() || looks_like_fpdus(server));
  const bool reply_only =
      begins_with(server, MpaFrameKind::kReply) || begins_with(client, MpaFrameKind::kReply);
  return fpdus || reply_only ? ConnectionKind::kMidway : ConnectionKind::kNotIwarp;
}

Conversation read_conversation(const Connection& connection) {
  // Where no SYN was captured the connection's client may be the side that accepted it.
  const bool client_asks = begins_with(connection.client_stream, MpaFrameKind::kRequest);
  const Direction asks = client_asks ? Direction::kFromClient : Direction::kFromServer;
  const Direction answers = client_asks ? Direction::kFromServer : Direction::kFromClient;
  Conversation result;
  result.connection = &connection;
  result.initiator = read_half(connection, asks, MpaFrameKind::kRequest);
  result.responder = read_half(connection, answers, MpaFrameKind::kReply);
  if (!result.accepted()) return result;
  result.initiator.markers = result.responder.mpa->markers;
  result.responder.markers = result.initiator.mpa->markers;
  for (Half* half : {&result.initiator, &result.responder}) {
    half->fpdus = read_fpdus(half->raw, half->mpa_bytes, half->markers);
  }
  return result;
}

std::string ends_of(const Connection& connection) {
  return text_of(connection.client) + " -> " + text_of(connection.server);
}

}  // namespace airdma::interop
