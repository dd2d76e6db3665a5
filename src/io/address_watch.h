// SPDX-License-Identifier: MIT
// Whether what was learned about this host's interfaces, addresses and routes still holds: one
// system call, where reading them again takes a dozen.
#pragma once

#include "io/fd.h"

namespace airdma::io {

class AddressWatch {
 public:
  /// True when no interface, address, route or routing rule has come, gone or changed since the
  /// last call. False the first time, and always where the kernel cannot be listened to.
  bool unchanged();

 private:
  Fd socket_;
};

}  // namespace airdma::io
