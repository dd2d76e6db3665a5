// SPDX-License-Identifier: MIT
#include "tests/interop/replay/script.h"

#include <algorithm>

#include "engine/iwarp/immediate.h"
#include "tests/interop/replay/schedule.h"

namespace airdma::interop {
namespace {

using model::SendOpcode;
using wire::Opcode;
using wire::TerminateLayer;

bool is_immediate(const Message& message) {
  return message.opcode() == Opcode::kImmediate || message.opcode() == Opcode::kImmediateSolicited;
}
bool is_send(const Message& message) {
  return message.lane == Lane::kRequest && !message.header.tagged &&
         message.header.queue == wire::QueueNumber::kSend && !is_immediate(message);
}
std::optional<wire::Immediate> immediate_of(const Message* message) {
  if (message == nullptr || !is_immediate(*message) || !message->complete) return std::nullopt;
  return wire::parse_immediate(message->payload);
}
bool of_send(const wire::Immediate& immediate) { return iwarp::belongs_to_send(immediate); }

/// The RTR frame as it is: a zero-length message of one of the three kinds (RFC 6581 9.2).
bool empty_message(const Message& message) {
  if (message.opcode() == Opcode::kReadRequest) {
    const auto request = wire::parse_read_request(message.payload);
    return request && request->read_bytes == 0;
  }
  return message.payload.empty() && message.complete;
}

bool rtr_agreed(const Conversation& conversation) {
  if (!conversation.accepted()) return false;
  const auto& request = conversation.initiator.mpa->enhanced;
  const auto& reply = conversation.responder.mpa->enhanced;
  return request && reply && request->peer_to_peer && reply->peer_to_peer;
}

/// The first message of the initiator when it is the RTR frame.
const Message* rtr_message(const Conversation& conversation) {
  if (!rtr_agreed(conversation)) return nullptr;
  const auto& messages = conversation.initiator.fpdus.messages;
  return !messages.empty() && empty_message(messages[0]) ? &messages[0] : nullptr;
}

// Work requests.

class PostReader {
 public:
  PostReader(Script& script, const Message* rtr) : script_(script), rtr_(rtr) {}

  void read() {
    const auto messages = script_.own->fpdus.lane(Lane::kRequest);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message* next = i + 1 < messages.size() ? messages[i + 1] : nullptr;
      if (messages[i] != rtr_) {
        i += add(*messages[i], next);
      } else if (messages[i]->opcode() == Opcode::kReadRequest) {
        ++reads_;
      }
    }
  }

 private:
  /// How many of the following messages belong to the same work request.
  std::size_t add(const Message& message, const Message* next) {
    switch (message.opcode()) {
      case Opcode::kReadRequest:
        return add_read(message);
      case Opcode::kImmediate:
      case Opcode::kImmediateSolicited:
        return add_send_with_immediate(message, next);
      case Opcode::kWrite:
        return add_write(message, next);
      case Opcode::kSend:
      case Opcode::kSendSolicited:
      case Opcode::kSendInvalidate:
      case Opcode::kSendSolicitedInvalidate:
        script_.posts.push_back(send_post(message));
        return 0;
      case Opcode::kAtomicRequest:
        script_.unsupported = "atomic operations";
        return 0;
      case Opcode::kReadResponse:
      case Opcode::kTerminate:
      case Opcode::kAtomicResponse:
        break;
    }
    script_.unsupported = "opcode " + std::to_string(message.header.opcode);
    return 0;
  }

