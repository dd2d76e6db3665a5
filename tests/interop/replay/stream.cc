// SPDX-License-Identifier: MIT
#include "tests/interop/replay/stream.h"

#include <algorithm>
#include <optional>

#include "wire/crc32c.h"
#include "wire/mpa.h"
#include "wire/print.h"

namespace airdma::interop {
namespace {

/// The stream without its markers, and the way back to raw offsets.
struct Plain {
  ByteVector bytes;
  std::size_t start = 0;
  bool markers = false;

  [[nodiscard]] std::uint64_t raw(std::size_t offset) const {
    constexpr std::size_t kBetween = wire::kMarkerInterval - wire::kMarkerBytes;
    const std::size_t added = markers ? (offset / kBetween + 1) * wire::kMarkerBytes : 0;
    return start + offset + added;
  }
};

Plain without_markers(Bytes stream, std::size_t start, bool markers) {
  Plain plain{.bytes = {}, .start = start, .markers = markers};
  Bytes rest = stream.subspan(std::min(start, stream.size()));
  if (!markers) {
    plain.bytes.assign(rest.begin(), rest.end());
    return plain;
  }
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (i % wire::kMarkerInterval >= wire::kMarkerBytes) plain.bytes.push_back(rest[i]);
  }
  return plain;
}

Fpdu whole_fpdu(const wire::FpduView& view, bool markers) {
  Fpdu fpdu;
  fpdu.ulpdu.assign(view.ulpdu.begin(), view.ulpdu.end());
  fpdu.complete = true;
  fpdu.crc_field = view.crc;
  const Bytes pad = view.covered.subspan(wire::kFpduLengthBytes + view.ulpdu.size());
  fpdu.pad_zero = std::ranges::count(pad, std::byte{0}) == std::ssize(pad);
  fpdu.crc_good = markers || wire::crc32c(view.covered) == view.crc;
  return fpdu;
}

/// What is left of an FPDU at the end of a stream; nothing when not even its header is there.
std::optional<Fpdu> cut_fpdu(Bytes rest) {
  if (rest.size() < wire::kFpduLengthBytes + 1) return std::nullopt;
  const std::size_t ulpdu_bytes =
      std::to_integer<std::size_t>(rest[0]) << 8 | std::to_integer<std::size_t>(rest[1]);
  Bytes known = rest.subspan(wire::kFpduLengthBytes);
  known = known.first(std::min(known.size(), ulpdu_bytes));
  if (!wire::parse_segment_header(known)) return std::nullopt;
  Fpdu fpdu;
  fpdu.ulpdu.assign(known.begin(), known.end());
  fpdu.known_payload = known.size() - wire::segment_header_bytes(known[0]);
  fpdu.ulpdu.resize(ulpdu_bytes);
  return fpdu;
}

void read_header(Fpdu& fpdu) {
  const auto header = wire::parse_segment_header(fpdu.ulpdu);
  fpdu.valid = header.has_value();
  if (!header) return;
  fpdu.header = *header;
  if (fpdu.complete) fpdu.known_payload = fpdu.ulpdu.size() - header->bytes();
}

bool follows(const Message& message, const Fpdu& fpdu) {
  const auto& first = message.header;
  if (fpdu.header.tagged != first.tagged || fpdu.header.opcode != first.opcode) return false;
  if (first.tagged) {
    return fpdu.header.stag == first.stag &&
           fpdu.header.tagged_offset == first.tagged_offset + message.payload.size();
  }
  return fpdu.header.queue == first.queue && fpdu.header.msn == first.msn &&
         fpdu.header.invalidate_stag == first.invalidate_stag &&
         fpdu.header.message_offset == message.payload.size();
}

void add_segment(Message& message, const Fpdu& fpdu, std::size_t index) {
  const Bytes payload = fpdu.payload().first(fpdu.known_payload);
  message.payload.insert(message.payload.end(), payload.begin(), payload.end());
  message.end = fpdu.end;
  message.last_fpdu = index;
  message.complete = fpdu.header.last && fpdu.complete;
  message.cut = !fpdu.complete;
  message.open = !fpdu.header.last;
  message.missing = fpdu.payload().size() - fpdu.known_payload;
}

void gather_messages(FpduStream& stream) {
  std::optional<std::size_t> open[std::size(kLanes)];
  for (std::size_t i = 0; i < stream.fpdus.size(); ++i) {
    const Fpdu& fpdu = stream.fpdus[i];
    if (!fpdu.valid) continue;
    const Lane lane = lane_of(fpdu.header);
    auto& current = open[static_cast<std::size_t>(lane)];
    if (!current) {
      current = stream.messages.size();
      stream.messages.push_back({.lane = lane,
                                 .header = fpdu.header,
                                 .payload = {},
                                 .begin = fpdu.begin,
                                 .first_fpdu = i});
      stream.messages.back().contiguous = fpdu.header.tagged || fpdu.header.message_offset == 0;
    } else if (!follows(stream.messages[*current], fpdu)) {
      stream.messages[*current].contiguous = false;
    }
    add_segment(stream.messages[*current], fpdu, i);
    if (fpdu.header.last) current.reset();
  }
}

}  // namespace

