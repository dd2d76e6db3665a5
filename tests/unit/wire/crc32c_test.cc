// SPDX-License-Identifier: MIT
#include "wire/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <string>

#ifdef AIRDMA_HAVE_ISAL
#include <isa-l/crc.h>
#endif

#include "tests/support/bytes.h"

namespace airdma::wire {

/// Names the variant in test lists and failures, where GoogleTest would print an address.
void PrintTo(const Crc32cVariant* variant, std::ostream* out) { *out << variant->name; }

namespace {

using test::ByteVector;

/// One bit at a time: slow, and plainly the definition.
std::uint32_t crc32c_bitwise(std::uint32_t crc, Bytes bytes) {
  crc = ~crc;
  for (std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
  }
  return ~crc;
}

class Crc32cVariants : public testing::TestWithParam<const Crc32cVariant*> {
 protected:
  void SetUp() override {
    if (!variant().supported()) GTEST_SKIP() << "this CPU lacks " << variant().name;
  }
  static const Crc32cVariant& variant() { return *GetParam(); }
};

TEST_P(Crc32cVariants, GivesTheKnownValues) {
  const char* digits = "123456789";
  EXPECT_EQ(variant().extend(0, std::as_bytes(std::span(digits, 9))), 0xe3069283u);
  ByteVector bytes(32);  // the examples of RFC 3720 B.4
  EXPECT_EQ(variant().extend(0, bytes), 0x8a9136aau);
  std::ranges::fill(bytes, std::byte{0xff});
  EXPECT_EQ(variant().extend(0, bytes), 0x62a8ab43u);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(variant().extend(0, bytes), 0x46dd794eu);
  EXPECT_EQ(variant().extend(0x12345678, {}), 0x12345678u);
}

TEST_P(Crc32cVariants, AgreesWithTheDefinitionAtEveryLength) {
  const ByteVector data = test::pattern(1600 + 64);
  for (std::size_t n = 0; n <= 1600; ++n) {
    const Bytes bytes = Bytes(data).subspan(n % 61, n);
    ASSERT_EQ(variant().extend(0x01020304, bytes), crc32c_bitwise(0x01020304, bytes)) << n;
  }
}

TEST_P(Crc32cVariants, AgreesAtEveryAlignment) {
  const ByteVector data = test::pattern(5000);
  for (std::size_t offset = 0; offset < 64; ++offset) {
    for (std::size_t n : {1u, 7u, 63u, 64u, 65u, 255u, 256u, 257u, 511u, 1443u, 4099u}) {
      const Bytes bytes = Bytes(data).subspan(offset, n);
      ASSERT_EQ(variant().extend(0, bytes), crc32c_bitwise(0, bytes)) << offset << "+" << n;
    }
  }
}

TEST_P(Crc32cVariants, ContinuesWhereItStopped) {
  const ByteVector data = test::pattern(3000, 7);
  const std::uint32_t whole = crc32c_bitwise(0, data);
  for (std::size_t cut = 0; cut <= data.size(); cut += 37) {
    const std::uint32_t first = variant().extend(0, Bytes(data).first(cut));
    ASSERT_EQ(variant().extend(first, Bytes(data).subspan(cut)), whole) << cut;
  }
}

TEST_P(Crc32cVariants, CopiesExactlyWhatItReads) {
  const ByteVector from = test::pattern(9000, 3);
  for (std::size_t n = 0; n < 8200; n += n < 600 ? 1 : 97) {
    const std::size_t offset = n % 59;
    ByteVector to(n + 128, std::byte{0xee});
    const Bytes bytes = Bytes(from).subspan(n % 53, n);
    ASSERT_EQ(variant().copy(5, to.data() + offset, bytes), crc32c_bitwise(5, bytes)) << n;
    const auto copied = Bytes(to).subspan(offset, n);
    ASSERT_TRUE(std::ranges::equal(copied, bytes)) << n;
    const auto untouched = [](std::byte b) { return b == std::byte{0xee}; };
    ASSERT_TRUE(std::ranges::all_of(Bytes(to).first(offset), untouched)) << n;
    ASSERT_TRUE(std::ranges::all_of(Bytes(to).subspan(offset + n), untouched)) << n;
  }
}

TEST_P(Crc32cVariants, SeesEverySingleBitError) {
  ByteVector data = test::pattern(600);
  const std::uint32_t right = variant().extend(0, data);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << bit % 8);
    data[bit / 8] ^= mask;
    ASSERT_NE(variant().extend(0, data), right) << bit;
    data[bit / 8] ^= mask;
  }
}

#ifdef AIRDMA_HAVE_ISAL
TEST_P(Crc32cVariants, AgreesWithIsal) {
  ByteVector data = test::pattern(70000, 11);
  for (std::size_t n = 0; n <= 65536; n += n < 4096 ? 13 : 4093) {
    auto* start = reinterpret_cast<unsigned char*>(data.data() + n % 64);
    const Bytes bytes = Bytes(data).subspan(n % 64, n);
    ASSERT_EQ(variant().extend(0, bytes), ~crc32_iscsi(start, static_cast<int>(n), ~0u)) << n;
  }
}
#endif

std::vector<const Crc32cVariant*> pointers() {
  std::vector<const Crc32cVariant*> all;
  for (const Crc32cVariant& variant : crc32c_variants()) all.push_back(&variant);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Crc32cVariants, testing::ValuesIn(pointers()), [](const auto& test) {
  std::string name = test.param->name;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(Crc32c, AlwaysHasAPortableVariant) {
  EXPECT_STREQ(crc32c_variants().back().name, "portable");
  EXPECT_TRUE(crc32c_variants().back().supported());
}

TEST(Crc32c, ChoosesAVariantThatAgrees) {
  const ByteVector data = test::pattern(2000);
  ByteVector copy(2000);
  EXPECT_EQ(crc32c(data), crc32c_bitwise(0, data));
  EXPECT_EQ(crc32c_copy(0, copy.data(), data), crc32c(data));
  EXPECT_EQ(copy, data);
}

}  // namespace
}  // namespace airdma::wire
