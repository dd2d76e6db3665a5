// SPDX-License-Identifier: MIT
// The CRC32 kernels against each other, and the ICRC's shortcuts against themselves: the first
// eight bytes choose a cut, a version of IP, an identification and ports.
#include "wire/icrc.h"

#include <algorithm>

#include "fuzz/check.h"
#include "fuzz/crc_kernels.h"

namespace {

using namespace airdma;
using namespace airdma::wire;

void check_kernels(Bytes all, std::size_t cut) {
  const std::uint32_t first = airdma::fuzz::check_crc_kernels(crc32_variants(), all, cut);
  const std::uint32_t whole = crc32(all);
  const Crc32Variant& portable = crc32_variants().back();
  for (const Crc32Variant& variant : crc32_variants()) {
    if (!variant.supported()) continue;
    FUZZ_CHECK(variant.multiply(whole, first) == portable.multiply(whole, first));
  }
}

void check_icrc(const std::uint8_t* choice, Bytes packet, std::size_t cut) {
  IpAddress address{};
  address[0] = static_cast<std::byte>(choice[1] & 1);  // not IPv4 when set
  address[10] = address[11] = std::byte{0xff};
  address[15] = static_cast<std::byte>(choice[1]);
  const auto id = static_cast<std::uint16_t>(choice[2] << 8 | choice[3]);
  const IcrcFlow flow(address, address, static_cast<std::uint16_t>(choice[4] << 8 | choice[5]));
  const std::size_t bytes = packet.size() + kIcrcBytes;
  cut = std::max(cut, sizeof(Bth));
  const std::uint32_t computed = icrc_headers(flow.start(bytes, id), packet);
  const std::uint32_t pieces =
      crc32_extend(icrc_headers(flow.start(bytes, id), packet.first(cut)), packet.subspan(cut));
  FUZZ_CHECK(computed == pieces);
  const std::uint32_t unseen = icrc_headers(flow.start(bytes), packet);
  FUZZ_CHECK(flow.is_v4() == ((choice[1] & 1) == 0));
  if (!flow.is_v4()) FUZZ_CHECK(unseen == computed);
  if (packet.size() % 4 != 0 || packet.size() > 4140) return;
  FUZZ_CHECK(flow.accepts(computed, unseen, bytes));
  if (flow.is_v4()) {
    FUZZ_CHECK(find_hidden_v4(computed, unseen, bytes) == (Ipv4Hidden{id, true}));
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kChoices = 8;
  if (size < kChoices) return 0;
  const Bytes all = airdma::fuzz::input(data, size).subspan(kChoices);
  const std::size_t cut = std::min<std::size_t>(data[0], all.size());
  check_kernels(all, cut);
  if (all.size() >= sizeof(Bth)) check_icrc(data, all, cut);
  return 0;
}