  static Post transfer(const Message& message) {
    Post post;
    post.begin = message.begin;
    post.end = message.end;
    post.complete = message.complete;
    post.payload = message.payload;
    // What a message would have gone on with is unknown; that it goes on is not.
    post.payload.resize(post.payload.size() + message.missing + (message.open ? 1 : 0));
    return post;
  }
  static Post send_post(const Message& message) {
    Post post = transfer(message);
    const auto& opcode = *wire::find_opcode(message.header.opcode);
    post.opcode = opcode.invalidates ? SendOpcode::kSendWithInvalidate : SendOpcode::kSend;
    post.solicited = opcode.solicited;
    post.rkey = message.header.invalidate_stag;
    return post;
  }
  std::size_t add_write(const Message& message, const Message* next) {
    Post post = transfer(message);
    post.opcode = SendOpcode::kWrite;
    post.rkey = message.header.stag;
    post.remote_addr = message.header.tagged_offset;
    const auto immediate = immediate_of(next);
    const bool with = immediate && !of_send(*immediate) && message.complete;
    if (with) {
      if (static_cast<std::uint32_t>(immediate->data) != 0) script_.unsupported = kEightBytes;
      post.opcode = SendOpcode::kWriteWithImm;
      post.immediate = iwarp::immediate_value(*immediate);
      post.solicited = next->opcode() == Opcode::kImmediateSolicited;
      post.end = next->end;
    }
    script_.posts.push_back(std::move(post));
    return with ? 1 : 0;
  }
  std::size_t add_send_with_immediate(const Message& message, const Message* next) {
    const auto immediate = immediate_of(&message);
    if (!immediate) return 0;  // cut off: nothing of its work request is known
    if (!of_send(*immediate)) {
      script_.unsupported = "immediate data without a WRITE before it";
      return 0;
    }
    if (next == nullptr) {
      // The SEND it belongs to was not captured; there was one.
      Post unknown = transfer(message);
      unknown.opcode = SendOpcode::kSendWithImm;
      unknown.immediate = iwarp::immediate_value(*immediate);
      unknown.complete = false;
      script_.posts.push_back(std::move(unknown));
      return 0;
    }
    if (!is_send(*next)) {
      script_.unsupported = "immediate data that belongs to no SEND";
      return 0;
    }
    Post post = send_post(*next);
    post.opcode = SendOpcode::kSendWithImm;
    post.immediate = iwarp::immediate_value(*immediate);
    post.begin = message.begin;
    script_.posts.push_back(std::move(post));
    return 1;
  }
  std::size_t add_read(const Message& message) {
    const auto request = wire::parse_read_request(message.payload);
    if (!request || !message.complete) return 0;
    Post post;
    post.opcode = SendOpcode::kRead;
    post.begin = message.begin;
    post.end = message.end;
    post.complete = true;
    post.read = *request;
    post.rkey = request->source_stag;
    post.remote_addr = request->source_offset;
    post.response = reads_++;
    script_.posts.push_back(std::move(post));
    return 0;
  }

  static constexpr const char* kEightBytes = "immediate data of eight bytes";
  Script& script_;
  const Message* rtr_;
  std::size_t reads_ = 0;
};

// What the peer's messages met.

void read_receives(Script& script, const Message* rtr) {
  std::optional<std::uint32_t> send_immediate;
  for (const Message* message : script.peer->fpdus.lane(Lane::kRequest)) {
    if (message == rtr) continue;
    if (const auto immediate = immediate_of(message)) {
      if (of_send(*immediate)) {
        send_immediate = iwarp::immediate_value(*immediate);
        continue;
      }
      script.receives.push_back({.end = message->end,
                                 .complete = true,
                                 .payload = {},
                                 .immediate = iwarp::immediate_value(*immediate),
                                 .of_write = true});
    } else if (is_send(*message)) {
      const auto* opcode = wire::find_opcode(message->header.opcode);
      if (opcode != nullptr && opcode->invalidates) {
        script.unsupported = "a SEND that invalidates an STag of this side";
      }
      script.receives.push_back({.end = message->end,
                                 .complete = message->complete,
                                 .capacity = static_cast<std::uint32_t>(message->payload.size()),
                                 .payload = message->payload,
                                 .immediate = send_immediate});
      send_immediate.reset();
    }
  }
}

void read_peer_reads(Script& script) {
  const auto responses = script.own->fpdus.lane(Lane::kResponse);
  for (const Message* message : script.peer->fpdus.lane(Lane::kRequest)) {
    if (message->opcode() == Opcode::kAtomicRequest) script.unsupported = "atomic operations";
    if (message->opcode() != Opcode::kReadRequest || !message->complete) continue;
    const auto request = wire::parse_read_request(message->payload);
    if (!request) continue;
    PeerRead read{.end = message->end, .request = *request, .content = {}};
    if (script.peer_reads.size() < responses.size()) {
      const Message& response = *responses[script.peer_reads.size()];
      read.content = response.payload;
      read.content.resize(std::min<std::size_t>(read.content.size(), request->read_bytes));
      read.answered = response.complete;
    }
    script.peer_reads.push_back(std::move(read));
  }
}

// How this side ended the stream.

bool same_place(const wire::SegmentHeader& a, const wire::SegmentHeader& b) {
  if (a.tagged != b.tagged || a.opcode != b.opcode) return false;
  if (a.tagged) return a.stag == b.stag && a.tagged_offset == b.tagged_offset;
  return a.queue == b.queue && a.msn == b.msn && a.message_offset == b.message_offset;
}

/// The peer's FPDU that a Terminate is about, among those captured before it.
std::optional<std::size_t> find_offender(const Script& script,
                                         const wire::TerminateMessage& message,
                                         std::uint64_t arrived) {
  // Nothing to blame: its program ended the stream (RFC 5040 4.8, local catastrophic error).
  if (!message.segment_header && message.cause == wire::cause::kRdmapCatastrophic) {
    return std::nullopt;
  }
  const auto& fpdus = script.peer->fpdus.fpdus;
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < fpdus.size() && fpdus[i].begin < arrived; ++i) {
    if (!message.segment_header) {
      last = i;
      if (!fpdus[i].crc_good && message.cause == wire::cause::kMpaCrc) return i;
    } else if (same_place(*message.segment_header, fpdus[i].header)) {
      last = i;
      // A place out of bounds always was; other rights may have gone at any time.
      if (message.cause.code == wire::cause::kTaggedBounds.code) return i;
    }
  }
  return last;
}

