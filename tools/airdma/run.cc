// SPDX-License-Identifier: MIT
// airdma run: becomes the program, so that exit status, signals and standard streams are its own.
#include <fmt/core.h>

#include "airdma/command.h"
#include "airdma/launch.h"

namespace airdma::tool {
namespace {

int run(const std::vector<std::string>& command) {
  const std::string directory = library_directory();
  if (const auto problem = library_problem(directory)) {
    fmt::print(stderr, "airdma: {}\n", *problem);
    return kExitOwnFailure;
  }
  prepend_library_path(directory);
  return exec_command(command);
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  CLI::App* parser = app.add_subcommand("run", "Run an RDMA program, unmodified, over airdma");
  take_command(*parser);
  parser->footer(
      "Puts airdma's libibverbs.so.1 and librdmacm.so.1 in front of the loader's path\n"
      "(LD_LIBRARY_PATH), lets CMD find the devices in /sys/class/infiniband (LD_PRELOAD), and\n"
      "becomes CMD. Nothing else changes. Exit status: CMD's; 127 when CMD\n"
      "is not found, 126 when it cannot be executed, 125 when airdma itself fails.");
  parser->callback([parser, &context] { context.status = run(command_of(*parser, context.tail)); });
}

}  // namespace airdma::tool
