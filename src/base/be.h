// SPDX-License-Identifier: MIT
// Integers as they lie in a packet: big-endian, at any address. Layout structs are made of them
// alone, so that a struct has the size its figure in the specification shows and may be laid over
// received bytes of any alignment.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace airdma {

/// A big-endian unsigned integer of sizeof(T) bytes with alignment 1. Trivially copyable, and all
/// zero bytes are the value 0.
template <std::unsigned_integral T>
class be {
 public:
  using value_type = T;

  constexpr be() = default;
  constexpr explicit(false) be(T value) { set(value); }

  [[nodiscard]] constexpr T get() const {
    if (std::is_constant_evaluated()) {
      T value = 0;
      for (unsigned char byte : raw_)
        value = static_cast<T>(static_cast<T>(value << 8 * (sizeof(T) > 1)) | byte);
      return value;
    }
    T value;
    std::memcpy(&value, raw_, sizeof value);
    return swapped(value);
  }

  constexpr void set(T value) {
    if (std::is_constant_evaluated()) {
      for (std::size_t i = sizeof(T); i-- > 0;) {
        raw_[i] = static_cast<unsigned char>(value & 0xff);
        value = static_cast<T>(value >> 8 * (sizeof(T) > 1));
      }
      return;
    }
    value = swapped(value);
    std::memcpy(raw_, &value, sizeof value);
  }

  friend constexpr bool operator==(const be&, const be&) = default;

 private:
  static constexpr T swapped(T value) {
    if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) return value;
    if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(value));
    if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(value));
    if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(value));
  }

  unsigned char raw_[sizeof(T)] = {};
};

using be8 = be<std::uint8_t>;
using be16 = be<std::uint16_t>;
using be32 = be<std::uint32_t>;
using be64 = be<std::uint64_t>;

static_assert(alignof(be64) == 1 && sizeof(be64) == 8 && std::is_trivially_copyable_v<be64>);

namespace detail {
template <class Member>
struct MemberOf;
template <class S, class T>
struct MemberOf<be<T> S::*> {
  using Struct = S;
  using Value = T;
};
}  // namespace detail

/// The bits [kFirst, kFirst + kWidth) of one big-endian member. Bit 0 is the most significant, as
/// the figures of IETF and IBTA documents count: `using Last = Field<&DdpTagged::control, 1, 1>`.
template <auto kMember, unsigned kFirst, unsigned kWidth>
struct Field {
  using Struct = typename detail::MemberOf<decltype(kMember)>::Struct;
  using Value = typename detail::MemberOf<decltype(kMember)>::Value;
  static constexpr unsigned kBits = 8 * sizeof(Value);
  static_assert(kWidth > 0 && kFirst + kWidth <= kBits);
  static constexpr unsigned kShift = kBits - kFirst - kWidth;
  static constexpr Value kMax =
      static_cast<Value>(static_cast<Value>(~Value{0}) >> (kBits - kWidth));
  static constexpr Value kMask = static_cast<Value>(kMax << kShift);

  [[nodiscard]] static constexpr Value get(const Struct& s) {
    return static_cast<Value>(((s.*kMember).get() & kMask) >> kShift);
  }
  /// Bits of `value` beyond the field's width are dropped.
  static constexpr void set(Struct& s, Value value) {
    const auto kept = static_cast<Value>((s.*kMember).get() & static_cast<Value>(~kMask));
    (s.*kMember).set(static_cast<Value>(kept | (static_cast<Value>(value << kShift) & kMask)));
  }
};

}  // namespace airdma
