// SPDX-License-Identifier: MIT
// A trace in a folder of its own, and what tshark reads in it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace airdma::trace {

class TsharkTest : public testing::Test {
 protected:
  TsharkTest() {
    std::string name = testing::TempDir() + "airdma-tap-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ + "/trace.pcapng";
  }
  ~TsharkTest() override { std::filesystem::remove_all(directory_); }

  void SetUp() override {
    if (std::system("tshark --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tshark";
  }

  /// What `tshark -r FILE` prints with these options. RPC-over-RDMA is off: its heuristic calls
  /// every empty Send malformed.
  std::string tshark(const std::string& options) {
    const std::string command =
        "tshark -o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE "
        "-o udp.check_checksum:TRUE --disable-protocol rpcordma "
        "-n -r " +
        path_ + " " + options + " 2>/dev/null";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::string output;
    char part[4096];
    while (std::size_t n = std::fread(part, 1, sizeof part, pipe)) output.append(part, n);
    EXPECT_EQ(::pclose(pipe), 0) << command;
    return output;
  }

  /// Every value of a field in the order of the file.
  std::vector<std::string> fields(const std::string& field, const std::string& filter = "") {
    std::istringstream lines(
        tshark("-T fields -e " + field + (filter.empty() ? "" : " -Y '" + filter + "'")));
    std::vector<std::string> values;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream cells(line);
      for (std::string cell; std::getline(cells, cell, ',');) values.push_back(cell);
    }
    return values;
  }

  std::size_t times(const std::string& text, const std::string& word) {
    std::size_t count = 0;
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
    return count;
  }

  std::function<std::uint64_t()> clock() {
    return [this] { return now_ += 1000; };
  }

  std::string directory_;
  std::string path_;
  std::uint64_t now_ = 1'700'000'000'000'000'000;
};

}  // namespace airdma::trace
