// SPDX-License-Identifier: MIT
// What the kernel's sysfs and /dev would say of the devices, as a tree in memory. Rendered from
// what the verbs answer at that moment, so that both always agree.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace airdma::sysfs {

struct Node {
  enum class Kind : std::uint8_t { kDirectory, kFile, kLink, kCharacterDevice };
  Kind kind = Kind::kDirectory;
  std::string text;  // of a file its content, of a link where it leads
  int error = 0;     // of opening it
  dev_t device = 0;  // of a character device
};

/// Absolute paths to nodes, as they were at one moment.
using Tree = std::map<std::string, Node, std::less<>>;

/// Names directly in a directory.
std::vector<std::string> children(const Tree& tree, const std::string& directory);

/// Whether a normalised path is one that a tree decides about, whatever is in it.
bool is_covered(std::string_view path);

/// The tree as it is now. Never null; empty below the roots when there is no library of verbs to
/// ask.
std::shared_ptr<const Tree> current_tree();

}  // namespace airdma::sysfs
