// SPDX-License-Identifier: MIT
// A RoCEv2 packet, ICRC left off: what parses comes out of the emitter as it went in, the reserved
// bits aside.
#include "wire/roce_packet.h"

#include <algorithm>

#include "fuzz/check.h"
#include "wire/print.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace airdma;
  using namespace airdma::wire;
  const Bytes bytes = fuzz::input(data, size);
  FUZZ_CHECK(!roce_to_text(bytes).empty());
  const auto packet = parse_roce_packet(bytes);
  if (!packet) {
    FUZZ_CHECK((packet.error().fault == RoceFault::kTruncated) == (size < sizeof(Bth)));
    return 0;
  }
  FUZZ_CHECK(packet->info->known && packet->info->opcode == data[0]);
  FUZZ_CHECK(packet->info->header_bytes + packet->payload.size() + packet->pad_bytes == size);
  FUZZ_CHECK(packet->info->may_carry_payload || packet->payload.empty());
  std::byte headers[kMaxRoceHeaderBytes];
  FUZZ_CHECK(emit_roce_headers(headers, *packet) == packet->info->header_bytes);
  // The same packet again, from the emitted headers.
  std::byte whole[kMaxRoceHeaderBytes + 64];
  const std::size_t rest = size - packet->info->header_bytes;
  if (rest > 64) return 0;
  std::copy_n(headers, packet->info->header_bytes, whole);
  std::ranges::copy(bytes.last(rest), whole + packet->info->header_bytes);
  const auto again = parse_roce_packet(Bytes(whole, size));
  FUZZ_CHECK(again && to_text(*again) == to_text(*packet));
  std::byte second[kMaxRoceHeaderBytes];
  FUZZ_CHECK(emit_roce_headers(second, *again) == packet->info->header_bytes);
  FUZZ_CHECK(std::equal(second, second + packet->info->header_bytes, headers));
  return 0;
}
