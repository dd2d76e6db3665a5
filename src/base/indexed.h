// SPDX-License-Identifier: MIT
// Tables with one row for each value of an enumeration, looked up by that value.
#pragma once

#include <cstddef>

namespace airdma {

/// For static_assert: each row stands at the value in its member `key`, and the last one is `last`.
template <class Table, class Row, class Key>
consteval bool is_indexed(const Table& rows, Key Row::* key, Key last) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::size_t>(rows[i].*key) != i) return false;
  }
  return rows.size() == static_cast<std::size_t>(last) + 1;
}

}  // namespace airdma