void read_offence(Script& script, const Conversation& conversation) {
  for (const Message* message : script.own->fpdus.lane(Lane::kTerminate)) {
    const auto terminate = wire::parse_terminate(message->payload);
    if (!terminate) continue;
    const std::uint64_t arrived = peer_bytes_before(conversation, script.role, message->begin);
    script.offence = Offence{.terminate = *terminate,
                             .own_begin = message->begin,
                             .fpdu = find_offender(script, *terminate, arrived)};
    return;
  }
}

/// The receive that the offending SEND met is as short as its Terminate says.
void fit_receives(Script& script) {
  const Fpdu* offender = script.offender();
  if (offender == nullptr || script.offence->terminate.cause.layer != TerminateLayer::kDdp) return;
  const auto& cause = script.offence->terminate.cause;
  const auto met = std::ranges::find_if(
      script.receives, [&](const Receive& receive) { return receive.end >= offender->end; });
  if (met == script.receives.end()) return;
  const bool of_send =
      !offender->header.tagged && offender->header.queue == wire::QueueNumber::kSend;
  // siw says "no buffer" of both; a SEND that meets no receive at all is held by airdma.
  if (of_send &&
      (cause == wire::cause::kUntaggedTooLong || cause == wire::cause::kUntaggedNoBuffer))
    met->capacity = offender->header.message_offset;
}

void read_end(Script& script, const Connection& connection) {
  bool fin = false;
  bool reset = false;
  for (const Segment& segment : connection.segments) {
    const bool own = segment.direction == script.own->direction;
    fin = fin || (segment.fin && own);
    reset = reset || segment.rst;
    script.own_reset = script.own_reset || (segment.rst && own);
  }
  script.orderly = fin && !reset && connection.lost_bytes == 0 &&
                   script.own->fpdus.lane(Lane::kTerminate).empty() &&
                   script.peer->fpdus.lane(Lane::kTerminate).empty();
}

}  // namespace

Script make_script(const Conversation& conversation, Role role) {
  Script script;
  script.role = role;
  script.own = &conversation.half(role);
  script.peer = &conversation.peer_of(role);
  const Message* rtr = rtr_message(conversation);
  script.rtr = rtr_agreed(conversation);
  PostReader(script, role == Role::kInitiator ? rtr : nullptr).read();
  const bool rtr_send = rtr != nullptr && rtr->opcode() == Opcode::kSend;
  read_receives(script, role == Role::kResponder && rtr_send ? rtr : nullptr);
  read_peer_reads(script);
  for (const Message* message : script.peer->fpdus.lane(Lane::kTerminate)) {
    if (message->complete) script.peer_terminate = message->end;
  }
  read_offence(script, conversation);
  fit_receives(script);
  read_end(script, *conversation.connection);
  script.events = make_schedule(conversation, script);
  return script;
}

}  // namespace airdma::interop
