// SPDX-License-Identifier: MIT
// The error conventions of the C interface, one adapter each; nothing else in the project sets
// errno for a program. Every adapter takes the call as a function object, so that an exception
// ends here: memory that ran out is ENOMEM, anything else (our bug) EIO.
//
// Thread cancellation: a thread that a program cancels while it holds a lock of ours would take
// the lock with it. So cancellation is off during all calls; those that wait for an event sleep
// outside of them (waiting.h).
#pragma once

#include <errno.h>
#include <pthread.h>

#include <new>
#include <type_traits>

#include "verbs/api.h"

namespace airdma::abi {

/// Keeps pthread_cancel() away while it lives.
class CancelGuard {
 public:
  CancelGuard() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old_state_); }
  ~CancelGuard() { pthread_setcancelstate(old_state_, nullptr); }
  CancelGuard(const CancelGuard&) = delete;
  CancelGuard& operator=(const CancelGuard&) = delete;

 private:
  int old_state_ = PTHREAD_CANCEL_ENABLE;
};

/// Runs `call` and turns exceptions into errors. A call without a value counts as a success.
template <class Call>
auto contain(Call& call) {
  using Value = std::invoke_result_t<Call&>;
  using Outcome = std::conditional_t<std::is_void_v<Value>, Status, Value>;
  const CancelGuard guard;
  const MayRunOut memory;
  try {
    if constexpr (std::is_void_v<Value>) {
      call();
      return Outcome{};
    } else {
      return call();
    }
  } catch (const std::bad_alloc&) {
    return Outcome(fail(ENOMEM));
  } catch (...) {
    return Outcome(fail(EIO));
  }
}

/// 0, or the errno value (verbs that act on an object). errno is set too: many programs print
/// it although the documentation speaks of the return value alone.
template <class Call>
int return_errno(Call&& call) {
  const Status status = contain(call);
  if (status) return 0;
  errno = status.error().code;
  return status.error().code;
}

/// The pointer, or NULL with errno (what allocates or looks up).
template <class Call>
auto return_pointer(Call&& call) {
  const auto result = contain(call);
  if (result) return *result;
  errno = result.error().code;
  return static_cast<std::remove_cvref_t<decltype(*result)>>(nullptr);
}

/// 0 or the value, or -1 with errno (rdma_* and the verbs documented so).
template <class Call>
auto return_minus_one(Call&& call) {
  const auto result = contain(call);
  using Value = typename decltype(contain(call))::value_type;
  if constexpr (std::is_void_v<Value>) {
    if (result) return 0;
    errno = result.error().code;
    return -1;
  } else {
    if (result) return *result;
    errno = result.error().code;
    return static_cast<Value>(-1);
  }
}

}  // namespace airdma::abi
