// SPDX-License-Identifier: MIT
// airdma: runs programs over airdma and shows what it does.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

#include "airdma/command.h"

namespace airdma::tool {
namespace {

/// Cuts the command line at "--" before the parser sees it: what follows may look like options.
Context split_tail(std::vector<std::string>& arguments) {
  Context context;
  const auto separator = std::ranges::find(arguments, "--");
  if (separator == arguments.end()) return context;
  context.tail.present = true;
  context.tail.arguments.assign(separator + 1, arguments.end());
  arguments.erase(separator, arguments.end());
  return context;
}

/// The parser alone would say no more than that a command is required.
bool begins_well(const CLI::App& app, const std::vector<std::string>& arguments) {
  constexpr std::array<std::string_view, 3> kOptions{"-h", "--help", "--version"};
  if (arguments.empty()) return true;
  const std::string& first = arguments.front();
  const bool option = first.starts_with('-');
  const auto has_its_name = [&](const CLI::App* one) { return one->get_name() == first; };
  if (option ? std::ranges::find(kOptions, first) != kOptions.end()
             : !app.get_subcommands(has_its_name).empty()) {
    return true;
  }
  fmt::print(stderr, "airdma: there is no {} '{}'; airdma --help lists what there is\n",
             option ? "option" : "command", first);
  return false;
}

class CommandFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const bool options = app->get_options().size() > 1;  // than help
    return fmt::format("Usage: {}{} [--] CMD [ARG]...\n", name, options ? " [OPTIONS]" : "");
  }
};

int main_of(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  Context context = split_tail(arguments);
  CLI::App app{"RDMA out of thin air: runs RDMA programs without RDMA hardware.", "airdma"};
  app.set_version_flag("--version", "airdma " AIRDMA_VERSION);
  app.require_subcommand(1);
  app.footer("airdma COMMAND --help tells more about a command; the manual is airdma(1).");
  add_run(app, context);
  add_devices(app, context);
  add_doctor(app, context);
  add_trace(app, context);
  if (!begins_well(app, arguments)) return kExitOwnFailure;
  std::ranges::reverse(arguments);  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitOwnFailure;
  }
  return context.status;
}

}  // namespace

void take_command(CLI::App& parser) {
  parser.prefix_command();
  parser.formatter(std::make_shared<CommandFormatter>());
}

std::vector<std::string> command_of(const CLI::App& parser, const Tail& tail) {
  std::vector<std::string> command = parser.remaining();
  // "airdma run CMD a -- b": the separator is CMD's own.
  if (!command.empty() && tail.present) command.emplace_back("--");
  command.insert(command.end(), tail.arguments.begin(), tail.arguments.end());
  if (command.empty()) {
    throw CLI::ValidationError("CMD", "no program given: airdma " + parser.get_name() + " -- CMD");
  }
  return command;
}

}  // namespace airdma::tool

int main(int argc, char** argv) { return airdma::tool::main_of(argc, argv); }
