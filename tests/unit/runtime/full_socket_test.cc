// SPDX-License-Identifier: MIT
#include "runtime/full_socket.h"

#include <gtest/gtest.h>

namespace airdma::runtime {
namespace {

/// Occasions that pass until one is used.
int passed(FullSocket& socket) {
  int count = 0;
  while (!socket.may_try()) ++count;
  return count;
}

TEST(FullSocket, IsAskedAlwaysWhileItTakesSomething) {
  FullSocket socket;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(socket.may_try());
}

TEST(FullSocket, IsAskedAtGrowingDistances) {
  FullSocket socket;
  for (const int distance : {1, 3, 7, 15, 31, 31, 31}) {
    socket.refused(false);
    EXPECT_EQ(passed(socket), distance);
    EXPECT_TRUE(socket.may_try());  // until it refuses again
  }
}

TEST(FullSocket, IsAskedSoonAgainWhenItTookSomething) {
  FullSocket socket;
  for (int i = 0; i < 10; ++i) socket.refused(false);
  socket.refused(true);
  EXPECT_EQ(passed(socket), 1);
}

TEST(FullSocket, IsAskedAtOnceWhenTheKernelTellsOfRoom) {
  FullSocket socket;
  for (int i = 0; i < 10; ++i) socket.refused(false);
  socket.writable();
  EXPECT_TRUE(socket.may_try());
  socket.refused(false);
  EXPECT_EQ(passed(socket), 1);
}

}  // namespace
}  // namespace airdma::runtime
