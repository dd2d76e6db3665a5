// SPDX-License-Identifier: MIT
// Whole captures through the replay.
#pragma once

#include <string>
#include <vector>

#include "tests/interop/capture.h"
#include "tests/interop/replay/player.h"

namespace airdma::interop {

struct FileReport {
  std::string text;  // for people, ends with a newline
  bool unreadable = false;
  unsigned passed = 0;  // roles of connections
  unsigned failed = 0;
  unsigned not_supported = 0;
};

[[nodiscard]] FileReport replay_connections(const std::string& name,
                                            const std::vector<Connection>& connections);
[[nodiscard]] FileReport replay_file(const std::string& path);

}  // namespace airdma::interop
