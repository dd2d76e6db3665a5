// SPDX-License-Identifier: MIT
// Outcome of an operation that the operating system or a caller can make fail.
#pragma once

#include <expected>

namespace airdma {

/// A failed system call (or the errno a verb answers with): the value and the call's name.
/// `call` is a string literal.
struct Error {
  int code = 0;
  const char* call = "";
};

template <class T>
using Result = std::expected<T, Error>;

using Status = Result<void>;

inline std::unexpected<Error> fail(int code, const char* call = "") {
  return std::unexpected(Error{code, call});
}

}  // namespace airdma
