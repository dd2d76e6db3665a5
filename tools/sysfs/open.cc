// SPDX-License-Identifier: MIT
// open() and its like, fopen(), access() and its like.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>

#include "sysfs/node.h"
#include "sysfs/real.h"

using airdma::sysfs::find_place;
using airdma::sysfs::Place;
using airdma::sysfs::Real;

namespace {

using OpenAt = int(int, const char*, int, ...);

constinit Real<OpenAt> real_openat("openat");
constinit Real<OpenAt> real_openat64("openat64");
constinit Real<int(const char*, int, ...)> real_open("open");
constinit Real<int(const char*, int, ...)> real_open64("open64");
constinit Real<FILE*(const char*, const char*)> real_fopen("fopen");
constinit Real<FILE*(const char*, const char*)> real_fopen64("fopen64");
constinit Real<int(const char*, int)> real_access("access");
constinit Real<int(const char*, int)> real_eaccess("eaccess");
constinit Real<int(const char*, int)> real_euidaccess("euidaccess");
constinit Real<int(int, const char*, int, int)> real_faccessat("faccessat");

/// `pass(path)` where the path is the kernel's business.
template <class Pass>
int open_path(int directory, const char* path, int flags, Pass pass) {
  const Place place = find_place(directory, path, (flags & O_NOFOLLOW) == 0);
  switch (place.kind) {
    case Place::Kind::kForeign:
      return pass(directory, path);
    case Place::Kind::kElsewhere:
      return pass(AT_FDCWD, place.path.c_str());
    case Place::Kind::kMissing:
      return airdma::sysfs::missing();
    case Place::Kind::kNode:
      return airdma::sysfs::open_node(place, flags);
  }
  return airdma::sysfs::missing();
}

/// The third argument of open(), if there is one.
#define AIRDMA_MODE(flags)                                              \
  mode_t mode = 0;                                                      \
  if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list arguments;                                                  \
    va_start(arguments, flags);                                         \
    mode = va_arg(arguments, mode_t);                                   \
    va_end(arguments);                                                  \
  }

FILE* open_stream(const char* path, const char* mode, Real<FILE*(const char*, const char*)>& real) {
  const Place place = find_place(AT_FDCWD, path, true);
  if (place.kind == Place::Kind::kForeign) return real(path, mode);
  if (place.kind == Place::Kind::kElsewhere) return real(place.path.c_str(), mode);
  const bool reads = mode[0] == 'r' && std::strchr(mode, '+') == nullptr;
  const int flags =
      (reads ? O_RDONLY : O_RDWR) | (std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0);
  const int fd = place.kind == Place::Kind::kMissing ? airdma::sysfs::missing()
                                                     : airdma::sysfs::open_node(place, flags);
  if (fd < 0) return nullptr;
  FILE* stream = ::fdopen(fd, mode);
  if (stream == nullptr) ::close(fd);
  return stream;
}

template <class Pass>
int access_path(int directory, const char* path, int mode, bool follow, Pass pass) {
  const Place place = find_place(directory, path, follow);
  switch (place.kind) {
    case Place::Kind::kForeign:
      return pass(directory, path);
    case Place::Kind::kElsewhere:
      return pass(AT_FDCWD, place.path.c_str());
    case Place::Kind::kMissing:
      return airdma::sysfs::missing();
    case Place::Kind::kNode:
      return airdma::sysfs::check_access(place, mode);
  }
  return airdma::sysfs::missing();
}

}  // namespace

AIRDMA_INTERPOSE int open(const char* path, int flags, ...) {
  AIRDMA_MODE(flags)
  return open_path(AT_FDCWD, path, flags,
                   [&](int, const char* real) { return real_open(real, flags, mode); });
}
AIRDMA_INTERPOSE int open64(const char* path, int flags, ...) {
  AIRDMA_MODE(flags)
  return open_path(AT_FDCWD, path, flags,
                   [&](int, const char* real) { return real_open64(real, flags, mode); });
}
AIRDMA_INTERPOSE int openat(int directory, const char* path, int flags, ...) {
  AIRDMA_MODE(flags)
  return open_path(directory, path, flags,
                   [&](int at, const char* real) { return real_openat(at, real, flags, mode); });
}
AIRDMA_INTERPOSE int openat64(int directory, const char* path, int flags, ...) {
  AIRDMA_MODE(flags)
  return open_path(directory, path, flags,
                   [&](int at, const char* real) { return real_openat64(at, real, flags, mode); });
}

// What fortified programs call where no mode is given.
AIRDMA_INTERPOSE int __open_2(const char* path, int flags) { return open(path, flags); }
AIRDMA_INTERPOSE int __open64_2(const char* path, int flags) { return open64(path, flags); }
AIRDMA_INTERPOSE int __openat_2(int directory, const char* path, int flags) {
  return openat(directory, path, flags);
}
AIRDMA_INTERPOSE int __openat64_2(int directory, const char* path, int flags) {
  return openat64(directory, path, flags);
}

AIRDMA_INTERPOSE FILE* fopen(const char* path, const char* mode) {
  return open_stream(path, mode, real_fopen);
}
AIRDMA_INTERPOSE FILE* fopen64(const char* path, const char* mode) {
  return open_stream(path, mode, real_fopen64);
}

AIRDMA_INTERPOSE int access(const char* path, int mode) noexcept {
  return access_path(AT_FDCWD, path, mode, true,
                     [&](int, const char* real) { return real_access(real, mode); });
}
AIRDMA_INTERPOSE int eaccess(const char* path, int mode) noexcept {
  return access_path(AT_FDCWD, path, mode, true,
                     [&](int, const char* real) { return real_eaccess(real, mode); });
}
AIRDMA_INTERPOSE int euidaccess(const char* path, int mode) noexcept {
  return access_path(AT_FDCWD, path, mode, true,
                     [&](int, const char* real) { return real_euidaccess(real, mode); });
}
AIRDMA_INTERPOSE int faccessat(int directory, const char* path, int mode, int flags) noexcept {
  return access_path(
      directory, path, mode, (flags & AT_SYMLINK_NOFOLLOW) == 0,
      [&](int at, const char* real) { return real_faccessat(at, real, mode, flags); });
}
