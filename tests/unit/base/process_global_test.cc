// SPDX-License-Identifier: MIT
#include "base/process_global.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace airdma {
namespace {

struct Counter {
  std::atomic<int> value{0};
};

TEST(ProcessGlobal, AllThreadsSeeOneInstance) {
  std::vector<std::thread> threads;
  std::atomic<Counter*> seen[8];
  for (auto& slot : seen) {
    threads.emplace_back([&slot] { slot = &ProcessGlobal<Counter>::get(); });
  }
  for (auto& thread : threads) thread.join();
  for (auto& slot : seen) EXPECT_EQ(slot.load(), &ProcessGlobal<Counter>::get());
}

TEST(ProcessGlobal, ForkChildStartsWithoutTheParentsState) {
  Counter& mine = ProcessGlobal<Counter>::get();
  mine.value = 42;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool empty = ProcessGlobal<Counter>::peek() == nullptr;
    const bool fresh = ProcessGlobal<Counter>::get().value == 0;
    const bool other = &ProcessGlobal<Counter>::get() != &mine;
    ::_exit(empty && fresh && other ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(&ProcessGlobal<Counter>::get(), &mine);
  EXPECT_EQ(mine.value, 42);
}

}  // namespace
}  // namespace airdma
