// SPDX-License-Identifier: MIT
// The headers before the BTH are never laid out per packet. Their CRC is linear in the few fields
// that differ between packets of a flow, so it is the flow's own CRC plus what each byte of these
// fields contributes, read from tables.
#include "wire/icrc.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/be.h"

namespace airdma::wire {
namespace {

// The headers as the CRC sees them.

struct MaskedIpv4 {
  be64 ones = ~std::uint64_t{0};  // in place of a local routing header
  be8 version_and_length = 0x45;
  be8 service = 0xff;
  be16 total_length;
  be16 identification;
  be16 fragment = 0x4000;  // do not fragment
  be8 time_to_live = 0xff;
  be8 protocol = 17;
  be16 checksum = 0xffff;
  std::array<std::byte, 4> source;
  std::array<std::byte, 4> destination;
};
static_assert(sizeof(MaskedIpv4) == 28 && alignof(MaskedIpv4) == 1);

struct MaskedIpv6 {
  be64 ones = ~std::uint64_t{0};
  be32 version_class_flow = 0x6fffffff;
  be16 payload_length;
  be8 next_header = 17;
  be8 hop_limit = 0xff;
  IpAddress source;
  IpAddress destination;
};
static_assert(sizeof(MaskedIpv6) == 48 && alignof(MaskedIpv6) == 1);

struct MaskedUdp {
  be16 source_port;
  be16 destination_port;
  be16 length;
  be16 checksum = 0xffff;
};
static_assert(sizeof(MaskedUdp) == 8 && alignof(MaskedUdp) == 1);

constexpr std::size_t kUdpHeaderBytes = sizeof(MaskedUdp);
constexpr std::size_t kIpv4HeaderBytes = 20;

template <class T>
Bytes bytes_of(const T& layout) {
  return std::as_bytes(std::span(&layout, 1));
}

// Tables of the register's difference that a difference in one byte makes.

using Differences = std::array<std::uint32_t, 256>;

constexpr std::uint32_t bit_later(std::uint32_t crc) {
  return (crc >> 1) ^ (crc & 1 ? kCrc32Polynomial : 0);
}
constexpr std::uint32_t bit_earlier(std::uint32_t crc) {
  return crc >> 31 ? (crc ^ kCrc32Polynomial) << 1 | 1 : crc << 1;
}

/// The table whose value for each single bit is bit_value(bit).
template <class BitValue>
consteval Differences spread(BitValue bit_value) {
  Differences table{};
  for (unsigned bit = 0; bit < 8; ++bit) {
    const std::uint32_t value = bit_value(1u << bit);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] ^= i >> bit & 1 ? value : 0;
  }
  return table;
}

/// Difference at the end of the headers, for a byte that kFollowing bytes follow there.
template <std::size_t kFollowing>
constexpr Differences kByte = spread([](std::uint32_t value) {
  for (std::size_t i = 0; i < 8 * (kFollowing + 1); ++i) value = bit_later(value);
  return value;
});

/// The same for a field of two bytes at `offset` of headers of `total` bytes.
template <std::size_t kOffset, std::size_t kTotal>
std::uint32_t difference(std::uint16_t value) {
  return kByte<kTotal - kOffset - 1>[value >> 8] ^ kByte<kTotal - kOffset - 2>[value & 0xff];
}

constexpr std::size_t kV4Bytes = sizeof(MaskedIpv4) + sizeof(MaskedUdp);
constexpr std::size_t kV6Bytes = sizeof(MaskedIpv6) + sizeof(MaskedUdp);
constexpr std::size_t kUdpLengthFromEnd = sizeof(MaskedUdp) - offsetof(MaskedUdp, length);

/// What to add to the CRC before the BTH, so that its byte 4 counts as ones: the difference that
/// becomes byte 4's after four bytes.
constexpr Differences kBeforeBth = spread([](std::uint32_t value) {
  for (unsigned i = 0; i < 32; ++i) value = bit_earlier(value);
  return value;
});
constexpr std::size_t kMarkedByte = offsetof(Bth, qpn_word);
static_assert(kMarkedByte == 4);

// Back from the end of a packet to its identification: a factor for each length. Identification,
// flags and fragment offset are the four bytes that enter the register first, and so the
// difference that comes out is those bytes'.

constexpr std::size_t kFromIdentification = kV4Bytes - offsetof(MaskedIpv4, identification);
constexpr std::size_t kMaxPathMtu = 4096;
constexpr std::size_t kMaxUdpPayloadBytes = 44 + kMaxPathMtu + kIcrcBytes;

consteval auto make_back_factors() {
  std::array<std::uint32_t, (kFromIdentification + kMaxUdpPayloadBytes) / 4 + 1> factors{};
  std::uint32_t factor = 0x80000000;
  for (std::uint32_t& entry : factors) {
    for (unsigned i = 0; i < 32; ++i) factor = bit_earlier(factor);
    entry = factor;  // x^(-32 (index + 1)): one word more, which crc32_multiply() adds
  }
  return factors;
}
constexpr auto kBackFactors = make_back_factors();

constexpr std::uint32_t kDontFragmentBit = 0x40u << 16;
constexpr std::uint32_t kHiddenBits = 0xffffu | kDontFragmentBit;

template <class Ip>
std::uint32_t fixed_part(const Ip& ip, std::uint16_t source_port, std::uint16_t destination_port) {
  struct {
    Ip ip;
    MaskedUdp udp;
  } headers{ip, {source_port, destination_port, {}}};
  return crc32(bytes_of(headers));
}

MaskedIpv4 masked_v4(const IpAddress& source, const IpAddress& destination) {
  MaskedIpv4 ip;
  std::memcpy(ip.source.data(), source.data() + 12, ip.source.size());
  std::memcpy(ip.destination.data(), destination.data() + 12, ip.destination.size());
  return ip;
}

MaskedIpv6 masked_v6(const IpAddress& source, const IpAddress& destination) {
  MaskedIpv6 ip;
  ip.source = source;
  ip.destination = destination;
  return ip;
}

}  // namespace

