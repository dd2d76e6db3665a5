// SPDX-License-Identifier: MIT
// Which of this host's addresses a listener is for.
#pragma once

#include <cstdint>

#include "model/address_vector.h"

namespace airdma::model {

struct AddressScope {
  enum class Kind : std::uint8_t { kOne, kEveryIpv4, kEveryIpv6, kEvery };

  Kind kind = Kind::kEvery;
  Gid one{};  // only of kOne

  constexpr AddressScope() = default;
  constexpr explicit AddressScope(Kind of) : kind(of) {}
  /// That address; all zero: every one.
  constexpr AddressScope(const Gid& address)  // NOLINT(google-explicit-constructor)
      : kind(address == Gid{} ? Kind::kEvery : Kind::kOne), one(address) {}

  /// Every address of the family that this one is of.
  static constexpr AddressScope family_of(const Gid& address) {
    return AddressScope(address.is_v4() ? Kind::kEveryIpv4 : Kind::kEveryIpv6);
  }
  [[nodiscard]] constexpr bool covers(const Gid& address) const {
    return kind == Kind::kEvery || *this == family_of(address) || *this == AddressScope(address);
  }
  friend constexpr bool operator==(const AddressScope&, const AddressScope&) = default;
};

}  // namespace airdma::model
