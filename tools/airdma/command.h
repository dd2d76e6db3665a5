// SPDX-License-Identifier: MIT
// What the subcommands share. Each lives in a file of its own and adds itself to the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace airdma::tool {

// Exit statuses of our own, as env(1) and timeout(1) have them.
inline constexpr int kExitOwnFailure = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

/// The arguments after the first "--", which belong to another program and are not ours to parse.
struct Tail {
  bool present = false;
  std::vector<std::string> arguments;
};

/// Where a subcommand takes its input from and leaves its exit status.
struct Context {
  Tail tail;
  int status = 0;
};

void add_run(CLI::App& app, Context& context);
void add_trace(CLI::App& app, Context& context);
void add_devices(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);

/// Makes `parser` one that takes a program and its arguments, and says so in its help.
void take_command(CLI::App& parser);

/// The program and arguments that `parser` was given: what it could not parse itself, then the
/// tail. Throws CLI::ValidationError when there is none.
[[nodiscard]] std::vector<std::string> command_of(const CLI::App& parser, const Tail& tail);

}  // namespace airdma::tool
