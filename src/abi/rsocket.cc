// SPDX-License-Identifier: MIT
// C symbols of <rdma/rsocket.h>. Sockets over RDMA are not there: every call fails with ENOSYS.
#include <errno.h>

#include "abi/export.h"

// The value -1 is every call's failure, in the type that it returns. None looks at its
// arguments, so none is declared; a name's type here is its return type.
// clang-format off
#define AIRDMA_RSOCKET_CALLS(X)  \
  X(int, rsocket)                \
  X(int, rbind)                  \
  X(int, rlisten)                \
  X(int, raccept)                \
  X(int, rconnect)               \
  X(int, rshutdown)              \
  X(int, rclose)                 \
  X(ssize_t, rrecv)              \
  X(ssize_t, rrecvfrom)          \
  X(ssize_t, rrecvmsg)           \
  X(ssize_t, rsend)              \
  X(ssize_t, rsendto)            \
  X(ssize_t, rsendmsg)           \
  X(ssize_t, rread)              \
  X(ssize_t, rreadv)             \
  X(ssize_t, rwrite)             \
  X(ssize_t, rwritev)            \
  X(int, rpoll)                  \
  X(int, rselect)                \
  X(int, rgetpeername)           \
  X(int, rgetsockname)           \
  X(int, rsetsockopt)            \
  X(int, rgetsockopt)            \
  X(int, rfcntl)                 \
  X(off_t, riomap)               \
  X(int, riounmap)               \
  X(size_t, riowrite)

#define AIRDMA_RSOCKET_CALL(type, name)     \
  AIRDMA_EXPORT type name(void) noexcept {  \
    errno = ENOSYS;                         \
    return static_cast<type>(-1);           \
  }
// clang-format on

AIRDMA_RSOCKET_CALLS(AIRDMA_RSOCKET_CALL)
