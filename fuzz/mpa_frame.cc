// SPDX-License-Identifier: MIT
// MPA request and reply frames.
#include "wire/mpa.h"

#include <vector>

#include "fuzz/check.h"
#include "wire/print.h"

namespace {

using namespace airdma;
using namespace airdma::wire;

void check_frame(const MpaParse& parse, Bytes stream) {
  const MpaFrame& frame = *parse.frame;
  FUZZ_CHECK(parse.frame_bytes <= stream.size());
  FUZZ_CHECK(!parse.error);
  std::vector<std::byte> out(mpa_frame_bytes(frame));
  FUZZ_CHECK(out.size() == parse.frame_bytes);
  FUZZ_CHECK(emit_mpa(out, frame) == out.size());
  const MpaParse again = parse_mpa(out, frame.kind);
  FUZZ_CHECK(again.frame && *again.frame == frame);
  FUZZ_CHECK(!to_text(frame).empty());
}

void check(Bytes stream, MpaFrameKind kind) {
  const MpaParse parse = parse_mpa(stream, kind);
  if (parse.frame) return check_frame(parse, stream);
  if (!parse.error) {
    FUZZ_CHECK(parse.needed_bytes > stream.size());
    FUZZ_CHECK(parse.needed_bytes <= sizeof(MpaHeader) + kMpaMaxPdLength);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check(airdma::fuzz::input(data, size), MpaFrameKind::kRequest);
  check(airdma::fuzz::input(data, size), MpaFrameKind::kReply);
  return 0;
}
