// SPDX-License-Identifier: MIT
#include "wire/crc32.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <string>

#ifdef AIRDMA_HAVE_ISAL
#include <isa-l/crc.h>
#endif
#ifdef AIRDMA_HAVE_ZLIB
#include <zlib.h>
#endif

#include "tests/support/bytes.h"

namespace airdma::wire {

/// Names the variant in test lists and failures, where GoogleTest would print an address.
void PrintTo(const Crc32Variant* variant, std::ostream* out) { *out << variant->name; }

namespace {

using test::ByteVector;

#ifdef AIRDMA_HAVE_ZLIB
std::uint32_t zlib_crc32(const unsigned char* start, std::size_t bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, start, bytes));
}
#endif

/// One bit at a time: slow, and plainly the definition.
std::uint32_t crc32_bitwise(std::uint32_t crc, Bytes bytes) {
  crc = ~crc;
  for (std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (kCrc32Polynomial & (0u - (crc & 1)));
  }
  return ~crc;
}

class Crc32Variants : public testing::TestWithParam<const Crc32Variant*> {
 protected:
  void SetUp() override {
    if (!variant().supported()) GTEST_SKIP() << "this CPU lacks " << variant().name;
  }
  static const Crc32Variant& variant() { return *GetParam(); }
};

TEST_P(Crc32Variants, GivesTheKnownValues) {
  const char* digits = "123456789";
  EXPECT_EQ(variant().extend(0, std::as_bytes(std::span(digits, 9))), 0xcbf43926u);
  EXPECT_EQ(variant().extend(0, ByteVector(32)), 0x190a55adu);
  EXPECT_EQ(variant().extend(0, ByteVector(32, std::byte{0xff})), 0xff6cab0bu);
  EXPECT_EQ(variant().extend(0x12345678, {}), 0x12345678u);
}

TEST_P(Crc32Variants, AgreesWithTheDefinitionAtEveryLength) {
  const ByteVector data = test::pattern(1600 + 64);
  for (std::size_t n = 0; n <= 1600; ++n) {
    const Bytes bytes = Bytes(data).subspan(n % 61, n);
    ASSERT_EQ(variant().extend(0x01020304, bytes), crc32_bitwise(0x01020304, bytes)) << n;
  }
}

TEST_P(Crc32Variants, AgreesAtEveryAlignment) {
  const ByteVector data = test::pattern(5000);
  for (std::size_t offset = 0; offset < 64; ++offset) {
    for (std::size_t n : {1u, 7u, 63u, 64u, 65u, 255u, 256u, 257u, 511u, 1443u, 4099u}) {
      const Bytes bytes = Bytes(data).subspan(offset, n);
      ASSERT_EQ(variant().extend(0, bytes), crc32_bitwise(0, bytes)) << offset << "+" << n;
    }
  }
}

TEST_P(Crc32Variants, ContinuesWhereItStopped) {
  const ByteVector data = test::pattern(3000, 7);
  const std::uint32_t whole = crc32_bitwise(0, data);
  for (std::size_t cut = 0; cut <= data.size(); cut += 37) {
    const std::uint32_t first = variant().extend(0, Bytes(data).first(cut));
    ASSERT_EQ(variant().extend(first, Bytes(data).subspan(cut)), whole) << cut;
  }
}

TEST_P(Crc32Variants, CopiesExactlyWhatItReads) {
  const ByteVector from = test::pattern(9000, 3);
  for (std::size_t n = 0; n < 8200; n += n < 600 ? 1 : 97) {
    const std::size_t offset = n % 59;
    ByteVector to(n + 128, std::byte{0xee});
    const Bytes bytes = Bytes(from).subspan(n % 53, n);
    ASSERT_EQ(variant().copy(5, to.data() + offset, bytes), crc32_bitwise(5, bytes)) << n;
    const auto copied = Bytes(to).subspan(offset, n);
    ASSERT_TRUE(std::ranges::equal(copied, bytes)) << n;
    const auto untouched = [](std::byte b) { return b == std::byte{0xee}; };
    ASSERT_TRUE(std::ranges::all_of(Bytes(to).first(offset), untouched)) << n;
    ASSERT_TRUE(std::ranges::all_of(Bytes(to).subspan(offset + n), untouched)) << n;
  }
}

