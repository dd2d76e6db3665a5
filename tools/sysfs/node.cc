// SPDX-License-Identifier: MIT
#include "sysfs/node.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

namespace airdma::sysfs {
namespace {

constexpr off_t kSysfsFileBytes = 4096;  // what the kernel says of each, whatever is in it

ino_t inode_of(const std::string& path) { return std::hash<std::string>{}(path) | 1; }

int fail(int error) {
  errno = error;
  return -1;
}

/// Writes all of it, and goes back to the beginning.
bool fill(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<std::size_t>(wrote);
  }
  return ::lseek(fd, 0, SEEK_SET) == 0;
}

bool add_entry(std::vector<dirent>& entries, const std::string& name, unsigned char type,
               ino_t inode) {
  dirent entry{};
  if (name.size() >= sizeof entry.d_name) return false;
  entry.d_ino = inode;
  entry.d_off = static_cast<off_t>(entries.size() + 1);
  entry.d_reclen = sizeof entry;
  entry.d_type = type;
  std::memcpy(entry.d_name, name.c_str(), name.size() + 1);
  entries.push_back(entry);
  return true;
}

unsigned char type_of(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kDirectory:
      return DT_DIR;
    case Node::Kind::kFile:
      return DT_REG;
    case Node::Kind::kLink:
      return DT_LNK;
    case Node::Kind::kCharacterDevice:
      return DT_CHR;
  }
  return DT_UNKNOWN;
}

}  // namespace

int open_node(const Place& place, int flags) {
  const Node& node = *place.node;
  const bool directory = node.kind == Node::Kind::kDirectory;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return fail(EEXIST);
  if (node.kind == Node::Kind::kLink) return fail(ELOOP);  // O_NOFOLLOW
  if ((flags & O_DIRECTORY) != 0 && !directory) return fail(ENOTDIR);
  if (directory && writes) return fail(EISDIR);
  if (node.error != 0) return fail(node.error);
  if (writes) return fail(EACCES);
  const std::string name = directory ? directory_name(place.path) : "airdma-sysfs";
  const int fd = ::memfd_create(name.c_str(), (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
  if (fd < 0) return -1;
  if (!fill(fd, directory ? std::string() : node.text)) {
    const int error = errno;
    ::close(fd);
    return fail(error);
  }
  return fd;
}

void describe(const Place& place, struct stat& status) {
  status = {};
  status.st_ino = inode_of(place.path);
  status.st_nlink = 1;
  status.st_blksize = kSysfsFileBytes;
  switch (place.node->kind) {
    case Node::Kind::kDirectory:
      status.st_mode = S_IFDIR | 0755;
      status.st_nlink = 2;
      return;
    case Node::Kind::kFile:
      status.st_mode = S_IFREG | 0444;
      status.st_size = kSysfsFileBytes;
      return;
    case Node::Kind::kLink:
      status.st_mode = S_IFLNK | 0777;
      status.st_size = static_cast<off_t>(place.node->text.size());
      return;
    case Node::Kind::kCharacterDevice:
      status.st_mode = S_IFCHR | 0666;
      status.st_rdev = place.node->device;
      return;
  }
}

int check_access(const Place& place, int mode) {
  struct stat status{};
  describe(place, status);
  const unsigned wanted = static_cast<unsigned>(mode) & 7u;  // R_OK, W_OK, X_OK: the bits of a mode
  return (status.st_mode & wanted) == wanted ? 0 : fail(EACCES);
}

bool list_node(const Place& place, std::vector<dirent>& entries) {
  if (place.node->kind != Node::Kind::kDirectory) {
    errno = ENOTDIR;
    return false;
  }
  add_entry(entries, ".", DT_DIR, inode_of(place.path));
  add_entry(entries, "..", DT_DIR, inode_of(place.path.substr(0, place.path.rfind('/'))));
  for (const std::string& name : children(*place.tree, place.path)) {
    const std::string path = place.path + '/' + name;
    add_entry(entries, name, type_of(place.tree->at(path).kind), inode_of(path));
  }
  return true;
}

}  // namespace airdma::sysfs
