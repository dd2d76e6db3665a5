// SPDX-License-Identifier: MIT
// What the program on one side of a captured conversation did, worked out from the bytes: which
// work requests it posted, which receives and memory it had, when it ended the stream. Nothing
// here knows the file a capture came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/work.h"
#include "tests/interop/replay/conversation.h"
#include "wire/terminate.h"

namespace airdma::interop {

/// A work request of the send queue. `begin`/`end`: where its bytes lie in the captured stream.
struct Post {
  model::SendOpcode opcode = model::SendOpcode::kSend;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool complete = false;  // captured to its last byte
  bool solicited = false;
  std::uint32_t immediate = 0;
  Stag rkey;
  std::uint64_t remote_addr = 0;
  ByteVector payload;        // SEND, WRITE
  wire::ReadRequest read;    // READ
  std::size_t response = 0;  // READ: which of the peer's READ responses answers it
};

/// A receive that a message of the peer consumes.
struct Receive {
  std::uint64_t end = 0;  // of the message in the peer's stream
  bool complete = false;
  std::uint32_t capacity = 0;  // bytes posted
  ByteVector payload;
  std::optional<std::uint32_t> immediate;
  bool of_write = false;  // consumed by a WRITE's immediate data
};

/// A READ of the peer, and what it was answered.
struct PeerRead {
  std::uint64_t end = 0;  // of the request in the peer's stream
  wire::ReadRequest request;
  ByteVector content;     // shorter than the request where the capture ends first
  bool answered = false;  // to the last byte
};

/// This side ended the stream with a Terminate.
struct Offence {
  wire::TerminateMessage terminate;
  std::uint64_t own_begin = 0;      // of the Terminate in this side's stream
  std::optional<std::size_t> fpdu;  // of the peer, to blame; nothing: the program ended it
};

enum class EventKind : std::uint8_t { kPeerBytes, kOwnBytes, kPeerFin, kPeerReset, kOwnEnd };
struct Event {
  EventKind kind = EventKind::kPeerBytes;
  std::uint64_t begin = 0;  // of the bytes in their direction's stream
  std::uint64_t end = 0;
  std::uint64_t time_ns = 0;
};

struct Script {
  Role role = Role::kInitiator;
  const Half* own = nullptr;
  const Half* peer = nullptr;
  std::vector<Post> posts;
  std::vector<Receive> receives;
  std::vector<PeerRead> peer_reads;
  std::optional<Offence> offence;
  std::optional<std::uint64_t> peer_terminate;  // where it ends in the peer's stream
  bool rtr = false;                             // the initiator's first message is the RTR frame
  bool own_reset = false;                       // this side ended with a reset
  bool orderly = false;  // it ended with a FIN, and nobody had anything to complain of
  std::vector<Event> events;
  std::string unsupported;  // why this cannot be replayed, else ""

  [[nodiscard]] const Fpdu* offender() const {
    return offence && offence->fpdu ? &peer->fpdus.fpdus[*offence->fpdu] : nullptr;
  }
};

[[nodiscard]] Script make_script(const Conversation& conversation, Role role);

}  // namespace airdma::interop
