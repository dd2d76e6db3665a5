// SPDX-License-Identifier: MIT
#include "abi/adapters.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

namespace airdma::abi {
namespace {

TEST(ReturnErrno, GivesZeroAndLeavesErrnoAlone) {
  errno = 77;
  EXPECT_EQ(return_errno([] { return Status{}; }), 0);
  EXPECT_EQ(errno, 77);
}

TEST(ReturnErrno, GivesTheValueAndSetsErrno) {
  errno = 0;
  EXPECT_EQ(return_errno([]() -> Status { return fail(EBUSY); }), EBUSY);
  EXPECT_EQ(errno, EBUSY);
}

TEST(ReturnPointer, GivesThePointerOrNullWithErrno) {
  int object = 0;
  EXPECT_EQ(return_pointer([&]() -> Result<int*> { return &object; }), &object);
  errno = 0;
  EXPECT_EQ(return_pointer([]() -> Result<int*> { return fail(EPERM); }), nullptr);
  EXPECT_EQ(errno, EPERM);
}

TEST(ReturnMinusOne, GivesTheValueOrMinusOneWithErrno) {
  EXPECT_EQ(return_minus_one([]() -> Result<int> { return 5; }), 5);
  EXPECT_EQ(return_minus_one([] { return Status{}; }), 0);
  errno = 0;
  EXPECT_EQ(return_minus_one([]() -> Status { return fail(ENODEV); }), -1);
  EXPECT_EQ(errno, ENODEV);
}

TEST(Contain, TurnsExceptionsIntoErrors) {
  EXPECT_EQ(return_errno([]() -> Status { throw std::bad_alloc(); }), ENOMEM);
  EXPECT_EQ(return_errno([]() -> Status { throw std::logic_error("bug"); }), EIO);
  EXPECT_EQ(return_errno([] { throw 1; }), EIO);
}

int cancel_state() {
  int old = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
  pthread_setcancelstate(old, nullptr);
  return old;
}

TEST(Cancellation, IsOffDuringACallAndAsBeforeAfterIt) {
  int inside = -1;
  return_errno([&] { inside = cancel_state(); });
  EXPECT_EQ(inside, PTHREAD_CANCEL_DISABLE);
  EXPECT_EQ(cancel_state(), PTHREAD_CANCEL_ENABLE);
}

}  // namespace
}  // namespace airdma::abi
