// SPDX-License-Identifier: MIT
// MPA's sending half (RFC 5044 4): puts one ULPDU at a time into a byte stream as an FPDU.
// Payload is copied and its CRC computed in the same pass, so memory that changes meanwhile still
// goes out with a CRC that fits what was sent; only what append_in_place() is given stays where it
// is (docs/decisions/0013).
// Not here: what the ULPDU says (DDP), how large it should be (the endpoint).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "engine/iwarp/gather.h"
#include "model/memory.h"
#include "wire/ddp.h"
#include "wire/mpa.h"

namespace airdma::iwarp {

/// Usage per FPDU: begin(), then header() and append() until the announced ULPDU is complete, then
/// finish(). An FPDU that is begun and not finished leaves no trace.
class FpduWriter {
 public:
  void start(bool crc, bool markers);

  /// From here on large payloads may be left where they are and noted in `gather`, whose buffer the
  /// FPDUs then go to; nullptr: no more.
  void gather_into(Gather* gather) {
    gather_ = gather;
    drop_pending();
  }

  /// Largest ULPDU whose FPDU fits into `room` bytes of the stream, at most kMaxUlpduBytes.
  [[nodiscard]] std::size_t max_ulpdu(std::size_t room) const;

  /// `out` has room for the FPDU: ulpdu_bytes <= max_ulpdu(out.size()).
  void begin(MutableBytes out, std::size_t ulpdu_bytes);
  void header(const wire::SegmentHeader& header);
  void append(Bytes payload);
  /// The same out of memory that the program may have taken away: false then.
  [[nodiscard]] bool append_guarded(Bytes payload);
  /// What was gathered is enough for one call into the kernel.
  [[nodiscard]] bool gathered_enough() const { return gather_ != nullptr && gather_->room() == 0; }
  /// Whether append_in_place() is possible.
  [[nodiscard]] bool can_append_in_place() const {
    return gather_ != nullptr && !markers_ && pending_ < kMostPending && gather_->room() > pending_;
  }
  /// As append_guarded(), but without a copy: the memory is sent from where it is, and must not
  /// change until then.
  [[nodiscard]] bool append_in_place(model::Pin pin, Bytes payload);
  /// Bytes of the FPDU in the stream.
  [[nodiscard]] std::size_t finish();
  /// Of these, what is not in `out`.
  [[nodiscard]] std::size_t in_place_bytes() const { return in_place_bytes_; }

 private:
  struct InPlace {
    const std::byte* where = nullptr;  // in out_, between the bytes of the FPDU
    Bytes memory;
    model::Pin pin;
  };
  // Limit: pieces of one FPDU.
  static constexpr std::size_t kMostPending = 4;

  [[nodiscard]] std::size_t finish_with_markers();
  void drop_pending() {
    while (pending_ != 0) in_place_[--pending_].pin = {};
  }

  bool crc_ = true;
  bool markers_ = false;
  wire::MarkerSchedule schedule_;
  MutableBytes out_;
  std::byte* start_ = nullptr;  // of the FPDU being built: in out_, or in scratch_ with markers
  std::byte* next_ = nullptr;
  std::uint32_t running_crc_ = 0;
  std::vector<std::byte> scratch_;
  Gather* gather_ = nullptr;
  InPlace in_place_[kMostPending];  // of the FPDU being built
  std::size_t pending_ = 0;
  std::size_t in_place_bytes_ = 0;
};

}  // namespace airdma::iwarp
