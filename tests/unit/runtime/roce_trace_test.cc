// SPDX-License-Identifier: MIT
// What this process sends and receives, in its trace. AIRDMA_TRACE is read once in a process, so
// the port is used in a process of its own.
#include "runtime/roce_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "runtime/udp_sender.h"
#include "tests/unit/runtime/roce_fixture.h"
#include "trace/pcapng.h"

namespace airdma::runtime {
namespace {

using testing::add_packet;
using testing::KeepingSink;
using testing::loopback;
using testing::pattern;

constexpr const char* kVariable = "AIRDMA_TRACE";

const std::vector<std::byte> kLocalPayload = pattern(301, 11);
const std::vector<std::byte> kUdpPayload(204, std::byte{0xa5});

/// Sends a packet to a queue pair of this process, and one to the same by UDP where that is had.
void exchange() {
  RocePort& port = RocePort::get();
  const auto sink = std::make_shared<KeepingSink>();
  const Qpn qpn = port.allocate_qpn().value();
  port.register_sink(qpn, sink);
  rocev2::PacketBatch batch;
  batch.set_destination(loopback(testing::kLoopbackV4));
  add_packet(batch, qpn, kLocalPayload);
  if (port.send(batch).status != SendStatus::kSent) ::_exit(1);
  sink->wait(1);
  if (port.report().ipv4_error != 0) ::_exit(2);
  const auto sender = UdpSender::open(**Progress::start(), AF_INET).value();
  rocev2::PacketBatch other;
  add_packet(other, qpn, kUdpPayload);
  const rocev2::OutPacket& packet = other.packets()[0];
  const Frame frame{packet.header(), other.pieces(packet), packet.pad_bytes, packet.bytes()};
  if (sender->send(loopback(testing::kLoopbackV4), false, {&frame, 1}).packets != 1) ::_exit(1);
  sink->wait(2);
  ::_exit(0);
}

class RoceTrace : public ::testing::Test {
 protected:
  // The child process of a death test runs the test from its beginning, with the parent's
  // environment.
  RoceTrace() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (const char* inherited = ::getenv(kVariable)) {
      path_ = inherited;
      return;
    }
    std::string name = ::testing::TempDir() + "airdma-roce-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ + "/trace.pcapng";
    ::setenv(kVariable, path_.c_str(), 1);  // this process has no use for it yet
  }
  ~RoceTrace() override {
    if (directory_.empty()) return;
    ::unsetenv(kVariable);
    std::filesystem::remove_all(directory_);
  }

  /// How often these bytes stand in the trace.
  [[nodiscard]] std::size_t times(Bytes wanted) const {
    std::ifstream in(path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const Bytes all = std::as_bytes(std::span(text));
    const std::boyer_moore_horspool_searcher searcher(wanted.begin(), wanted.end());
    std::size_t count = 0;
    for (auto at = all.begin();; ++at, ++count) {
      at = std::search(at, all.end(), searcher);
      if (at == all.end()) return count;
    }
  }

  std::string path_;
  std::string directory_;
};

TEST_F(RoceTrace, HoldsEachPacketOnce) {
  int status = -1;
  EXPECT_EXIT(
      exchange(),
      [&](int of_child) {
        status = of_child;
        return WIFEXITED(of_child);
      },
      "");
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no such port";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(times(kLocalPayload), 1u) << "sent and received by this process";
  EXPECT_EQ(times(kUdpPayload), 1u) << "received";
  const auto summary = trace::summarize(path_);
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->frames, 2u);
  EXPECT_EQ(summary->bytes, 2 * (14 + 20 + 8 + 12 + 4) + 304 + 204u);
}

TEST(RoceTraceMark, IsZeroWithoutATrace) { EXPECT_EQ(trace_mark(), 0u); }

}  // namespace
}  // namespace airdma::runtime
