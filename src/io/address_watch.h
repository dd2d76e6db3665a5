// SPDX-License-Identifier: MIT
// Whether what was learned about this host's interfaces, addresses and routes still holds: two
// system calls, where reading them again takes a dozen.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>

#include "io/fd.h"

namespace airdma::io {

/// Thread-safe. One per process (get()) serves all who keep something.
class AddressWatch {
 public:
  /// What was learned under this number holds no longer than the call returns it.
  using Generation = std::uint64_t;
  /// Nothing that was learned under it may be kept: the kernel cannot be listened to.
  static constexpr Generation kUnwatched = 0;

  static AddressWatch& get();
  /// The calling thread promises never to leave its network namespace: its own calls need not ask
  /// for that any more, which takes longer than all the rest.
  static void this_thread_stays();

  /// Changes when an interface, address, route or routing rule comes, goes or changes, and when
  /// the calling thread is in another network namespace than the last caller.
  Generation generation();

 private:
  [[nodiscard]] bool unchanged();

  std::mutex mutex_;
  Fd socket_;
  dev_t namespace_device_ = 0;  // of the socket's network namespace
  ino_t namespace_inode_ = 0;
  Generation generation_ = kUnwatched;
};

/// The same as a descriptor that becomes readable, in the network namespace it was opened in.
class AddressEvents {
 public:
  /// Opens it; fd() is negative where the kernel cannot be listened to.
  AddressEvents();
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Takes what came. True when something did.
  bool consume();

 private:
  Fd socket_;
};

}  // namespace airdma::io
