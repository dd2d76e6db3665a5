// SPDX-License-Identifier: MIT
// Datagrams of the communication manager, and the header that the RDMA CM puts in private data.
#include "wire/ib_cm.h"

#include "fuzz/check.h"
#include "wire/ib_cm_print.h"

namespace {

using namespace airdma;
using namespace airdma::wire;

void check_cma(Bytes private_data) {
  const auto header = parse_cma(private_data);
  if (!header) return;
  std::array<std::byte, kCmaHeaderBytes> out;
  emit_cma(out, *header);
  const auto again = parse_cma(out);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(again->source_port == header->source_port && again->source == header->source);
  FUZZ_CHECK(to_text(*header).size() < kPrintBytes);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input = airdma::fuzz::input(data, size);
  char room[kPrintBytes];
  FUZZ_CHECK(print_cm(room, input).size() < kPrintBytes);
  check_cma(input);
  const auto mad = parse_cm(input);
  if (!mad) return 0;
  std::visit([](const auto& message) { check_cma(message.private_data); }, mad->message);
  MadBuffer out;
  FUZZ_CHECK(emit_cm(out, *mad));
  const auto again = parse_cm(out);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(*again == *mad);
  return 0;
}
