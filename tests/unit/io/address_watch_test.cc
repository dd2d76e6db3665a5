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
#include <future>

namespace airdma::io {
namespace {

enum Outcome { kAsExpected, kNotAllowed, kUnwatched, kRestChanged, kNotHeard, kHeardTwice };

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
  auto last = watch.generation();
  if (last == AddressWatch::kUnwatched) return kUnwatched;
  if (watch.generation() != last || watch.generation() != last) return kRestChanged;
  for (const bool up : {true, false, true}) {
    if (!set_loopback(up)) return kNotAllowed;
    const auto next = watch.generation();
    if (next == last) return kNotHeard;
    if (watch.generation() != next) return kHeardTwice;
    last = next;
  }
  return kAsExpected;
}

/// What was learned in one network namespace is not true in the next one, and changes there are
/// heard of.
Outcome watch_after_a_move() {
  AddressWatch watch;
  const auto before = watch.generation();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return kNotAllowed;
  const auto there = watch.generation();
  if (there == before) return kNotHeard;
  if (watch.generation() != there) return kHeardTwice;
  if (!set_loopback(true)) return kNotAllowed;
  return watch.generation() == there ? kNotHeard : kAsExpected;
}

/// A thread that stays and one that moves ask the same watch in turns.
Outcome watch_from_a_thread_that_stays() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return kNotAllowed;
  AddressWatch watch;
  std::promise<AddressWatch::Generation> started;
  std::promise<bool> moved;
  const auto stayer = [&] {
    AddressWatch::this_thread_stays();
    started.set_value(watch.generation());
    if (!moved.get_future().get()) return kNotAllowed;
    const auto back = watch.generation();
    if (watch.generation() != back) return kRestChanged;
    return kAsExpected;
  };
  auto outcome = std::async(std::launch::async, stayer);
  const auto first = started.get_future().get();
  if (watch.generation() != first) return kRestChanged;
  const bool allowed = ::unshare(CLONE_NEWNET) == 0;
  const auto there = watch.generation();
  moved.set_value(allowed);
  if (const Outcome other = outcome.get(); other != kAsExpected) return other;
  // The other thread has taken the watch back to its own namespace meanwhile.
  return first != there && watch.generation() != there ? kAsExpected : kNotHeard;
}

void expect_in_child(Outcome (*scenario)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(scenario());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "no network namespace to be had";
  EXPECT_EQ(WEXITSTATUS(status), kAsExpected);
}

TEST(AddressWatch, HearsOfChangesOnce) { expect_in_child(watch_changes); }

TEST(AddressWatch, IsOfTheThreadsNetworkNamespace) { expect_in_child(watch_after_a_move); }

TEST(AddressWatch, NeedNotAskWhereAThreadIsThatStays) {
  expect_in_child(watch_from_a_thread_that_stays);
}

}  // namespace
}  // namespace airdma::io
