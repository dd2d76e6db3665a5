// SPDX-License-Identifier: MIT
// Terminate payloads in both bit orders.
#include "wire/terminate.h"

#include "fuzz/check.h"
#include "wire/print.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace airdma;
  using namespace airdma::wire;
  const auto message = parse_terminate(airdma::fuzz::input(data, size));
  FUZZ_CHECK(message.has_value() == (size >= kTerminateMinBytes));
  if (!message) return 0;
  FUZZ_CHECK(to_text(*message).size() < kPrintBytes);
  std::byte out[kTerminateMaxBytes];
  const std::size_t bytes = emit_terminate(out, *message);
  FUZZ_CHECK(bytes >= kTerminateMinBytes && bytes <= sizeof out);
  // Without header bits the order is a guess that may come out otherwise.
  const bool certain = message->segment_bytes || message->segment_header;
  const auto again = parse_terminate(Bytes(out, bytes));
  FUZZ_CHECK(again.has_value());
  if (certain) FUZZ_CHECK(*again == *message);
  return 0;
}
