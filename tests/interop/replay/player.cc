// SPDX-License-Identifier: MIT
#include "tests/interop/replay/player.h"

#include <algorithm>
#include <cstdio>

#include "tests/interop/replay/endpoint_player.h"
#include "tests/interop/replay/setup_player.h"

namespace airdma::interop {
namespace {

class Player {
 public:
  Player(const Conversation& conversation, Role role)
      : conversation_(conversation), script_(make_script(conversation, role)) {
    report_.role = role;
  }

  RoleReport run() {
    if (!script_.unsupported.empty()) return not_supported(script_.unsupported);
    SetupPlayer setup(conversation_, script_, report_.deviations);
    if (!setup.unsupported().empty()) return not_supported(setup.unsupported());
    const std::size_t first = setup.run();
    report_.compared = setup.compared();
    if (setup.difference()) return fail(*setup.difference());
    if (!setup.established()) return report_;
    return play_endpoint(setup, first);
  }

 private:
  RoleReport play_endpoint(const SetupPlayer& setup, std::size_t first) {
    EndpointPlayer endpoint(conversation_, script_, report_.deviations);
    const std::string obstacle = endpoint.start(setup.params(), first);
    if (!obstacle.empty()) return not_supported(obstacle);
    endpoint.run(first, setup.used_of_event());
    report_.compared += "; " + endpoint.compared();
    if (endpoint.difference()) return fail(*endpoint.difference());
    return report_;
  }

  RoleReport not_supported(const std::string& why) {
    report_.verdict = Verdict::kNotSupported;
    report_.compared = why;
    return report_;
  }
  RoleReport fail(const Difference& difference) {
    report_.verdict = Verdict::kFail;
    report_.difference = difference;
    return report_;
  }

  const Conversation& conversation_;
  Script script_;
  RoleReport report_;
};

std::string difference_text(const Difference& difference) {
  char at[64];
  (void)std::snprintf(at, sizeof at, "    at byte %llu (0x%llx): ",
                      static_cast<unsigned long long>(difference.offset),
                      static_cast<unsigned long long>(difference.offset));
  std::string text = at + difference.what + "\n";
  if (!difference.expected.empty()) text += "      expected: " + difference.expected + "\n";
  if (!difference.ours.empty()) text += "      ours:     " + difference.ours + "\n";
  return text;
}

}  // namespace

RoleReport replay(const Conversation& conversation, Role role) {
  return Player(conversation, role).run();
}

std::string to_text(const RoleReport& report) {
  constexpr const char* kVerdicts[] = {"PASS", "FAIL", "NOT SUPPORTED"};
  std::string text = "  " + std::string(name_of(report.role)) + ": " +
                     kVerdicts[static_cast<std::size_t>(report.verdict)] + ": " + report.compared +
                     "\n";
  if (report.verdict == Verdict::kFail) text += difference_text(report.difference);
  for (const Deviation deviation : report.deviations) {
    text += "    allowed: " + std::string(info(deviation).name) + ": " +
            std::string(info(deviation).reason) + "\n";
  }
  return text;
}

}  // namespace airdma::interop
