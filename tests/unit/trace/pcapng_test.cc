// SPDX-License-Identifier: MIT
#include "trace/pcapng.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace airdma::trace {
namespace {

class PcapngFileTest : public testing::Test {
 protected:
  PcapngFileTest() {
    std::string name = testing::TempDir() + "airdma-pcapng-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ + "/trace.pcapng";
  }
  ~PcapngFileTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  std::string path_;
};

const std::vector<std::byte> kHeader(54, std::byte{1});
const std::vector<std::byte> kPayload(99, std::byte{2});

TEST_F(PcapngFileTest, BlocksHaveTheLayoutOfTheFormat) {
  {
    Result<PcapngFile> file = PcapngFile::open(path_);
    ASSERT_TRUE(file);
    file->append(0x0123456789abcdef, FrameDirection::kOutbound, kHeader, kPayload);
  }
  std::ifstream in(path_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  // Section header 44, interface 44, packet 28 + 153 + 3 pad + 16.
  ASSERT_EQ(bytes.size(), 44u + 44u + 200u);
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, 4);
    return value;
  };
  EXPECT_EQ(word(0), 0x0a0d0d0au);
  EXPECT_EQ(word(8), 0x1a2b3c4du);
  EXPECT_EQ(word(4), word(40));
  EXPECT_EQ(word(48), word(84));
  EXPECT_EQ(word(88), 6u);
  EXPECT_EQ(word(92), 200u);
  EXPECT_EQ(word(100), 0x01234567u);
  EXPECT_EQ(word(104), 0x89abcdefu);
  EXPECT_EQ(word(108), 153u);
  EXPECT_EQ(word(284), 200u);
}

TEST_F(PcapngFileTest, HeadIsWrittenOnce) {
  for (int i = 0; i < 3; ++i) {
    Result<PcapngFile> file = PcapngFile::open(path_);
    ASSERT_TRUE(file);
    file->append(1, FrameDirection::kInbound, kHeader, {});
  }
  const Result<TraceSummary> summary = summarize(path_);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->frames, 3u);
  EXPECT_EQ(summary->bytes, 3 * kHeader.size());
}

TEST_F(PcapngFileTest, RefusesAFileOfAnotherKind) {
  std::ofstream(path_) << "precious";
  const Result<PcapngFile> file = PcapngFile::open(path_);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, EEXIST);
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
}

TEST_F(PcapngFileTest, ReportsAnUnusablePath) {
  const Result<PcapngFile> file = PcapngFile::open(directory_ + "/none/trace.pcapng");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ENOENT);
}

TEST_F(PcapngFileTest, ProcessesAppendAtOnce) {
  constexpr int kProcesses = 4;
  constexpr std::uint64_t kFrames = 500;
  for (int i = 0; i < kProcesses; ++i) {
    if (::fork() != 0) continue;
    Result<PcapngFile> file = PcapngFile::open(path_);
    for (std::uint64_t n = 0; file && n < kFrames; ++n) {
      file->append(n, FrameDirection::kOutbound, kHeader, Bytes(kPayload).first(n % 99));
    }
    ::_exit(file ? 0 : 1);
  }
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    ASSERT_GT(::wait(&status), 0);
    EXPECT_EQ(status, 0);
  }
  const Result<TraceSummary> summary = summarize(path_);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->frames, kProcesses * kFrames);
}

}  // namespace
}  // namespace airdma::trace
