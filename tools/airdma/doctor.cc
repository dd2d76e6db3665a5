// SPDX-License-Identifier: MIT
// airdma doctor: what works here, what does not, and why.
#include <fmt/core.h>

#include "airdma/command.h"
#include "airdma/doctor_checks.h"

namespace airdma::tool {
namespace {

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok  ";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "FAIL";
  }
  return "";
}

int examine() {
  int failures = 0;
  for (const auto checks : {product_checks(), machine_checks()}) {
    for (const Check& check : checks) {
      const Finding finding = check.run();
      fmt::print("{} {}: {}\n", word(finding.verdict), check.what, finding.detail);
      if (finding.verdict == Verdict::kFail) ++failures;
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  CLI::App* parser = app.add_subcommand("doctor", "Tell what works on this machine and what not");
  parser->footer(
      "One line a check: ok, warn (airdma works, something is slower or missing) or FAIL.\n"
      "Exit status: 1 when airdma cannot work here.");
  parser->callback([&context] { context.status = examine(); });
}

}  // namespace airdma::tool
