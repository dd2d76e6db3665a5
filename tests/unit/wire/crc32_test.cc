// SPDX-License-Identifier: MIT
#include "wire/crc32.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#ifdef AIRDMA_HAVE_ISAL
#include <isa-l/crc.h>
#endif
#ifdef AIRDMA_HAVE_ZLIB
#include <zlib.h>
#endif

#include "tests/support/bytes.h"
#include "tests/unit/wire/crc_kernels.h"

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
  const ByteVector data = test::pattern(70000, 11);
  test::for_many_pieces(data, [](Bytes bytes) {
    const auto* start = reinterpret_cast<const unsigned char*>(bytes.data());
    ASSERT_EQ(variant().extend(0, bytes), zlib_crc32(start, bytes.size())) << bytes.size();
  });
}
#endif

#ifdef AIRDMA_HAVE_ISAL
TEST_P(Crc32Variants, AgreesWithIsal) {
  const ByteVector data = test::pattern(70000, 13);
  test::for_many_pieces(data, [](Bytes bytes) {
    const auto* start = reinterpret_cast<const unsigned char*>(bytes.data());
    ASSERT_EQ(variant().extend(7, bytes), crc32_gzip_refl(7, start, bytes.size())) << bytes.size();
  });
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

}  // namespace
}  // namespace airdma::wire
