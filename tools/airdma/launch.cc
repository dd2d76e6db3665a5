// SPDX-License-Identifier: MIT
#include "airdma/launch.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "airdma/command.h"

namespace airdma::tool {

std::string library_directory() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "lib" / "airdma").string();
}

std::optional<std::string> library_problem(const std::string& directory) {
  for (const char* name : kLibraries) {
    if (::access((directory + "/" + name).c_str(), R_OK) != 0) {
      return fmt::format(
          "{}/{}: {}: the command and the libraries are copied together, as bin/airdma and "
          "lib/airdma side by side",
          directory, name, std::strerror(errno));
    }
  }
  return std::nullopt;
}

/// Last, because sanitizers and the like insist on being first.
static void append_preload(const std::string& library) {
  const char* wanted = std::getenv("AIRDMA_SYSFS");
  if (wanted != nullptr && std::strcmp(wanted, "off") == 0) return;
  if (::access(library.c_str(), R_OK) != 0) return;
  const char* old = std::getenv("LD_PRELOAD");
  const std::string before = old != nullptr ? old : "";
  if (before.find(library) != std::string::npos) return;  // a launcher within a launcher
  ::setenv("LD_PRELOAD", (before.empty() ? library : before + ":" + library).c_str(), 1);
}

void prepend_library_path(const std::string& directory) {
  // An empty element would mean the current directory: no stray colon.
  const char* old = std::getenv("LD_LIBRARY_PATH");
  const bool had = old != nullptr && *old != '\0';
  const std::string path = had ? directory + ":" + old : directory;
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  append_preload(directory + "/libairdma-sysfs.so");
}

static int cannot_start(const std::string& name, int error) {
  if (name.empty()) {
    fmt::print(stderr, "airdma: the name of the program is empty\n");
    return kExitNotFound;
  }
  fmt::print(stderr, "airdma: {}: {}\n", name,
             error == ENOENT ? "program not found" : std::strerror(error));
  return error == ENOENT ? kExitNotFound : kExitNotExecutable;
}

std::optional<int> missing_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), X_OK) == 0) return std::nullopt;
    return cannot_start(name, errno);
  }
  const char* path = std::getenv("PATH");
  if (path == nullptr) return std::nullopt;  // execvp() has a path of its own
  int error = ENOENT;
  std::istringstream directories(path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (::access(((directory.empty() ? "." : directory) + "/" + name).c_str(), X_OK) == 0) {
      return std::nullopt;
    }
    if (errno == EACCES) error = EACCES;
  }
  return cannot_start(name, error);
}

int exec_command(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return cannot_start(command[0], errno);
}

}  // namespace airdma::tool
