// SPDX-License-Identifier: MIT
#include "wire/mpa.h"

#include <algorithm>
#include <cstring>

#include "wire/layout.h"

namespace airdma::wire {
namespace {

constexpr std::size_t kKeyBytes = 16;
constexpr std::uint8_t kEnhancedRevision = 2;

const char* key_of(MpaFrameKind kind) {
  return kind == MpaFrameKind::kRequest ? "MPA ID Req Frame" : "MPA ID Rep Frame";
}

bool key_may_match(Bytes stream, MpaFrameKind kind) {
  const std::size_t seen = std::min(stream.size(), kKeyBytes);
  return seen == 0 || std::memcmp(stream.data(), key_of(kind), seen) == 0;
}

bool is_enhanced(const MpaHeader& header) {
  return header.revision.get() >= kEnhancedRevision && MpaHeader::Enhanced::get(header) != 0;
}

MpaParse failed(MpaError error) {
  MpaParse parse;
  parse.error = error;
  return parse;
}

MpaParse more(std::size_t needed_bytes) {
  MpaParse parse;
  parse.needed_bytes = needed_bytes;
  return parse;
}

MpaEnhanced enhanced_of(const MpaEnhancedWord& word) {
  return {
      .ird = MpaEnhancedWord::Ird::get(word),
      .ord = MpaEnhancedWord::Ord::get(word),
      .peer_to_peer = MpaEnhancedWord::PeerToPeer::get(word) != 0,
      .rtr_send = MpaEnhancedWord::RtrSend::get(word) != 0,
      .rtr_write = MpaEnhancedWord::RtrWrite::get(word) != 0,
      .rtr_read = MpaEnhancedWord::RtrRead::get(word) != 0,
  };
}

MpaEnhancedWord word_of(const MpaEnhanced& enhanced) {
  MpaEnhancedWord word{};
  MpaEnhancedWord::Ird::set(word, enhanced.ird);
  MpaEnhancedWord::Ord::set(word, enhanced.ord);
  MpaEnhancedWord::PeerToPeer::set(word, enhanced.peer_to_peer);
  MpaEnhancedWord::RtrSend::set(word, enhanced.rtr_send);
  MpaEnhancedWord::RtrWrite::set(word, enhanced.rtr_write);
  MpaEnhancedWord::RtrRead::set(word, enhanced.rtr_read);
  return word;
}

MpaFrame frame_of(MpaFrameKind kind, const MpaHeader& header, Bytes private_data) {
  MpaFrame frame;
  frame.kind = kind;
  frame.markers = MpaHeader::Markers::get(header) != 0;
  frame.crc = MpaHeader::Crc::get(header) != 0;
  frame.reject = MpaHeader::Reject::get(header) != 0;
  frame.reserved = MpaHeader::Reserved::get(header);
  frame.revision = header.revision.get();
  if (is_enhanced(header)) {
    if (const auto word = load<MpaEnhancedWord>(private_data)) frame.enhanced = enhanced_of(*word);
    private_data = skip(private_data, sizeof(MpaEnhancedWord));
  }
  frame.private_data = private_data;
  return frame;
}

MpaHeader header_of(const MpaFrame& frame, std::size_t pd_length) {
  MpaHeader header{};
  std::memcpy(header.key.data(), key_of(frame.kind), kKeyBytes);
  MpaHeader::Markers::set(header, frame.markers);
  MpaHeader::Crc::set(header, frame.crc);
  MpaHeader::Reject::set(header, frame.reject);
  MpaHeader::Enhanced::set(header, frame.enhanced.has_value());
  MpaHeader::Reserved::set(header, frame.reserved);
  header.revision = frame.revision;
  header.pd_length = static_cast<std::uint16_t>(pd_length);
  return header;
}

}  // namespace

bool operator==(const MpaFrame& a, const MpaFrame& b) {
  return a.kind == b.kind && a.markers == b.markers && a.crc == b.crc && a.reject == b.reject &&
         a.reserved == b.reserved && a.revision == b.revision && a.enhanced == b.enhanced &&
         std::ranges::equal(a.private_data, b.private_data);
}

MpaParse parse_mpa(Bytes stream, MpaFrameKind expected) {
  if (!key_may_match(stream, expected)) return failed(MpaError::kWrongKey);
  const auto header = load<MpaHeader>(stream);
  if (!header) return more(sizeof(MpaHeader));
  const std::size_t pd_length = header->pd_length.get();
  if (pd_length > kMpaMaxPdLength) return failed(MpaError::kPrivateDataTooLong);
  if (is_enhanced(*header) && pd_length < sizeof(MpaEnhancedWord)) {
    return failed(MpaError::kEnhancedTooShort);
  }
  const std::size_t total = sizeof(MpaHeader) + pd_length;
  if (stream.size() < total) return more(total);
  MpaParse parse;
  parse.frame = frame_of(expected, *header, stream.subspan(sizeof(MpaHeader), pd_length));
  parse.frame_bytes = total;
  return parse;
}

std::size_t mpa_frame_bytes(const MpaFrame& frame) {
  return sizeof(MpaHeader) + (frame.enhanced ? sizeof(MpaEnhancedWord) : 0) +
         frame.private_data.size();
}

std::size_t emit_mpa(MutableBytes out, const MpaFrame& frame) {
  const std::size_t total = mpa_frame_bytes(frame);
  const std::size_t pd_length = total - sizeof(MpaHeader);
  if (out.size() < total || pd_length > kMpaMaxPdLength) return 0;
  if (frame.enhanced && frame.revision < kEnhancedRevision) return 0;
  std::size_t at = store(out, header_of(frame, pd_length));
  if (frame.enhanced) at += store(out.subspan(at), word_of(*frame.enhanced));
  std::ranges::copy(frame.private_data, out.subspan(at).begin());
  return total;
}

FpduParse parse_fpdu(Bytes stream) {
  FpduParse parse;
  const auto length = load<be16>(stream);
  if (!length) {
    parse.needed_bytes = kFpduLengthBytes;
    return parse;
  }
  const std::size_t ulpdu_bytes = length->get();
  const std::size_t total = fpdu_bytes(ulpdu_bytes);
  if (stream.size() < total) {
    parse.needed_bytes = total;
    return parse;
  }
  FpduView view;
  view.ulpdu = stream.subspan(kFpduLengthBytes, ulpdu_bytes);
  view.covered = stream.first(total - kFpduCrcBytes);
  view.crc = load_fpdu_crc(stream.data() + total - kFpduCrcBytes);
  view.bytes = total;
  parse.fpdu = view;
  return parse;
}

std::uint32_t load_fpdu_crc(const std::byte* field) {
  be32 value;
  std::memcpy(static_cast<void*>(&value), field, sizeof value);
  return __builtin_bswap32(value.get());
}

void store_fpdu_crc(std::byte* field, std::uint32_t crc) {
  const be32 value = __builtin_bswap32(crc);
  std::memcpy(field, &value, sizeof value);
}

std::size_t MarkerSchedule::markers_among(std::size_t bytes) const {
  const std::size_t before = bytes_until_due();
  if (bytes <= before) return 0;
  constexpr std::size_t kBetween = kMarkerInterval - kMarkerBytes;
  return 1 + (bytes - before - 1) / kBetween;
}

std::size_t max_ulpdu_bytes(std::size_t emss_bytes, bool markers) {
  const std::size_t marker_bytes =
      markers ? kMarkerBytes * ((emss_bytes + kMarkerInterval - 1) / kMarkerInterval) : 0;
  const std::size_t overhead = kFpduLengthBytes + kFpduCrcBytes + marker_bytes + emss_bytes % 4;
  return emss_bytes > overhead ? std::min(emss_bytes - overhead, kMaxUlpduBytes) : 0;
}

}  // namespace airdma::wire
