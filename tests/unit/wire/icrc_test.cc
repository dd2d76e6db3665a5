// SPDX-License-Identifier: MIT
// Packets of the kernel's rxe, and an ICRC computed plainly over headers laid out in full.
#include "wire/icrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/bytes.h"

namespace airdma::wire {
namespace {

using test::ByteVector;
using test::from_hex;
using test::pattern;

// Whole IP packets: rxe-cm-write-5001.pcap's SEND_ONLY and ACK, rxe-rping-v6.pcap's SEND_ONLY and
// READ_RESPONSE_ONLY.
constexpr const char* kV4Send =
    "45000030273540004011fed70a4d000b0a4d000c fcec12b7001c0000 0400ffff0000001c807821f1 00001000"
    "56af1555";
constexpr const char* kV4Ack =
    "45000030603c40004011c5d00a4d000c0a4d000b fcec12b7001c0000 1100ffff0000001c007821f0 1f000001"
    "a0dca866";
constexpr const char* kV6Send =
    "6000000000281140 fd770000000000000000000000000011 fd770000000000000000000000000012"
    "e02e12b700280000 0400ffff00000012804f0597 0000556206e836e00000097600000040 0d6339f9";
constexpr const char* kV6ReadResponse =
    "60000000005c1140 fd770000000000000000000000000011 fd770000000000000000000000000012"
    "e02e12b7005c0000 1000ffff00000012002d01d8 1f000001"
    "72646d612d70696e672d303a204142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
    "606162636465666768696a6b6c6d6e6f70717200 6ffa8504";

std::uint16_t u16(Bytes bytes, std::size_t at) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[at]) << 8 |
                                    std::to_integer<unsigned>(bytes[at + 1]));
}

/// An IP packet taken apart.
struct Packet {
  explicit Packet(ByteVector from) : bytes(std::move(from)) {
    v4 = std::to_integer<unsigned>(bytes[0]) >> 4 == 4;
    udp = v4 ? 20 : 40;
  }
  [[nodiscard]] IpAddress address(std::size_t index) const {
    IpAddress out{};
    if (!v4) {
      std::copy_n(bytes.begin() + 8 + 16 * static_cast<std::ptrdiff_t>(index), 16, out.begin());
      return out;
    }
    out[10] = out[11] = std::byte{0xff};
    std::copy_n(bytes.begin() + 12 + 4 * static_cast<std::ptrdiff_t>(index), 4, out.begin() + 12);
    return out;
  }
  [[nodiscard]] IcrcFlow flow() const {
    return {address(0), address(1), u16(bytes, udp), u16(bytes, udp + 2)};
  }
  [[nodiscard]] Bytes payload() const { return Bytes(bytes).subspan(udp + 8); }  // with ICRC
  [[nodiscard]] Bytes covered() const { return payload().first(payload().size() - kIcrcBytes); }
  [[nodiscard]] std::uint32_t field() const { return load_icrc(&bytes[bytes.size() - kIcrcBytes]); }
  [[nodiscard]] std::uint16_t identification() const { return v4 ? u16(bytes, 4) : 0; }
  [[nodiscard]] std::uint32_t computed(std::uint16_t id) const {
    return icrc_headers(flow().start(payload().size(), id), covered());
  }

  ByteVector bytes;
  bool v4 = false;
  std::size_t udp = 0;
};

/// The definition: everything laid out, masked, and one CRC over it.
std::uint32_t plain_icrc(const Packet& packet) {
  ByteVector all(8 + packet.bytes.size() - kIcrcBytes, std::byte{0xff});
  std::copy(packet.bytes.begin(), packet.bytes.end() - kIcrcBytes, all.begin() + 8);
  const auto mask = [&](std::size_t at, unsigned bits) {
    all[8 + at] |= static_cast<std::byte>(bits);
  };
  const std::vector<std::size_t> masked =
      packet.v4 ? std::vector<std::size_t>{1, 8, 10, 11} : std::vector<std::size_t>{1, 2, 3, 7};
  for (std::size_t at : masked) mask(at, 0xff);
  if (!packet.v4) mask(0, 0x0f);
  for (std::size_t at : {6, 7, 8 + 4}) mask(packet.udp + at, 0xff);
  return crc32_variants().back().extend(0, all);
}

