// SPDX-License-Identifier: MIT
#include "wire/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#ifdef AIRDMA_HAVE_ISAL
#include <isa-l/crc.h>
#endif

#include "tests/support/bytes.h"
#include "tests/unit/wire/crc_kernels.h"

namespace airdma::wire {

/// Names the variant in test lists and failures, where GoogleTest would print an address.
void PrintTo(const Crc32cVariant* variant, std::ostream* out) { *out << variant->name; }

namespace {

using test::ByteVector;

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

#ifdef AIRDMA_HAVE_ISAL
TEST_P(Crc32cVariants, AgreesWithIsal) {
  ByteVector data = test::pattern(70000, 11);
  test::for_many_pieces(data, [&](Bytes bytes) {
    auto* start = reinterpret_cast<unsigned char*>(data.data() + (bytes.data() - data.data()));
    ASSERT_EQ(variant().extend(0, bytes), ~crc32_iscsi(start, static_cast<int>(bytes.size()), ~0u))
        << bytes.size();
  });
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

}  // namespace
}  // namespace airdma::wire
