// SPDX-License-Identifier: MIT
// airdma_replay FILE...: replays captures of iWARP connections (pcap, pcapng) through airdma's
// engines, as the initiator and as the responder, and says whether they decide as the captured
// sides did. Exit status: 0 no difference, 1 a difference, 2 a file cannot be read.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/interop/replay/replay.h"

int main(int argc, char** argv) {
  using namespace airdma::interop;
  const std::vector<std::string> files(argv + 1, argv + argc);
  if (files.empty() || files[0] == "--help") {
    (void)std::fputs("usage: airdma_replay FILE...   (pcap or pcapng)\n", stderr);
    return files.empty() ? 2 : 0;
  }
  int status = 0;
  try {
    for (const std::string& file : files) {
      const FileReport report = replay_file(file);
      (void)std::fputs(report.text.c_str(), stdout);
      status = std::max(status, report.unreadable ? 2 : report.failed != 0 ? 1 : 0);
    }
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "airdma_replay: %s\n", error.what());
    return 2;
  }
  return status;
}
