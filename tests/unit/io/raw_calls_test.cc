// SPDX-License-Identifier: MIT
#include "io/raw_calls.h"

#include <gtest/gtest.h>

#include "io/fd.h"

namespace airdma::io {
namespace {

// Both ways, because a kernel that knows the first never takes the second.
TEST(RawCalls, TakeBytesFromAPipeOnlyIfThereAreSome) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  for (ssize_t (*take)(int, iovec*) : {&raw::read_now, &raw::take_from_pipe}) {
    char byte = 0;
    iovec piece{&byte, 1};
    EXPECT_EQ(take(read_end.get(), &piece), -1);
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_EQ(raw::write(write_end.get(), "ab", 2), 2);
    EXPECT_EQ(take(read_end.get(), &piece), 1);
    EXPECT_EQ(byte, 'a');
    EXPECT_EQ(take(read_end.get(), &piece), 1);
    EXPECT_EQ(byte, 'b');
    EXPECT_EQ(take(read_end.get(), &piece), -1);
  }
}

}  // namespace
}  // namespace airdma::io
