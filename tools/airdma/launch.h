// SPDX-License-Identifier: MIT
// Starting programs so that the loader finds our libraries first.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace airdma::tool {

/// The folder of libibverbs.so.1 and librdmacm.so.1: ../lib/airdma as seen from this program,
/// in a build folder as in an installation. Absolute; says nothing of whether it exists.
[[nodiscard]] std::string library_directory();

/// The names that programs ask the loader for.
inline constexpr const char* kLibraries[] = {"libibverbs.so.1", "librdmacm.so.1"};

/// Why programs could not use the folder, or nothing when both libraries are there.
[[nodiscard]] std::optional<std::string> library_problem(const std::string& directory);

/// Puts the folder in front of this process's LD_LIBRARY_PATH, and the library that answers for
/// sysfs behind LD_PRELOAD's, if it is there and AIRDMA_SYSFS does not say "off".
void prepend_library_path(const std::string& directory);

/// Whether exec_command would find a program to start; prints why not and gives the exit status
/// due.
[[nodiscard]] std::optional<int> missing_program(const std::string& name);

/// Becomes `command`; returns only on failure, with a message printed and the exit status due.
[[nodiscard]] int exec_command(const std::vector<std::string>& command);

}  // namespace airdma::tool
