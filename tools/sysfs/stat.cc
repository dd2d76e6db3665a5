// SPDX-License-Identifier: MIT
// stat() and its like, readlink(), realpath().
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sysfs/node.h"
#include "sysfs/real.h"

using airdma::sysfs::find_place;
using airdma::sysfs::Place;
using airdma::sysfs::Real;

// One layout, so one implementation serves both names (32-bit programs are not preloaded).
static_assert(sizeof(struct stat) == sizeof(struct stat64));

namespace {

constinit Real<int(int, const char*, struct stat*, int)> real_fstatat("fstatat");
constinit Real<int(int, const char*, int, unsigned, struct statx*)> real_statx("statx");
constinit Real<ssize_t(int, const char*, char*, size_t)> real_readlinkat("readlinkat");
constinit Real<char*(const char*, char*)> real_realpath("realpath");

int stat_path(int directory, const char* path, struct stat* status, int flags) {
  const Place place = find_place(directory, path, (flags & AT_SYMLINK_NOFOLLOW) == 0);
  switch (place.kind) {
    case Place::Kind::kForeign:
      return real_fstatat(directory, path, status, flags);
    case Place::Kind::kElsewhere:
      return real_fstatat(AT_FDCWD, place.path.c_str(), status, flags);
    case Place::Kind::kMissing:
      return airdma::sysfs::missing();
    case Place::Kind::kNode:
      airdma::sysfs::describe(place, *status);
      return 0;
  }
  return airdma::sysfs::missing();
}

int stat_path64(int directory, const char* path, struct stat64* status, int flags) {
  return stat_path(directory, path, reinterpret_cast<struct stat*>(status), flags);
}

void extend(const struct stat& from, struct statx& to) {
  to = {};
  to.stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_GID | STATX_INO |
                STATX_SIZE | STATX_BLOCKS;
  to.stx_blksize = static_cast<std::uint32_t>(from.st_blksize);
  to.stx_nlink = static_cast<std::uint32_t>(from.st_nlink);
  to.stx_mode = static_cast<std::uint16_t>(from.st_mode);
  to.stx_ino = from.st_ino;
  to.stx_size = static_cast<std::uint64_t>(from.st_size);
  to.stx_rdev_major = major(from.st_rdev);
  to.stx_rdev_minor = minor(from.st_rdev);
}

ssize_t read_link(int directory, const char* path, char* buffer, size_t size) {
  const Place place = find_place(directory, path, false);
  if (place.kind == Place::Kind::kForeign) return real_readlinkat(directory, path, buffer, size);
  if (place.kind == Place::Kind::kElsewhere) {
    return real_readlinkat(AT_FDCWD, place.path.c_str(), buffer, size);
  }
  if (place.kind == Place::Kind::kMissing) return airdma::sysfs::missing();
  if (place.node->kind != airdma::sysfs::Node::Kind::kLink || size == 0) {
    errno = EINVAL;
    return -1;
  }
  const std::string& target = place.node->text;
  const std::size_t length = std::min(size, target.size());
  std::memcpy(buffer, target.data(), length);
  return static_cast<ssize_t>(length);
}

char* resolve(const char* path, char* resolved) {
  const Place place = find_place(AT_FDCWD, path, true);
  if (place.kind == Place::Kind::kForeign) return real_realpath(path, resolved);
  if (place.kind == Place::Kind::kElsewhere) return real_realpath(place.path.c_str(), resolved);
  if (place.kind == Place::Kind::kMissing || place.path.size() >= PATH_MAX) {
    errno = place.kind == Place::Kind::kMissing ? ENOENT : ENAMETOOLONG;
    return nullptr;
  }
  if (resolved == nullptr) return ::strdup(place.path.c_str());
  return std::strcpy(resolved, place.path.c_str());
}

}  // namespace

AIRDMA_INTERPOSE int stat(const char* path, struct stat* status) noexcept {
  return stat_path(AT_FDCWD, path, status, 0);
}
AIRDMA_INTERPOSE int stat64(const char* path, struct stat64* status) noexcept {
  return stat_path64(AT_FDCWD, path, status, 0);
}
AIRDMA_INTERPOSE int lstat(const char* path, struct stat* status) noexcept {
  return stat_path(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
AIRDMA_INTERPOSE int lstat64(const char* path, struct stat64* status) noexcept {
  return stat_path64(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
AIRDMA_INTERPOSE int fstatat(int directory, const char* path, struct stat* status,
                             int flags) noexcept {
  return stat_path(directory, path, status, flags);
}
AIRDMA_INTERPOSE int fstatat64(int directory, const char* path, struct stat64* status,
                               int flags) noexcept {
  return stat_path64(directory, path, status, flags);
}
AIRDMA_INTERPOSE int statx(int directory, const char* path, int flags, unsigned mask,
                           struct statx* status) noexcept {
  const Place place = find_place(directory, path, (flags & AT_SYMLINK_NOFOLLOW) == 0);
  if (place.kind == Place::Kind::kForeign) return real_statx(directory, path, flags, mask, status);
  if (place.kind == Place::Kind::kElsewhere) {
    return real_statx(AT_FDCWD, place.path.c_str(), flags, mask, status);
  }
  if (place.kind == Place::Kind::kMissing) return airdma::sysfs::missing();
  struct stat plain{};
  airdma::sysfs::describe(place, plain);
  extend(plain, *status);
  return 0;
}

// Programs built before glibc 2.33 call these; the version is that of struct stat.
AIRDMA_INTERPOSE int __xstat(int, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, 0);
}
AIRDMA_INTERPOSE int __xstat64(int, const char* path, struct stat64* status) {
  return stat_path64(AT_FDCWD, path, status, 0);
}
AIRDMA_INTERPOSE int __lxstat(int, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
AIRDMA_INTERPOSE int __lxstat64(int, const char* path, struct stat64* status) {
  return stat_path64(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
AIRDMA_INTERPOSE int __fxstatat(int, int directory, const char* path, struct stat* status,
                                int flags) {
  return stat_path(directory, path, status, flags);
}
AIRDMA_INTERPOSE int __fxstatat64(int, int directory, const char* path, struct stat64* status,
                                  int flags) {
  return stat_path64(directory, path, status, flags);
}

AIRDMA_INTERPOSE ssize_t readlink(const char* path, char* buffer, size_t size) noexcept {
  return read_link(AT_FDCWD, path, buffer, size);
}
AIRDMA_INTERPOSE ssize_t readlinkat(int directory, const char* path, char* buffer,
                                    size_t size) noexcept {
  return read_link(directory, path, buffer, size);
}
AIRDMA_INTERPOSE ssize_t __readlink_chk(const char* path, char* buffer, size_t size,
                                        size_t buffer_size) {
  if (size > buffer_size) ::abort();  // what the check is for
  return read_link(AT_FDCWD, path, buffer, size);
}
AIRDMA_INTERPOSE char* realpath(const char* path, char* resolved) noexcept {
  return resolve(path, resolved);
}
AIRDMA_INTERPOSE char* __realpath_chk(const char* path, char* resolved, size_t buffer_size) {
  if (buffer_size < PATH_MAX) ::abort();
  return resolve(path, resolved);
}
AIRDMA_INTERPOSE char* canonicalize_file_name(const char* path) noexcept {
  return resolve(path, nullptr);
}
