// SPDX-License-Identifier: MIT
// MPA's sending half (RFC 5044 4): puts one ULPDU at a time into a byte stream as an FPDU.
// Payload is copied and its CRC computed in the same pass, so memory that changes meanwhile still
// goes out with a CRC that fits what was sent.
// Not here: what the ULPDU says (DDP), how large it should be (the endpoint).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"

namespace airdma::iwarp {

/// Usage per FPDU: begin(), then header() and append() until the announced ULPDU is complete, then
/// finish(). An FPDU that is begun and not finished leaves no trace.
class FpduWriter {
 public:
  void start(bool crc, bool markers);

  /// Largest ULPDU whose FPDU fits into `room` bytes of the stream, at most kMaxUlpduBytes.
  [[nodiscard]] std::size_t max_ulpdu(std::size_t room) const;

  /// `out` has room for the FPDU: ulpdu_bytes <= max_ulpdu(out.size()).
  void begin(MutableBytes out, std::size_t ulpdu_bytes);
  void header(const wire::SegmentHeader& header);
  void append(Bytes payload);
  /// The same out of memory that the program may have taken away: false then.
  [[nodiscard]] bool append_guarded(Bytes payload);
  /// Bytes of `out` that were used.
  [[nodiscard]] std::size_t finish();

 private:
  [[nodiscard]] std::size_t finish_with_markers();

  bool crc_ = true;
  bool markers_ = false;
  wire::MarkerSchedule schedule_;
  MutableBytes out_;
  std::byte* start_ = nullptr;  // of the FPDU being built: in out_, or in scratch_ with markers
  std::byte* next_ = nullptr;
  std::uint32_t running_crc_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace airdma::iwarp
