// SPDX-License-Identifier: MIT
// A pair of endpoints of either transport, and memory on both sides to move between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/completion.h"
#include "tests/sim/posting.h"

namespace airdma::test {

inline constexpr std::uint64_t kHere = 0x10000;
inline constexpr std::uint64_t kThere = 0x7f0000000000;

/// `source` is a's memory, with bytes that differ from place to place; `target` is b's, zeroes.
template <class Pair>
struct TransferFixture {
  template <class Parameters>
  TransferFixture(std::size_t bytes, const Parameters& parameters)
      : pair(parameters),
        source(pair.a.table, sim::kKey, kHere, bytes),
        target(pair.b.table, sim::kKey, kThere, bytes) {
    sim::fill(source.bytes(), 1);
  }

  [[nodiscard]] model::Sge here(std::size_t bytes, std::size_t offset = 0) const {
    return {.addr = kHere + offset, .length = static_cast<std::uint32_t>(bytes), .lkey = sim::kKey};
  }
  [[nodiscard]] model::Sge there(std::size_t bytes, std::size_t offset = 0) const {
    return {
        .addr = kThere + offset, .length = static_cast<std::uint32_t>(bytes), .lkey = sim::kKey};
  }
  /// Whether so many bytes at the front are the same on both sides.
  [[nodiscard]] bool same(std::size_t bytes) {
    const auto begin = source.bytes().begin();
    return std::equal(begin, begin + static_cast<long>(bytes), target.bytes().begin());
  }

  Pair pair;
  sim::Buffer source;
  sim::Buffer target;
};

inline void expect_success(const std::vector<model::Completion>& wcs, std::size_t i,
                           std::uint64_t wr_id, model::WcOpcode opcode, std::size_t bytes) {
  ASSERT_LT(i, wcs.size());
  EXPECT_EQ(wcs[i].wr_id, wr_id);
  EXPECT_EQ(wcs[i].status, model::WcStatus::kSuccess);
  EXPECT_EQ(wcs[i].opcode, opcode);
  EXPECT_EQ(wcs[i].byte_len, bytes);
}

}  // namespace airdma::test