/// A packet that nobody sent, with an ICRC by the definition.
Packet made(bool v4, std::size_t roce_bytes, std::uint64_t seed) {
  const std::size_t ip_bytes = v4 ? 20 : 40;
  ByteVector bytes = pattern(ip_bytes + 8 + roce_bytes + kIcrcBytes, seed);
  const auto put16 = [&](std::size_t at, std::size_t value) {
    bytes[at] = static_cast<std::byte>(value >> 8);
    bytes[at + 1] = static_cast<std::byte>(value);
  };
  bytes[0] = v4 ? std::byte{0x45} : std::byte{0x6a};
  if (v4) {
    put16(2, bytes.size());
    put16(6, 0x4000);
    bytes[9] = std::byte{17};
  } else {
    put16(4, bytes.size() - ip_bytes);
    bytes[6] = std::byte{17};
  }
  put16(ip_bytes + 4, bytes.size() - ip_bytes);
  Packet packet(std::move(bytes));
  store_icrc(&packet.bytes[packet.bytes.size() - kIcrcBytes], plain_icrc(packet));
  return packet;
}

std::vector<Packet> samples() {
  std::vector<Packet> packets;
  for (const char* hex : {kV4Send, kV4Ack, kV6Send, kV6ReadResponse}) {
    packets.emplace_back(from_hex(hex));
  }
  for (std::size_t bytes : {12, 16, 28, 40, 44, 268, 1036, 2064, 4108, 4140}) {
    packets.push_back(made(true, bytes, bytes));
    packets.push_back(made(false, bytes, bytes + 1));
  }
  return packets;
}

TEST(Icrc, IsTheKernels) {
  for (const char* hex : {kV4Send, kV4Ack, kV6Send, kV6ReadResponse}) {
    const Packet packet(from_hex(hex));
    EXPECT_EQ(plain_icrc(packet), packet.field());
    EXPECT_EQ(packet.computed(packet.identification()), packet.field());
  }
}

TEST(Icrc, IsTheDefinitionForEveryLengthAndField) {
  for (const Packet& packet : samples()) {
    EXPECT_EQ(packet.computed(packet.identification()), packet.field())
        << packet.payload().size() << (packet.v4 ? " v4" : " v6");
  }
}

TEST(Icrc, GoesOnInAnyPieces) {
  const Packet packet = made(true, 1036 + 2, 5);
  ByteVector bytes = packet.bytes;
  std::fill(bytes.end() - 6, bytes.end() - 4, std::byte{0});  // its pad
  const Packet padded(bytes);
  const std::size_t headers = 28;
  const Bytes data = padded.covered().subspan(headers, padded.covered().size() - headers - 2);
  ByteVector copy(data.size());
  std::uint32_t crc = padded.flow().start(padded.payload().size(), padded.identification());
  crc = icrc_headers(crc, padded.covered().first(headers));
  crc = crc32_extend(crc, data.first(333));
  crc = crc32_copy(crc, copy.data(), data.subspan(333));
  EXPECT_EQ(icrc_pad(crc, 2), plain_icrc(padded));
  EXPECT_TRUE(std::ranges::equal(Bytes(copy).first(data.size() - 333), data.subspan(333)));
}

TEST(Icrc, CountsCongestionMarksAsOnes) {
  for (const char* hex : {kV4Send, kV6Send}) {
    Packet packet(from_hex(hex));
    for (unsigned marks = 0; marks < 256; ++marks) {
      packet.bytes[packet.udp + 8 + 4] = static_cast<std::byte>(marks);
      EXPECT_EQ(packet.computed(packet.identification()), packet.field()) << marks;
    }
  }
}

TEST(Icrc, IgnoresWhatRoutersChange) {
  Packet v4(from_hex(kV4Send));
  for (std::size_t at : {1, 8, 10, 11, 26, 27}) v4.bytes[at] ^= std::byte{0x5a};
  EXPECT_EQ(plain_icrc(v4), v4.field());
  Packet v6(from_hex(kV6Send));
  v6.bytes[0] = std::byte{0x65};
  for (std::size_t at : {1, 2, 3, 7, 46, 47}) v6.bytes[at] ^= std::byte{0x5a};
  EXPECT_EQ(plain_icrc(v6), v6.field());
}

