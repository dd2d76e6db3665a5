// SPDX-License-Identifier: MIT
#include "io/address_watch.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace airdma::io {
namespace {

enum Outcome { kAsExpected, kNotAllowed, kFirstHeld, kRestChanged, kNotHeard, kHeardTwice };

bool set_loopback(bool up) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = up ? IFF_UP : 0;
  const bool done = ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  ::close(socket);
  return done;
}

/// In a network namespace of its own, whose loopback interface is down at first.
Outcome watch_changes() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return kNotAllowed;
  AddressWatch watch;
  if (watch.unchanged()) return kFirstHeld;
  if (!watch.unchanged() || !watch.unchanged()) return kRestChanged;
  for (const bool up : {true, false, true}) {
    if (!set_loopback(up)) return kNotAllowed;
    if (watch.unchanged()) return kNotHeard;
    if (!watch.unchanged()) return kHeardTwice;
  }
  return kAsExpected;
}

TEST(AddressWatch, HearsOfChangesOnce) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(watch_changes());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "no network namespace to be had";
  EXPECT_EQ(WEXITSTATUS(status), kAsExpected);
}

}  // namespace
}  // namespace airdma::io
