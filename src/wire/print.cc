// SPDX-License-Identifier: MIT
#include "wire/print.h"

#include "wire/layout.h"
#include "wire/text.h"

namespace airdma::wire {
namespace {

void put_opcode(Text& text, std::uint8_t opcode) {
  if (const OpcodeInfo* known = find_opcode(opcode)) {
    text << known->name;
  } else {
    (text << "OPCODE_").hex(opcode);
  }
}

void put(Text& text, const SegmentHeader& header) {
  put_opcode(text, header.opcode);
  text.flag(" L=", header.last);
  if (header.ddp_version != kDdpVersion) (text << " ddp_version=").dec(header.ddp_version);
  if (header.rdmap_version != kRdmapVersion) (text << " rdmap_version=").dec(header.rdmap_version);
  if (header.tagged) {
    (text << " stag=").hex(header.stag.value());
    (text << " to=").hex(header.tagged_offset);
    return;
  }
  (text << " qn=").dec(static_cast<std::uint32_t>(header.queue));
  (text << " msn=").dec(header.msn.value());
  (text << " mo=").dec(header.message_offset);
  const OpcodeInfo* known = find_opcode(header.opcode);
  if (header.invalidate_stag != Stag{} || (known != nullptr && known->invalidates)) {
    (text << " invalidate=").hex(header.invalidate_stag.value());
  }
}

void put(Text& text, const ReadRequest& request) {
  (text << "sink=").hex(request.sink_stag.value());
  (text << ":").hex(request.sink_offset);
  (text << " source=").hex(request.source_stag.value());
  (text << ":").hex(request.source_offset);
  (text << " bytes=").dec(request.read_bytes);
}

void put(Text& text, const Immediate& immediate) { (text << "data=").hex(immediate.data, 16); }

void put(Text& text, const AtomicRequest& request) {
  switch (request.operation) {
    case AtomicOperation::kFetchAdd:
      text << "FETCH_ADD";
      break;
    case AtomicOperation::kCompareSwap:
      text << "CMP_SWAP";
      break;
    default:  // any value may come off the wire
      (text << "OPERATION_").dec(static_cast<std::uint8_t>(request.operation));
  }
  (text << " id=").dec(request.request_id);
  (text << " at=").hex(request.stag.value());
  (text << ":").hex(request.tagged_offset);
  (text << " data=").hex(request.add_or_swap_data);
  (text << "/").hex(request.add_or_swap_mask);
  (text << " compare=").hex(request.compare_data);
  (text << "/").hex(request.compare_mask);
}

void put(Text& text, const AtomicResponse& response) {
  (text << "id=").dec(response.request_id);
  (text << " original=").hex(response.original_value);
}

std::string_view name_of(TerminateLayer layer) {
  switch (layer) {
    case TerminateLayer::kRdmap:
      return "RDMAP";
    case TerminateLayer::kDdp:
      return "DDP";
    case TerminateLayer::kLlp:
      return "MPA";
  }
  return {};
}

void put(Text& text, const TerminateCause& cause) {
  text << "layer=";
  const std::string_view layer = name_of(cause.layer);
  if (layer.empty()) {
    text.dec(static_cast<std::uint8_t>(cause.layer));
  } else {
    text << layer;
  }
  (text << " type=").dec(cause.type);
  (text << " code=").hex(cause.code, 2) << " (" << describe(cause) << ")";
}

void put(Text& text, const TerminateMessage& message) {
  put(text, message.cause);
  if (message.order == TerminateOrder::kSiw) text << " order=siw";
  if (message.segment_bytes) (text << " segment=").dec(*message.segment_bytes);
  if (message.segment_header) {
    text << " [";
    put(text, *message.segment_header);
    if (message.read_request) {
      text << " ";
      put(text, *message.read_request);
    }
    text << "]";
  }
}

void put(Text& text, const MpaFrame& frame) {
  text << (frame.kind == MpaFrameKind::kRequest ? "MPA request" : "MPA reply");
  (text << " rev=").dec(frame.revision);
  text.flag(" M=", frame.markers).flag(" C=", frame.crc).flag(" R=", frame.reject);
  text.flag(" S=", frame.enhanced.has_value());
  if (frame.reserved != 0) (text << " reserved=").hex(frame.reserved);
  if (frame.enhanced) {
    (text << " ird=").dec(frame.enhanced->ird);
    (text << " ord=").dec(frame.enhanced->ord);
    text.flag(" A=", frame.enhanced->peer_to_peer).flag(" B=", frame.enhanced->rtr_send);
    text.flag(" C=", frame.enhanced->rtr_write).flag(" D=", frame.enhanced->rtr_read);
  }
  (text << " private=").dec(frame.private_data.size());
}

template <class T>
void put_if(Text& text, const std::optional<T>& message) {
  text << " ";
  if (message) {
    put(text, *message);
  } else {
    text << "(too short)";
  }
}

/// The message of an opcode that has a fixed payload.
void put_message(Text& text, Opcode opcode, Bytes payload) {
  switch (opcode) {
    case Opcode::kReadRequest:
      return put_if(text, parse_read_request(payload));
    case Opcode::kTerminate:
      return put_if(text, parse_terminate(payload));
    case Opcode::kImmediate:
    case Opcode::kImmediateSolicited:
      return put_if(text, parse_immediate(payload));
    case Opcode::kAtomicRequest:
      return put_if(text, parse_atomic_request(payload));
    case Opcode::kAtomicResponse:
      return put_if(text, parse_atomic_response(payload));
    case Opcode::kWrite:
    case Opcode::kReadResponse:
    case Opcode::kSend:
    case Opcode::kSendInvalidate:
    case Opcode::kSendSolicited:
    case Opcode::kSendSolicitedInvalidate:
      return;
  }
}

template <class T>
std::string_view print_one(std::span<char> out, const T& value) {
  Text text(out);
  put(text, value);
  return text.view();
}

}  // namespace

std::string_view print(std::span<char> out, const MpaFrame& frame) { return print_one(out, frame); }
std::string_view print(std::span<char> out, const ReadRequest& request) {
  return print_one(out, request);
}
std::string_view print(std::span<char> out, const Immediate& immediate) {
  return print_one(out, immediate);
}
std::string_view print(std::span<char> out, const AtomicRequest& request) {
  return print_one(out, request);
}
std::string_view print(std::span<char> out, const AtomicResponse& response) {
  return print_one(out, response);
}
std::string_view print(std::span<char> out, const TerminateMessage& message) {
  return print_one(out, message);
}
std::string_view print(std::span<char> out, const TerminateCause& cause) {
  return print_one(out, cause);
}

std::string_view print(std::span<char> out, const SegmentHeader& header,
                       std::size_t payload_bytes) {
  Text text(out);
  put(text, header);
  (text << " len=").dec(payload_bytes);
  return text.view();
}

std::string_view print_ulpdu(std::span<char> out, Bytes ulpdu) {
  Text text(out);
  const auto header = parse_segment_header(ulpdu);
  if (!header) {
    (text << "short ULPDU len=").dec(ulpdu.size());
    return text.view();
  }
  put(text, *header);
  const Bytes payload = skip(ulpdu, header->bytes());
  (text << " len=").dec(payload.size());
  if (const OpcodeInfo* known = find_opcode(header->opcode)) {
    put_message(text, known->opcode, payload);
  }
  return text.view();
}

}  // namespace airdma::wire
