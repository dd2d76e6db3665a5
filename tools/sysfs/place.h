// SPDX-License-Identifier: MIT
// Which of the program's paths are the tree's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sysfs/tree.h"

namespace airdma::sysfs {

/// Where a path leads.
struct Place {
  enum class Kind : std::uint8_t {
    kForeign,    // nowhere near the tree: the program's call is the kernel's
    kMissing,    // in the tree, and there is nothing
    kNode,       // a node of the tree
    kElsewhere,  // through a link of the tree to `path`, which is the kernel's
  };
  Kind kind = Kind::kForeign;
  std::shared_ptr<const Tree> tree;
  std::string path;            // normalised
  const Node* node = nullptr;  // of kNode
};

/// `directory`: a descriptor that openat() and its like were given, or AT_FDCWD. `follow`: what is
/// last in the path may be a link too. Costs a few comparisons for foreign paths.
Place find_place(int directory, const char* path, bool follow) noexcept;

/// The name of a file that stands for a directory of the tree: find_place() knows its descriptors
/// and their duplicates by it.
std::string directory_name(const std::string& path);

}  // namespace airdma::sysfs
