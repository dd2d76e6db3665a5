// SPDX-License-Identifier: MIT
// What holds for every implementation of either CRC. What only one of the two has is in
// crc32_test.cc and crc32c_test.cc.
#include "tests/unit/wire/crc_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/bytes.h"
#include "wire/crc32.h"
#include "wire/crc32c.h"

namespace airdma::wire {
namespace {

using test::ByteVector;
using test::crc_bitwise;

constexpr std::uint32_t kCastagnoli = 0x82f63b78;

struct Kernel {
  std::string name;
  std::uint32_t polynomial;
  bool (*supported)();
  std::uint32_t (*extend)(std::uint32_t crc, Bytes bytes);
  std::uint32_t (*copy)(std::uint32_t crc, std::byte* to, Bytes from);
};

/// Names the kernel in failures, where GoogleTest would print its bytes.
void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.name; }

class CrcKernels : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    if (!kernel().supported()) GTEST_SKIP() << "this CPU lacks it";
  }
  static const Kernel& kernel() { return GetParam(); }
  static std::uint32_t bitwise(std::uint32_t crc, Bytes bytes) {
    return crc_bitwise(kernel().polynomial, crc, bytes);
  }
};

TEST_P(CrcKernels, AgreesWithTheDefinitionAtEveryLength) {
  const ByteVector data = test::pattern(1600 + 64);
  for (std::size_t n = 0; n <= 1600; ++n) {
    const Bytes bytes = Bytes(data).subspan(n % 61, n);
    ASSERT_EQ(kernel().extend(0x01020304, bytes), bitwise(0x01020304, bytes)) << n;
  }
}

TEST_P(CrcKernels, AgreesAtEveryAlignment) {
  const ByteVector data = test::pattern(5000);
  for (std::size_t offset = 0; offset < 64; ++offset) {
    for (std::size_t n : {1u, 7u, 63u, 64u, 65u, 255u, 256u, 257u, 511u, 1443u, 4099u}) {
      const Bytes bytes = Bytes(data).subspan(offset, n);
      ASSERT_EQ(kernel().extend(0, bytes), bitwise(0, bytes)) << offset << "+" << n;
    }
  }
}

TEST_P(CrcKernels, ContinuesWhereItStopped) {
  const ByteVector data = test::pattern(3000, 7);
  const std::uint32_t whole = bitwise(0, data);
  for (std::size_t cut = 0; cut <= data.size(); cut += 37) {
    const std::uint32_t first = kernel().extend(0, Bytes(data).first(cut));
    ASSERT_EQ(kernel().extend(first, Bytes(data).subspan(cut)), whole) << cut;
  }
}

TEST_P(CrcKernels, CopiesExactlyWhatItReads) {
  const ByteVector from = test::pattern(9000, 3);
  for (std::size_t n = 0; n < 8200; n += n < 600 ? 1 : 97) {
    const std::size_t offset = n % 59;
    ByteVector to(n + 128, std::byte{0xee});
    const Bytes bytes = Bytes(from).subspan(n % 53, n);
    ASSERT_EQ(kernel().copy(5, to.data() + offset, bytes), bitwise(5, bytes)) << n;
    const auto copied = Bytes(to).subspan(offset, n);
    ASSERT_TRUE(std::ranges::equal(copied, bytes)) << n;
    const auto untouched = [](std::byte b) { return b == std::byte{0xee}; };
    ASSERT_TRUE(std::ranges::all_of(Bytes(to).first(offset), untouched)) << n;
    ASSERT_TRUE(std::ranges::all_of(Bytes(to).subspan(offset + n), untouched)) << n;
  }
}

TEST_P(CrcKernels, SeesEverySingleBitError) {
  ByteVector data = test::pattern(600);
  const std::uint32_t right = kernel().extend(0, data);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << bit % 8);
    data[bit / 8] ^= mask;
    ASSERT_NE(kernel().extend(0, data), right) << bit;
    data[bit / 8] ^= mask;
  }
}

template <class Variant>
void add_kernels(std::vector<Kernel>& all, const std::string& family, std::uint32_t polynomial,
                 std::span<const Variant> variants) {
  for (const Variant& variant : variants) {
    std::string name = family + "_" + variant.name;
    std::ranges::replace(name, '-', '_');
    all.push_back({name, polynomial, variant.supported, variant.extend, variant.copy});
  }
}

std::vector<Kernel> kernels() {
  std::vector<Kernel> all;
  add_kernels(all, "crc32", kCrc32Polynomial, crc32_variants());
  add_kernels(all, "crc32c", kCastagnoli, crc32c_variants());
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, CrcKernels, testing::ValuesIn(kernels()),
                         [](const auto& test) { return test.param.name; });

TEST(Crc, AlwaysHasAPortableVariant) {
  EXPECT_STREQ(crc32_variants().back().name, "portable");
  EXPECT_TRUE(crc32_variants().back().supported());
  EXPECT_STREQ(crc32c_variants().back().name, "portable");
  EXPECT_TRUE(crc32c_variants().back().supported());
}

TEST(Crc, ChoosesAVariantThatAgrees) {
  const ByteVector data = test::pattern(2000);
  ByteVector copy(2000);
  EXPECT_EQ(crc32(data), crc_bitwise(kCrc32Polynomial, 0, data));
  EXPECT_EQ(crc32_copy(0, copy.data(), data), crc32(data));
  EXPECT_EQ(copy, data);
  copy.assign(2000, std::byte{0});
  EXPECT_EQ(crc32c(data), crc_bitwise(kCastagnoli, 0, data));
  EXPECT_EQ(crc32c_copy(0, copy.data(), data), crc32c(data));
  EXPECT_EQ(copy, data);
}

}  // namespace
}  // namespace airdma::wire
