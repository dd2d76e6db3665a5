// SPDX-License-Identifier: MIT
// What calls on a node of the tree give. Errors are -1 or null with errno, as libc's.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include "sysfs/place.h"

namespace airdma::sysfs {

/// A descriptor whose content is the file's, or that names a directory.
int open_node(const Place& place, int flags);
/// What the kernel would say of it; `place` is a node.
void describe(const Place& place, struct stat& status);
/// 0 or -1, as access().
int check_access(const Place& place, int mode);
/// Entries of a directory, with "." and "..". ENOTDIR (false).
bool list_node(const Place& place, std::vector<dirent>& entries);

/// For Place::kMissing.
inline int missing() {
  errno = ENOENT;
  return -1;
}

}  // namespace airdma::sysfs