std::string Fpdu::text() const {
  std::string line = wire::ulpdu_to_text(ulpdu);
  if (!complete) line += " (cut off)";
  return line;
}

std::string Message::text() const {
  wire::SegmentHeader shown = header;
  shown.last = complete;
  return wire::to_text(shown, payload.size()) + (complete ? "" : " (cut off)");
}

Lane lane_of(const wire::SegmentHeader& header) {
  const wire::OpcodeInfo* known = wire::find_opcode(header.opcode);
  if (known == nullptr) return Lane::kRequest;
  if (known->opcode == wire::Opcode::kReadResponse ||
      known->opcode == wire::Opcode::kAtomicResponse)
    return Lane::kResponse;
  return known->opcode == wire::Opcode::kTerminate ? Lane::kTerminate : Lane::kRequest;
}

std::vector<const Message*> FpduStream::lane(Lane wanted) const {
  std::vector<const Message*> found;
  for (const Message& message : messages) {
    if (message.lane == wanted) found.push_back(&message);
  }
  return found;
}

FpduStream read_fpdus(Bytes stream, std::size_t start, bool markers) {
  const Plain plain = without_markers(stream, start, markers);
  FpduStream result;
  result.end = start;
  std::size_t at = 0;
  while (at < plain.bytes.size()) {
    const Bytes rest = Bytes(plain.bytes).subspan(at);
    const wire::FpduParse parse = wire::parse_fpdu(rest);
    result.broken_off = !parse.fpdu;
    std::optional<Fpdu> fpdu = parse.fpdu ? whole_fpdu(*parse.fpdu, markers) : cut_fpdu(rest);
    if (!fpdu) break;
    fpdu->begin = plain.raw(at);
    at += wire::fpdu_bytes(fpdu->ulpdu.size());
    fpdu->end = plain.raw(at - 1) + 1;
    if (fpdu->complete) result.end = fpdu->end;
    read_header(*fpdu);
    result.fpdus.push_back(std::move(*fpdu));
  }
  gather_messages(result);
  return result;
}

std::size_t largest_ulpdu(const FpduStream& stream) {
  std::size_t largest = 0;
  for (const Fpdu& fpdu : stream.fpdus) largest = std::max(largest, fpdu.ulpdu.size());
  return largest;
}

std::size_t uniform_ulpdu(const FpduStream& stream) {
  const std::size_t largest = largest_ulpdu(stream);
  const bool uniform = std::ranges::all_of(stream.fpdus, [&](const Fpdu& fpdu) {
    return !fpdu.valid || fpdu.header.last || fpdu.ulpdu.size() == largest;
  });
  return uniform ? largest : 0;
}

}  // namespace airdma::interop
