// SPDX-License-Identifier: MIT
// How a layout struct gets out of received bytes and into bytes to send. Always by copy: no
// aliasing or lifetime question arises, and compilers reduce the copy to plain loads and stores.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/bytes.h"

namespace airdma::wire {

template <class T>
concept Layout = std::is_trivially_copyable_v<T> && alignof(T) == 1;

/// The first sizeof(T) bytes, or nothing when there are fewer.
template <Layout T>
[[nodiscard]] std::optional<T> load(Bytes bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T layout;
  std::memcpy(static_cast<void*>(&layout), bytes.data(), sizeof(T));
  return layout;
}

/// Writes the layout at the start of `out`: its size, or 0 when it does not fit.
template <Layout T>
[[nodiscard]] std::size_t store(MutableBytes out, const T& layout) {
  if (out.size() < sizeof(T)) return 0;
  std::memcpy(out.data(), &layout, sizeof(T));
  return sizeof(T);
}

/// `bytes` without its first `count` bytes; empty when there are fewer.
[[nodiscard]] inline Bytes skip(Bytes bytes, std::size_t count) {
  return count < bytes.size() ? bytes.subspan(count) : Bytes{};
}

}  // namespace airdma::wire
