// SPDX-License-Identifier: MIT
// airdma trace: runs a program as a child, with its traffic recorded as pcapng.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "airdma/command.h"
#include "airdma/launch.h"
#include "trace/pcapng.h"

namespace airdma::tool {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  for (const int number : kForwarded) ::sigaddset(&set, number);
  return set;
}

/// The processes of the command may have other working directories. Prints why when there is none.
std::optional<std::string> absolute_path(const std::string& output) {
  if (output.empty()) {
    fmt::print(stderr, "airdma: the name of the output file is empty\n");
    return std::nullopt;
  }
  std::error_code error;
  const auto path = std::filesystem::absolute(output, error);
  if (!error) return path.string();
  fmt::print(stderr, "airdma: {}: working directory: {}\n", output, error.message());
  return std::nullopt;
}

/// An empty trace at `path`, which is then the one every process of the command appends to.
/// Prints why when it cannot be made.
bool create_trace(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    fmt::print(stderr, "airdma: {}: {}\n", path, std::strerror(errno));
    return false;
  }
  ::close(fd);
  const auto file = trace::PcapngFile::open(path);
  if (!file) {
    fmt::print(stderr, "airdma: {}: {}: {}\n", path, file.error().call,
               std::strerror(file.error().code));
  }
  return file.has_value();
}

/// Waits for the child and passes on what other processes send us. A signal from the terminal
/// reaches the whole foreground group, the child included: passing it on would double it.
int wait_forwarding(pid_t child, const sigset_t& signals) {
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&signals, &info);
    if (number > 0 && number != SIGCHLD && info.si_code <= 0) ::kill(child, number);
  }
  return status;
}

/// Ends as the child did; a death by signal is repeated, without a second core dump.
int exit_like(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, number);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::kill(::getpid(), number);
  return 128 + number;
}

void print_summary(const std::string& path) {
  const auto summary = trace::summarize(path);
  if (!summary) {
    fmt::print(stderr, "airdma: {}: {}\n", path, std::strerror(summary.error().code));
  } else if (summary->frames == 0) {
    fmt::print(stderr, "airdma: 0 frames in {}: no connection was made\n", path);
  } else {
    fmt::print(stderr, "airdma: {} frames, {} bytes in {}\n", summary->frames, summary->bytes,
               path);
  }
}

int run_traced(const std::string& output, const std::vector<std::string>& command) {
  const std::string directory = library_directory();
  if (const auto problem = library_problem(directory)) {
    fmt::print(stderr, "airdma: {}\n", *problem);
    return kExitOwnFailure;
  }
  // Before the file is replaced: a mistyped name must not cost the trace of yesterday.
  if (const auto status = missing_program(command[0])) return *status;
  const auto path = absolute_path(output);
  if (!path || !create_trace(*path)) return kExitOwnFailure;

  const sigset_t signals = watched_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  // An inherited "ignore" would let the kernel reap the child before we see its status.
  struct sigaction on_child {
  }, default_action{};
  ::sigaction(SIGCHLD, &default_action, &on_child);
  const pid_t child = ::fork();
  if (child < 0) {
    fmt::print(stderr, "airdma: fork: {}\n", std::strerror(errno));
    return kExitOwnFailure;
  }
  if (child == 0) {
    ::sigaction(SIGCHLD, &on_child, nullptr);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::setenv("AIRDMA_TRACE", path->c_str(), 1);
    prepend_library_path(directory);
    ::_exit(exec_command(command));
  }
  const int status = wait_forwarding(child, signals);
  print_summary(*path);
  return exit_like(status);
}

}  // namespace

void add_trace(CLI::App& app, Context& context) {
  CLI::App* parser =
      app.add_subcommand("trace", "Run a program over airdma and record its traffic");
  take_command(*parser);
  parser->footer(
      "Records the traffic of CMD and of every process it starts as packets that Wireshark and\n"
      "tshark dissect: RoCEv2 over UDP, and MPA, DDP and RDMAP over TCP. What two recorded "
      "processes\n"
      "have with each other appears once. Exit status: CMD's; 125, 126 and 127 as airdma run.");
  auto output = std::make_shared<std::string>("airdma.pcapng");
  parser->add_option("-o,--output", *output, "File to write, replaced when it exists")
      ->capture_default_str();
  parser->callback([parser, &context, output] {
    context.status = run_traced(*output, command_of(*parser, context.tail));
  });
}

}  // namespace airdma::tool
