// SPDX-License-Identifier: MIT
#include "wire/terminate.h"

#include "wire/layout.h"

namespace airdma::wire {
namespace {

struct NamedCause {
  TerminateCause cause;
  std::string_view name;
};

constexpr NamedCause kCauses[] = {
    {cause::kRdmapCatastrophic, "local catastrophic error"},
    {cause::kInvalidStag, "invalid STag"},
    {cause::kBounds, "base or bounds violation"},
    {cause::kAccess, "access rights violation"},
    {cause::kStagOfOtherStream, "STag not associated with the RDMAP stream"},
    {cause::kOffsetWrap, "tagged offset wrap"},
    {cause::kCannotInvalidateProtected, "STag cannot be invalidated"},
    {cause::kProtectionUnspecified, "unspecified protection error"},
    {cause::kRdmapVersion, "invalid RDMAP version"},
    {cause::kUnexpectedOpcode, "unexpected opcode"},
    {cause::kStreamCatastrophe, "catastrophic error of the stream"},
    {cause::kGlobalCatastrophe, "catastrophic error, global"},
    {cause::kCannotInvalidate, "STag cannot be invalidated"},
    {cause::kOperationUnspecified, "unspecified operation error"},
    {cause::kDdpCatastrophic, "local catastrophic error"},
    {cause::kTaggedInvalidStag, "invalid STag"},
    {cause::kTaggedBounds, "base or bounds violation"},
    {cause::kTaggedStagOfOtherStream, "STag not associated with the DDP stream"},
    {cause::kTaggedOffsetWrap, "tagged offset wrap"},
    {cause::kTaggedDdpVersion, "invalid DDP version"},
    {cause::kUntaggedQueue, "invalid queue number"},
    {cause::kUntaggedNoBuffer, "invalid MSN, no buffer available"},
    {cause::kUntaggedMsnRange, "invalid MSN, out of range"},
    {cause::kUntaggedOffset, "invalid message offset"},
    {cause::kUntaggedTooLong, "message too long for the buffer"},
    {cause::kUntaggedDdpVersion, "invalid DDP version"},
    {cause::kMpaConnectionLost, "TCP connection lost"},
    {cause::kMpaCrc, "MPA CRC mismatch"},
    {cause::kMpaMarker, "marker and ULPDU length disagree"},
    {cause::kMpaFrame, "invalid MPA request or reply"},
    {cause::kMpaCatastrophic, "local catastrophic error"},
    {cause::kMpaInsufficientIrd, "insufficient IRD"},
    {cause::kMpaNoRtr, "no matching RTR option"},
};

const NamedCause* find_cause(const TerminateCause& cause) {
  for (const NamedCause& named : kCauses) {
    if (named.cause == cause) return &named;
  }
  return nullptr;
}

TerminateCause cause_of(const TerminateControl& control, TerminateOrder order) {
  const std::uint8_t high = TerminateControl::Layer::get(control);
  const std::uint8_t low = TerminateControl::Type::get(control);
  const bool rfc = order == TerminateOrder::kRfc;
  return {static_cast<TerminateLayer>(rfc ? high : low), rfc ? low : high, control.code.get()};
}

TerminateOrder guess_order(const TerminateControl& control) {
  const bool rfc_bits = (control.header_bits.get() & 0xe0) != 0;
  const bool siw_bits = (control.header_bits.get() & 0x07) != 0;
  if (rfc_bits != siw_bits) return rfc_bits ? TerminateOrder::kRfc : TerminateOrder::kSiw;
  if (is_defined(cause_of(control, TerminateOrder::kRfc))) return TerminateOrder::kRfc;
  const bool siw = is_defined(cause_of(control, TerminateOrder::kSiw));
  return siw ? TerminateOrder::kSiw : TerminateOrder::kRfc;
}

struct HeaderBits {
  bool length_valid = false;
  bool ddp_header = false;
  bool rdmap_header = false;
};

HeaderBits bits_of(const TerminateControl& control, TerminateOrder order) {
  using C = TerminateControl;
  if (order == TerminateOrder::kRfc) {
    return {C::LengthValid::get(control) != 0, C::DdpHeader::get(control) != 0,
            C::RdmapHeader::get(control) != 0};
  }
  return {C::MirroredLengthValid::get(control) != 0, C::MirroredDdpHeader::get(control) != 0,
          C::MirroredRdmapHeader::get(control) != 0};
}

TerminateControl control_of(const TerminateMessage& message, HeaderBits bits) {
  using C = TerminateControl;
  C control{};
  const bool rfc = message.order == TerminateOrder::kRfc;
  const auto layer = static_cast<std::uint8_t>(message.cause.layer);
  C::Layer::set(control, rfc ? layer : message.cause.type);
  C::Type::set(control, rfc ? message.cause.type : layer);
  control.code = message.cause.code;
  if (rfc) {
    C::LengthValid::set(control, bits.length_valid);
    C::DdpHeader::set(control, bits.ddp_header);
    C::RdmapHeader::set(control, bits.rdmap_header);
  } else {
    C::MirroredLengthValid::set(control, bits.length_valid);
    C::MirroredDdpHeader::set(control, bits.ddp_header);
    C::MirroredRdmapHeader::set(control, bits.rdmap_header);
  }
  return control;
}

void parse_headers(TerminateMessage& message, HeaderBits bits, Bytes rest) {
  if (!bits.length_valid && !bits.ddp_header) return;
  const auto length = load<be16>(rest);
  if (!length) return;
  if (bits.length_valid) message.segment_bytes = length->get();
  if (!bits.ddp_header) return;
  rest = skip(rest, sizeof(be16));
  message.segment_header = parse_segment_header(rest);
  if (!message.segment_header || !bits.rdmap_header) return;
  message.read_request = parse_read_request(skip(rest, message.segment_header->bytes()));
}

}  // namespace

std::string_view describe(const TerminateCause& cause) {
  const NamedCause* named = find_cause(cause);
  return named != nullptr ? named->name : std::string_view("unknown");
}

bool is_defined(const TerminateCause& cause) { return find_cause(cause) != nullptr; }

std::optional<TerminateMessage> parse_terminate(Bytes payload) {
  const auto control = load<TerminateControl>(payload);
  if (!control) return std::nullopt;
  TerminateMessage message;
  message.order = guess_order(*control);
  message.cause = cause_of(*control, message.order);
  parse_headers(message, bits_of(*control, message.order), skip(payload, sizeof *control));
  return message;
}

std::size_t emit_terminate(MutableBytes out, const TerminateMessage& message) {
  const HeaderBits bits{
      .length_valid = message.segment_bytes.has_value(),
      .ddp_header = message.segment_header.has_value(),
      .rdmap_header = message.segment_header.has_value() && message.read_request.has_value(),
  };
  std::size_t total = sizeof(TerminateControl);
  if (bits.length_valid || bits.ddp_header) total += sizeof(be16);
  if (bits.ddp_header) total += message.segment_header->bytes();
  if (bits.rdmap_header) total += kReadRequestBytes;
  if (out.size() < total) return 0;

  std::size_t at = store(out, control_of(message, bits));
  if (bits.length_valid || bits.ddp_header) {
    at += store(out.subspan(at), be16(message.segment_bytes.value_or(std::uint16_t{0})));
  }
  if (bits.ddp_header) at += emit_segment_header(out.subspan(at), *message.segment_header);
  if (bits.rdmap_header) at += emit_read_request(out.subspan(at), *message.read_request);
  return at;
}

}  // namespace airdma::wire
