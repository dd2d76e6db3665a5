// SPDX-License-Identifier: MIT
#include "engine/iwarp/fpdu_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/guarded_copy.h"
#include "wire/crc32c.h"
#include "wire/layout.h"

namespace airdma::iwarp {
namespace {

constexpr std::size_t kMaxPadBytes = 3;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kFramingBytes = wire::kFpduLengthBytes + kMaxPadBytes + wire::kFpduCrcBytes;

/// Without a CRC nobody reads the payload before the kernel does.
void touch(Bytes bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kPageBytes) {
    [[maybe_unused]] const volatile std::byte seen = bytes[at];
  }
  [[maybe_unused]] const volatile std::byte last = bytes.back();
}

}  // namespace

void FpduWriter::start(bool crc, bool markers) {
  crc_ = crc;
  markers_ = markers;
  if (markers_) scratch_.resize(wire::fpdu_bytes(wire::kMaxUlpduBytes));
}

std::size_t FpduWriter::max_ulpdu(std::size_t room) const {
  if (markers_) {
    // One marker per started interval of 508 bytes between markers, and one at either end.
    const std::size_t intervals = room / wire::kMarkerInterval + 2;
    const std::size_t markers = intervals * wire::kMarkerBytes;
    room = room > markers ? room - markers : 0;
  }
  if (room <= kFramingBytes) return 0;
  return std::min(room - kFramingBytes, wire::kMaxUlpduBytes);
}

void FpduWriter::begin(MutableBytes out, std::size_t ulpdu_bytes) {
  out_ = out;
  start_ = markers_ ? scratch_.data() : out.data();
  next_ = start_;
  in_place_bytes_ = 0;
  drop_pending();  // of one that was not finished
  *next_++ = static_cast<std::byte>(ulpdu_bytes >> 8);
  *next_++ = static_cast<std::byte>(ulpdu_bytes);
}

void FpduWriter::header(const wire::SegmentHeader& header) {
  next_ += wire::emit_segment_header({next_, header.bytes()}, header);
  const Bytes so_far{start_, static_cast<std::size_t>(next_ - start_)};
  // With markers the CRC is over what they are put into: finish_with_markers() computes it.
  running_crc_ = crc_ && !markers_ ? wire::crc32c(so_far) : 0;
}

void FpduWriter::append(Bytes payload) {
  if (payload.empty()) return;
  if (crc_ && !markers_) {
    running_crc_ = wire::crc32c_copy(running_crc_, next_, payload);
  } else {
    std::memcpy(next_, payload.data(), payload.size());
  }
  next_ += payload.size();
}

bool FpduWriter::append_guarded(Bytes payload) {
  return guarded(payload.data(), payload.size(), [&] { append(payload); });
}

bool FpduWriter::append_in_place(model::Pin pin, Bytes payload) {
  std::uint32_t crc = running_crc_;
  const auto look = [&] {
    if (crc_) {
      crc = wire::crc32c_extend(running_crc_, payload);
    } else {
      touch(payload);
    }
  };
  if (!guarded(payload.data(), payload.size(), look)) return false;
  running_crc_ = crc;
  in_place_bytes_ += payload.size();
  in_place_[pending_++] = {.where = next_, .memory = payload, .pin = std::move(pin)};
  return true;
}

std::size_t FpduWriter::finish() {
  const auto ulpdu_bytes =
      static_cast<std::size_t>(next_ - start_) + in_place_bytes_ - wire::kFpduLengthBytes;
  const std::size_t pad = wire::fpdu_pad_bytes(ulpdu_bytes);
  std::memset(next_, 0, pad);
  if (crc_ && !markers_ && pad != 0) {
    running_crc_ = wire::crc32c_extend(running_crc_, Bytes{next_, pad});
  }
  next_ += pad;
  if (markers_) return finish_with_markers();
  // The field is present even where CRCs are off (RFC 5044 4.4); kernel siw sends zero then.
  wire::store_fpdu_crc(next_, crc_ ? running_crc_ : 0);
  next_ += wire::kFpduCrcBytes;
  for (std::size_t i = 0; i < pending_; ++i) {
    gather_->add(in_place_[i].where, in_place_[i].memory, std::move(in_place_[i].pin));
  }
  pending_ = 0;
  return static_cast<std::size_t>(next_ - start_) + in_place_bytes_;
}

std::size_t FpduWriter::finish_with_markers() {
  Bytes from{start_, static_cast<std::size_t>(next_ - start_)};
  std::byte* to = out_.data();
  const std::uint64_t fpdu_start =
      schedule_.position() + (schedule_.due() ? wire::kMarkerBytes : 0);
  const auto marker_if_due = [&] {
    if (!schedule_.due()) return;
    wire::MpaMarker marker{};
    marker.fpdu_pointer.set(schedule_.fpdu_pointer(fpdu_start));
    to += wire::store(MutableBytes{to, wire::kMarkerBytes}, marker);
    schedule_.advance(wire::kMarkerBytes);
  };
  while (!from.empty()) {
    marker_if_due();
    const std::size_t piece = std::min(from.size(), schedule_.bytes_until_due());
    std::memcpy(to, from.data(), piece);
    to += piece;
    schedule_.advance(piece);
    from = from.subspan(piece);
  }
  marker_if_due();  // right before the CRC, which covers it
  const Bytes covered{out_.data(), static_cast<std::size_t>(to - out_.data())};
  wire::store_fpdu_crc(to, crc_ ? wire::crc32c(covered) : 0);
  schedule_.advance(wire::kFpduCrcBytes);
  return covered.size() + wire::kFpduCrcBytes;
}

}  // namespace airdma::iwarp