TEST(IcrcCheck, FindsTheIdentificationThatTheReceiverDidNotSee) {
  for (Packet packet : samples()) {
    if (!packet.v4) continue;
    const auto hidden = find_hidden_v4(packet.field(), packet.computed(0), packet.payload().size());
    EXPECT_EQ(hidden, (Ipv4Hidden{packet.identification(), true}));
    EXPECT_TRUE(packet.flow().accepts(packet.field(), packet.computed(0), packet.payload().size()));
    packet.bytes[6] = std::byte{0};  // may be fragmented
    const auto other =
        find_hidden_v4(plain_icrc(packet), packet.computed(0), packet.payload().size());
    EXPECT_EQ(other, (Ipv4Hidden{packet.identification(), false}));
  }
}

TEST(IcrcCheck, FindsEveryIdentification) {
  const Packet packet = made(true, 1052, 9);
  const std::uint32_t computed = packet.computed(0);
  for (unsigned id = 0; id < 65536; ++id) {
    const auto identification = static_cast<std::uint16_t>(id);
    const auto hidden =
        find_hidden_v4(packet.computed(identification), computed, packet.payload().size());
    ASSERT_EQ(hidden, (Ipv4Hidden{identification, true}));
  }
}

TEST(IcrcCheck, SeesNearlyEverySingleBitError) {
  // The price of not seeing the identification: where one makes the same difference as the error,
  // the packet is taken. UDP's checksum stands before this one.
  unsigned accepted = 0;
  unsigned tries = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Packet packet = made(true, 4124, seed);
    for (std::size_t bit = 0; bit < 8 * packet.covered().size(); ++bit) {
      if (bit / 8 == 4) continue;  // not covered: congestion marks
      const std::size_t at = packet.udp + 8 + bit / 8;
      packet.bytes[at] ^= static_cast<std::byte>(1u << bit % 8);
      accepted +=
          packet.flow().accepts(packet.field(), packet.computed(0), packet.payload().size());
      packet.bytes[at] ^= static_cast<std::byte>(1u << bit % 8);
      ++tries;
    }
  }
  EXPECT_GT(tries, 8u * 32768);
  EXPECT_LT(accepted, 8u * 4);
}

TEST(IcrcCheck, AcceptsOneRandomDifferenceIn32768) {
  const Packet packet = made(true, 1036, 21);
  const std::uint32_t computed = packet.computed(0);
  std::mt19937 random(1);
  unsigned accepted = 0;
  constexpr unsigned kTries = 1u << 21;
  for (unsigned i = 0; i < kTries; ++i) {
    accepted += packet.flow().accepts(static_cast<std::uint32_t>(random()), computed,
                                      packet.payload().size());
  }
  EXPECT_GT(accepted, 32u);  // 64 is the mean
  EXPECT_LT(accepted, 110u);
}

TEST(IcrcCheck, IsExactOverIpv6) {
  const Packet packet(from_hex(kV6ReadResponse));
  const std::uint32_t computed = packet.computed(0);
  EXPECT_TRUE(packet.flow().accepts(computed, computed, packet.payload().size()));
  for (unsigned bit = 0; bit < 32; ++bit) {
    EXPECT_FALSE(packet.flow().accepts(computed ^ 1u << bit, computed, packet.payload().size()));
  }
  EXPECT_EQ(packet.computed(7), computed) << "IPv6 has no identification";
}

TEST(IcrcCheck, RefusesLengthsThatNoPacketHas) {
  EXPECT_FALSE(find_hidden_v4(0, 0, 4149 + 3).has_value());
  EXPECT_FALSE(find_hidden_v4(0, 0, 22).has_value());
  EXPECT_FALSE(find_hidden_v4(0, 0, 0).has_value());
  EXPECT_TRUE(find_hidden_v4(0, 0, 44 + 4096 + 4).has_value());
  EXPECT_TRUE(find_hidden_v4(0, 0, 16).has_value());
}

}  // namespace
}  // namespace airdma::wire
