// SPDX-License-Identifier: MIT
#include "io/raw_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

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

// For the thread sanitizer: it sees closedir() but not opendir(), and no order between the two
// threads but that of the descriptor.
TEST(RawCalls, ADescriptorThatIsClosedIsNobodysAnyMore) {
  std::atomic<int> closed{-1};
  std::thread opener([&closed] {
    int number = -1;
    {
      const Fd file(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
      number = file.get();
    }
    closed.store(number, std::memory_order_relaxed);
  });
  while (closed.load(std::memory_order_relaxed) < 0) std::this_thread::yield();
  DIR* const folder = ::opendir("/proc/self");
  ASSERT_NE(folder, nullptr);
  EXPECT_EQ(::dirfd(folder), closed.load(std::memory_order_relaxed));
  EXPECT_EQ(::closedir(folder), 0);
  opener.join();
}

}  // namespace
}  // namespace airdma::io