bool is_mapped_v4(const IpAddress& address) {
  static constexpr std::array<std::byte, 12> kPrefix{
      {{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{0xff}, std::byte{0xff}}};
  return std::memcmp(address.data(), kPrefix.data(), kPrefix.size()) == 0;
}

IcrcFlow::IcrcFlow(const IpAddress& source, const IpAddress& destination, std::uint16_t source_port,
                   std::uint16_t destination_port)
    : fixed_(is_mapped_v4(destination)
                 ? fixed_part(masked_v4(source, destination), source_port, destination_port)
                 : fixed_part(masked_v6(source, destination), source_port, destination_port)),
      is_v4_(is_mapped_v4(destination)) {}

std::uint32_t IcrcFlow::start(std::size_t udp_payload_bytes, std::uint16_t identification) const {
  const auto udp_bytes = static_cast<std::uint16_t>(udp_payload_bytes + kUdpHeaderBytes);
  // The UDP length stands at the same distance from the BTH in both.
  const std::uint32_t crc = fixed_ ^ difference<0, kUdpLengthFromEnd>(udp_bytes);
  if (!is_v4_) {
    return crc ^ difference<offsetof(MaskedIpv6, payload_length), kV6Bytes>(udp_bytes);
  }
  const auto ip_bytes = static_cast<std::uint16_t>(udp_bytes + kIpv4HeaderBytes);
  return crc ^ difference<offsetof(MaskedIpv4, total_length), kV4Bytes>(ip_bytes) ^
         difference<offsetof(MaskedIpv4, identification), kV4Bytes>(identification);
}

bool IcrcFlow::accepts(std::uint32_t received, std::uint32_t computed,
                       std::size_t udp_payload_bytes) const {
  if (received == computed) return true;
  return is_v4_ && find_hidden_v4(received, computed, udp_payload_bytes).has_value();
}

std::optional<Ipv4Hidden> find_hidden_v4(std::uint32_t received, std::uint32_t computed,
                                         std::size_t udp_payload_bytes) {
  if (udp_payload_bytes < kIcrcBytes || udp_payload_bytes > kMaxUdpPayloadBytes ||
      udp_payload_bytes % 4 != 0) {
    return std::nullopt;
  }
  const std::size_t words = (kFromIdentification + udp_payload_bytes - kIcrcBytes) / 4;
  const std::uint32_t there = crc32_multiply(received ^ computed, kBackFactors[words]);
  if ((there & ~kHiddenBits) != 0) return std::nullopt;
  return Ipv4Hidden{__builtin_bswap16(static_cast<std::uint16_t>(there & 0xffff)),
                    (there & kDontFragmentBit) == 0};
}

std::uint32_t icrc_headers(std::uint32_t crc, Bytes bytes) {
  const auto marks = static_cast<std::uint8_t>(bytes[kMarkedByte]);
  return crc32_extend(crc ^ kBeforeBth[marks ^ 0xff], bytes);
}

std::uint32_t icrc_pad(std::uint32_t crc, std::size_t pad_bytes) {
  static constexpr std::array<std::byte, 3> kZeros{};
  return pad_bytes == 0 ? crc : crc32_extend(crc, Bytes(kZeros).first(pad_bytes));
}

std::uint32_t load_icrc(const std::byte* field) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < kIcrcBytes; ++i) {
    value |= std::to_integer<std::uint32_t>(field[i]) << 8 * i;
  }
  return value;
}

void store_icrc(std::byte* field, std::uint32_t crc) {
  for (unsigned i = 0; i < kIcrcBytes; ++i) field[i] = static_cast<std::byte>(crc >> 8 * i);
}

}  // namespace airdma::wire
