// SPDX-License-Identifier: MIT
// Enumerations in structs that programs fill may hold any bits; reading those as the enumeration
// is undefined, so values are looked at as numbers until they are known to be good.
#pragma once

#include <cstdint>
#include <cstring>

namespace airdma::verbs {

template <class Enum>
std::uint32_t raw_value(const Enum& field) {
  static_assert(sizeof(Enum) == sizeof(std::uint32_t));
  std::uint32_t value = 0;
  std::memcpy(&value, &field, sizeof value);
  return value;
}

}  // namespace airdma::verbs
