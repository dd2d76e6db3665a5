// SPDX-License-Identifier: MIT
// A stream of FPDUs, and in each its DDP segment and RDMAP message.
#include <vector>

#include "fuzz/check.h"
#include "wire/crc32c.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/print.h"
#include "wire/rdmap.h"

namespace {

using namespace airdma;
using namespace airdma::wire;

template <class T, class Parse, class Emit>
void check_message(Bytes payload, Parse parse, Emit emit) {
  const std::optional<T> message = parse(payload);
  if (!message) return;
  std::byte out[64];
  const std::size_t bytes = emit(MutableBytes(out), *message);
  FUZZ_CHECK(bytes > 0 && bytes <= payload.size());
  const std::optional<T> again = parse(Bytes(out, bytes));
  FUZZ_CHECK(again && *again == *message);
}

void check_segment(Bytes ulpdu) {
  FUZZ_CHECK(!ulpdu_to_text(ulpdu).empty());
  const auto header = parse_segment_header(ulpdu);
  if (!header) {
    FUZZ_CHECK(ulpdu.size() < kUntaggedHeaderBytes);
    return;
  }
  FUZZ_CHECK(header->bytes() <= ulpdu.size());
  std::byte out[kMaxSegmentHeaderBytes];
  FUZZ_CHECK(emit_segment_header(out, *header) == header->bytes());
  FUZZ_CHECK(parse_segment_header(Bytes(out, header->bytes())) == header);
  const Bytes payload = ulpdu.subspan(header->bytes());
  check_message<ReadRequest>(payload, parse_read_request, emit_read_request);
  check_message<Immediate>(payload, parse_immediate, emit_immediate);
  check_message<AtomicRequest>(payload, parse_atomic_request, emit_atomic_request);
  check_message<AtomicResponse>(payload, parse_atomic_response, emit_atomic_response);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes stream = airdma::fuzz::input(data, size);
  check_segment(stream);
  while (true) {
    const FpduParse parse = parse_fpdu(stream);
    if (!parse.fpdu) {
      FUZZ_CHECK(parse.needed_bytes > stream.size());
      return 0;
    }
    FUZZ_CHECK(parse.fpdu->bytes <= stream.size() && parse.fpdu->bytes % 4 == 0);
    (void)crc32c(parse.fpdu->covered);
    check_segment(parse.fpdu->ulpdu);
    stream = stream.subspan(parse.fpdu->bytes);
  }
}
