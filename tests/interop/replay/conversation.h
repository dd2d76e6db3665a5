// SPDX-License-Identifier: MIT
// A captured TCP connection read as MPA: who is initiator, the two frames, the two FPDU streams.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tests/interop/capture.h"
#include "tests/interop/replay/stream.h"
#include "wire/mpa.h"

namespace airdma::interop {

enum class Role : std::uint8_t { kInitiator, kResponder };
[[nodiscard]] constexpr std::string_view name_of(Role role) {
  return role == Role::kInitiator ? "initiator" : "responder";
}

/// What one side sent.
struct Half {
  Direction direction = Direction::kFromClient;
  Bytes raw;
  std::optional<wire::MpaFrame> mpa;
  std::size_t mpa_bytes = 0;  // where the FPDUs begin
  bool markers = false;       // in what this side sends
  FpduStream fpdus;
};

struct Conversation {
  const Connection* connection = nullptr;
  Half initiator;
  Half responder;

  [[nodiscard]] const Half& half(Role role) const {
    return role == Role::kInitiator ? initiator : responder;
  }
  [[nodiscard]] const Half& peer_of(Role role) const {
    return role == Role::kInitiator ? responder : initiator;
  }
  /// Both frames are here and the reply is an acceptance.
  [[nodiscard]] bool accepted() const {
    return initiator.mpa && responder.mpa && !responder.mpa->reject;
  }
  /// RFC 5044 7.1: when either side asks.
  [[nodiscard]] bool crc() const {
    return accepted() && (initiator.mpa->crc || responder.mpa->crc);
  }
};

enum class ConnectionKind : std::uint8_t { kIwarp, kNoBytes, kNotIwarp, kMidway };

/// What a connection carries, told from its first bytes.
[[nodiscard]] ConnectionKind kind_of(const Connection& connection);
/// Of a connection of kind kIwarp, which must outlive it.
[[nodiscard]] Conversation read_conversation(const Connection& connection);
/// "10.77.0.11:45678 -> 10.77.0.12:7174".
[[nodiscard]] std::string ends_of(const Connection& connection);

}  // namespace airdma::interop
