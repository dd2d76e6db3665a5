// SPDX-License-Identifier: MIT
// The one source of chance of a simulation: the same seed gives the same run everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace airdma::sim {

/// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// 0 .. count - 1; count is not 0.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  /// least .. most.
  std::size_t between(std::size_t least, std::size_t most) {
    return least + below(most - least + 1);
  }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace airdma::sim
