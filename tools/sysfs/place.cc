// SPDX-License-Identifier: MIT
#include "sysfs/place.h"

#include <fcntl.h>
#include <limits.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <new>
#include <string_view>

#include "sysfs/real.h"

namespace airdma::sysfs {
namespace {

constexpr const char* kDirectoryName = "airdma-sysfs:";

/// While a tree is rendered on this thread: what that opens is the kernel's.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool rendering = false;

constinit std::atomic<bool> any_directory{false};

/// The path of a directory descriptor, or of a duplicate; empty when it is none of the tree's. The
/// file's name says it, so that there is nothing to keep in step with what a program closes.
std::string directory_path(int fd) {
  if (!any_directory.load(std::memory_order_relaxed)) return {};
  char link[32];
  char name[PATH_MAX] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  constinit static Real<ssize_t(const char*, char*, size_t)> real_readlink("readlink");
  if (real_readlink(link, name, sizeof name - 1) <= 0) return {};
  std::string_view text(name);
  const std::string prefix = std::string("/memfd:") + kDirectoryName;
  if (!text.starts_with(prefix)) return {};
  text.remove_prefix(prefix.size());
  return std::string(text.substr(0, text.rfind(" (deleted)")));
}

/// Without empty, "." and ".." parts. (Links of the tree lead out of it, so this is right for all
/// that does not go back through one.)
std::string normalised(std::string_view path) {
  std::string result;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      result.resize(std::min(result.rfind('/'), result.size()));
    } else {
      (result += '/') += part;
    }
  }
  return result.empty() ? "/" : result;
}

bool may_be_covered(const char* path) {
  const std::string_view text(path);
  return text.starts_with("/sys") || text.starts_with("/dev") || text.starts_with("//");
}

std::shared_ptr<const Tree> render_aside() {
  rendering = true;
  auto tree = current_tree();
  rendering = false;
  return tree;
}

/// The path's first link, resolved; empty when there is none.
std::string behind_link(const Tree& tree, const std::string& path, bool follow) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const bool last = at == std::string::npos;
    if (last && !follow) return {};
    const auto found = tree.find(path.substr(0, at));
    if (found != tree.end() && found->second.kind == Node::Kind::kLink) {
      return found->second.text + (last ? "" : path.substr(at));
    }
    if (last) return {};
  }
}

Place look_for(int directory, const char* path, bool follow) {
  Place place;
  if (path == nullptr || rendering) return place;
  std::string full;
  if (*path == '/') {
    if (!may_be_covered(path)) return place;
    full = path;
  } else {
    if (directory == AT_FDCWD) return place;
    full = directory_path(directory);
    if (full.empty()) return place;
    (full += '/') += path;
  }
  place.path = normalised(full);
  if (!is_covered(place.path)) return place;
  const int saved = errno;
  place.tree = render_aside();
  errno = saved;
  if (std::string target = behind_link(*place.tree, place.path, follow); !target.empty()) {
    place.kind = Place::Kind::kElsewhere;
    place.path = std::move(target);
    return place;
  }
  const auto found = place.tree->find(place.path);
  place.kind = found != place.tree->end() ? Place::Kind::kNode : Place::Kind::kMissing;
  if (found != place.tree->end()) place.node = &found->second;
  return place;
}

}  // namespace

Place find_place(int directory, const char* path, bool follow) noexcept {
  try {
    return look_for(directory, path, follow);
  } catch (const std::bad_alloc&) {
    // The caller is a function of the C library to its caller: no exception may leave it.
    return {};
  }
}

std::string directory_name(const std::string& path) {
  any_directory.store(true, std::memory_order_relaxed);
  return kDirectoryName + path;
}

}  // namespace airdma::sysfs