TEST_P(Crc32Variants, SeesEverySingleBitError) {
  ByteVector data = test::pattern(600);
  const std::uint32_t right = variant().extend(0, data);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << bit % 8);
    data[bit / 8] ^= mask;
    ASSERT_NE(variant().extend(0, data), right) << bit;
    data[bit / 8] ^= mask;
  }
}

/// a * b * x^32 modulo the polynomial, one term of b after the other.
std::uint32_t multiply_bitwise(std::uint32_t a, std::uint32_t b) {
  const auto times_x = [](std::uint32_t v) { return (v >> 1) ^ (v & 1 ? kCrc32Polynomial : 0); };
  std::uint32_t product = 0;
  for (unsigned power = 0; power < 32; ++power, a = times_x(a)) {
    if (b >> (31 - power) & 1) product ^= a;
  }
  for (unsigned i = 0; i < 32; ++i) product = times_x(product);
  return product;
}

TEST_P(Crc32Variants, MultipliesAsTheDefinitionDoes) {
  for (std::uint32_t i = 0; i < 4096; ++i) {
    const std::uint32_t a = i * 0x9e3779b9;
    const std::uint32_t b = ~i * 0x85ebca6b;
    ASSERT_EQ(variant().multiply(a, b), multiply_bitwise(a, b)) << i;
    ASSERT_EQ(variant().multiply(a, 1u << i % 32), multiply_bitwise(a, 1u << i % 32)) << i;
  }
  EXPECT_EQ(variant().multiply(0, ~0u), 0u);
}

#ifdef AIRDMA_HAVE_ZLIB
TEST_P(Crc32Variants, AgreesWithZlib) {
  ByteVector data = test::pattern(70000, 11);
  for (std::size_t n = 0; n <= 65536; n += n < 4096 ? 13 : 4093) {
    const Bytes bytes = Bytes(data).subspan(n % 64, n);
    const auto* start = reinterpret_cast<const unsigned char*>(bytes.data());
    ASSERT_EQ(variant().extend(0, bytes), zlib_crc32(start, n)) << n;
  }
}
#endif

#ifdef AIRDMA_HAVE_ISAL
TEST_P(Crc32Variants, AgreesWithIsal) {
  ByteVector data = test::pattern(70000, 13);
  for (std::size_t n = 0; n <= 65536; n += n < 4096 ? 13 : 4093) {
    const Bytes bytes = Bytes(data).subspan(n % 64, n);
    const auto* start = reinterpret_cast<const unsigned char*>(bytes.data());
    ASSERT_EQ(variant().extend(7, bytes), crc32_gzip_refl(7, start, n)) << n;
  }
}
#endif

std::vector<const Crc32Variant*> pointers() {
  std::vector<const Crc32Variant*> all;
  for (const Crc32Variant& variant : crc32_variants()) all.push_back(&variant);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Crc32Variants, testing::ValuesIn(pointers()), [](const auto& test) {
  std::string name = test.param->name;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(Crc32, AlwaysHasAPortableVariant) {
  EXPECT_STREQ(crc32_variants().back().name, "portable");
  EXPECT_TRUE(crc32_variants().back().supported());
}

TEST(Crc32, ChoosesAVariantThatAgrees) {
  const ByteVector data = test::pattern(2000);
  ByteVector copy(2000);
  EXPECT_EQ(crc32(data), crc32_bitwise(0, data));
  EXPECT_EQ(crc32_copy(0, copy.data(), data), crc32(data));
  EXPECT_EQ(copy, data);
}

}  // namespace
}  // namespace airdma::wire
