// SPDX-License-Identifier: MIT
// Functions of libibverbs that ask the host and no device: fork hints and sysfs.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "verbs/api.h"

namespace airdma::verbs {

Status fork_init() { return {}; }

ibv_fork_status is_fork_initialized() noexcept { return IBV_FORK_UNNEEDED; }

Status dontfork_range(void*, size_t) { return {}; }

Status dofork_range(void*, size_t) { return {}; }

const char* get_sysfs_path() noexcept {
  // secure_getenv: a set-user-ID program must not read a folder of its caller's choice.
  const char* path = secure_getenv("SYSFS_PATH");
  return path != nullptr && path[0] != '\0' ? path : "/sys";
}

Result<int> read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  if (dir == nullptr || file == nullptr || buf == nullptr) return fail(EINVAL);
  const std::string path = std::string(dir) + "/" + file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(errno, "open");
  const ssize_t got = ::read(fd, buf, std::min(size, size_t{INT_MAX}));
  const int read_errno = errno;
  ::close(fd);
  if (got < 0) return fail(read_errno, "read");
  auto bytes = static_cast<size_t>(got);
  if (bytes > 0 && buf[bytes - 1] == '\n') --bytes;
  if (bytes < size) buf[bytes] = '\0';
  return static_cast<int>(bytes);
}

}  // namespace airdma::verbs
