// SPDX-License-Identifier: MIT
// Ten thousand queue pairs in one process, connected in pairs.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "tests/unit/verbs/pairs_fixture.h"

namespace airdma::cm {
namespace {

constexpr std::size_t kPairs = 5000;
constexpr rlim_t kDescriptors = 2 * kPairs + 200;

using ManyQueuePairsTest = PairsTest;

/// Whether the process may have so many descriptors; raises its own limit as far as it may.
bool descriptors_suffice() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < kDescriptors) return false;
  files.rlim_cur = std::max(files.rlim_cur, kDescriptors);
  return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

TEST_F(ManyQueuePairsTest, AreConnectedAndEachCarriesAMessage) {
  if (!descriptors_suffice()) {
    GTEST_SKIP() << "this needs " << kDescriptors << " file descriptors (ulimit -Hn)";
  }
  start_listening("127.0.0.1", 64);
  for (std::size_t i = 0; i < kPairs; ++i) ASSERT_NO_FATAL_FAILURE(add_pair());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::size_t received = 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kPairs; ++i) {
    EXPECT_EQ(receive(passives_[i]->qp, i), 0);
    EXPECT_EQ(send(clients_[i]->qp, i), 0);
    ibv_wc wc{};
    for (int completions = 0; completions < 2 && std::chrono::steady_clock::now() < limit;) {
      if (verbs::poll_cq(cq_, 1, &wc) != 1) continue;
      ++completions;
      if (wc.status != IBV_WC_SUCCESS || wc.wr_id != i) ++wrong;
      if (wc.opcode == IBV_WC_RECV) ++received;
    }
  }
  EXPECT_EQ(received, kPairs);
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace airdma::cm
