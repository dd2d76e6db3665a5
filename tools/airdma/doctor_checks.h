// SPDX-License-Identifier: MIT
// What airdma needs of the machine it runs on, each need as one check.
#pragma once

#include <span>
#include <string>

namespace airdma::tool {

enum class Verdict {
  kOk,
  kWarn,  // works, with something slower, missing or worth knowing
  kFail,  // airdma cannot work
};

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string detail;
};

struct Check {
  const char* what;
  Finding (*run)();
};

/// Of machine_checks(): whether the port of RoCEv2 can be had, whether packets get to the right one
/// of the programs that share it, and whether many can be sent at once.
[[nodiscard]] Finding check_roce_port();
[[nodiscard]] Finding check_steering();
[[nodiscard]] Finding check_segmentation();

/// What the machine offers: kernel, network, limits.
[[nodiscard]] std::span<const Check> machine_checks();
/// airdma itself: its libraries, its devices, the programs it would run.
[[nodiscard]] std::span<const Check> product_checks();

}  // namespace airdma::tool
