// SPDX-License-Identifier: MIT
// Bytes for tests: from hexadecimal text, from a seed, and back to text for failure messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace airdma::test {

using ByteVector = std::vector<std::byte>;

/// "00 ff" or "00ff"; spaces and newlines are skipped, anything else that is no digit ends it.
inline ByteVector from_hex(std::string_view text) {
  ByteVector bytes;
  int high = -1;
  for (char c : text) {
    if (c == ' ' || c == '\n') continue;
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) break;
    if (high < 0) {
      high = static_cast<int>(digit);
    } else {
      bytes.push_back(static_cast<std::byte>(high << 4 | static_cast<int>(digit)));
      high = -1;
    }
  }
  return bytes;
}

inline std::string to_hex(Bytes bytes) {
  std::string text;
  for (std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

/// Bytes that look random and are the same on every run (splitmix64).
inline ByteVector pattern(std::size_t bytes, std::uint64_t seed = 1) {
  ByteVector out(bytes);
  std::uint64_t state = seed;
  for (std::byte& b : out) {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    b = static_cast<std::byte>(z >> 32);
  }
  return out;
}

}  // namespace airdma::test
