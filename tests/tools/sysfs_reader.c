// SPDX-License-Identifier: MIT
// Reads what there is of the devices under /sys and /dev in every way that programs have, and holds
// it against what the verbs say. Runs under `airdma run`. With an argument: one line per device and
// GID, read once each time a line comes in.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../abi/check.h"

static char* in_folder(const char* folder, const char* name) {
  static char paths[4][2 * PATH_MAX];  // the compiler counts the worst
  static int next;
  char* path = paths[next++ % 4];

  snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
  return path;
}

static int count_descriptors(void) {
  DIR* all = opendir("/proc/self/fd");
  int count = 0;

  while (all && readdir(all)) count++;
  if (all) closedir(all);
  return count;
}

// The file's content, checked to be the same by each way to open it.
static const char* text_of(const char* path) {
  static char text[256];
  char again[256];
  char folder[PATH_MAX];
  char* name;
  FILE* stream = fopen(path, "re");
  int fd, directory;
  ssize_t got;

  memset(text, 0, sizeof(text));
  CHECK(stream != NULL);
  if (!stream) return text;
  CHECK(fgets(text, sizeof(text), stream) != NULL);
  CHECK(fgetc(stream) == EOF);
  fclose(stream);

  fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
  got = pread(fd, again, sizeof(again), 0);
  CHECK(got == (ssize_t)strlen(text) && memcmp(again, text, (size_t)got) == 0);
  close(fd);

  strcpy(folder, path);
  name = strrchr(folder, '/');
  *name++ = 0;
  directory = open(folder, O_RDONLY | O_DIRECTORY);
  CHECK(directory >= 0);
  fd = openat(directory, name, O_RDONLY);
  CHECK(fd >= 0 && read(fd, again, sizeof(again)) == (ssize_t)strlen(text));
  CHECK(faccessat(directory, name, R_OK, 0) == 0);
  close(fd);
  close(directory);
  text[strcspn(text, "\n")] = 0;
  return text;
}

static const char* text_in(const char* folder, const char* name) {
  return text_of(in_folder(folder, name));
}

static int exists(const char* path, mode_t type) {
  struct stat plain, unfollowed, at;
  struct statx extended;
  char resolved[PATH_MAX];

  if (access(path, F_OK) != 0) return 0;
  CHECK(stat(path, &plain) == 0 && lstat(path, &unfollowed) == 0);
  CHECK(fstatat(AT_FDCWD, path, &at, 0) == 0 && at.st_ino == plain.st_ino);
  CHECK(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended) == 0);
  CHECK(extended.stx_mode == plain.st_mode && extended.stx_ino == plain.st_ino);
  CHECK((plain.st_mode & S_IFMT) == type);
  CHECK(realpath(path, resolved) != NULL);
  return 1;
}

static void absent(const char* path) {
  struct stat status;
  struct statx extended;
  struct dirent** entries;
  char buffer[PATH_MAX];

  CHECK(access(path, F_OK) == -1 && errno == ENOENT);
  CHECK(stat(path, &status) == -1 && errno == ENOENT);
  CHECK(statx(AT_FDCWD, path, 0, 0, &extended) == -1 && errno == ENOENT);
  CHECK(open(path, O_RDONLY) == -1 && errno == ENOENT);
  CHECK(fopen(path, "r") == NULL && errno == ENOENT);
  CHECK(opendir(path) == NULL && errno == ENOENT);
  CHECK(scandir(path, &entries, NULL, alphasort) == -1 && errno == ENOENT);
  CHECK(realpath(path, buffer) == NULL && errno == ENOENT);
  CHECK(readlink(path, buffer, sizeof(buffer)) == -1 && errno == ENOENT);
}

static int visible(const struct dirent* entry) { return entry->d_name[0] != '.'; }

// Names in a folder by scandir(), each seen by opendir() and by a duplicated descriptor too.
static int names_in(const char* folder, struct dirent*** names) {
  int count = scandir(folder, names, visible, alphasort);
  DIR* by_path = opendir(folder);
  int fd = open(folder, O_RDONLY | O_DIRECTORY);
  DIR* by_descriptor = fdopendir(dup(fd));
  int seen = 0, seen_by_descriptor = 0;
  struct dirent* entry;
  struct stat status;

  CHECK(count >= 0 && by_path && by_descriptor && dirfd(by_path) >= 0);
  while ((entry = readdir(by_path))) {
    if (entry->d_name[0] != '.') {
      CHECK(fstatat(dirfd(by_path), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0);
    }
    seen++;
  }
  rewinddir(by_path);
  CHECK(readdir(by_path) != NULL && telldir(by_path) == 1);
  while (readdir(by_descriptor)) seen_by_descriptor++;
  CHECK(seen == count + 2 && seen_by_descriptor == seen);
  closedir(by_path);
  closedir(by_descriptor);
  close(fd);
  return count;
}

static void free_names(struct dirent** names, int count) {
  while (count > 0) free(names[--count]);
  free(names);
}

static void compare_gids(struct ibv_context* context, const char* port, int length) {
  int index;

  for (index = 0; index < length; index++) {
    struct ibv_gid_entry entry;
    char name[64], expected[64], interface[IF_NAMESIZE];
    const unsigned char* raw = entry.gid.raw;
    int used = ibv_query_gid_ex(context, 1, (uint32_t)index, &entry, 0) == 0;
    int at, to = 0;

    if (!used) memset(&entry, 0, sizeof(entry));
    for (at = 0; at < 16; at += 2) {
      to += snprintf(expected + to, sizeof(expected) - (size_t)to, "%s%02x%02x", at ? ":" : "",
                     raw[at], raw[at + 1]);
    }
    snprintf(name, sizeof(name), "gids/%d", index);
    CHECK(strcmp(text_in(port, name), expected) == 0);
    snprintf(name, sizeof(name), "gid_attrs/types/%d", index);
    if (!used) {
      CHECK(open(in_folder(port, name), O_RDONLY) == -1 && errno == EINVAL);
      continue;
    }
    CHECK(strcmp(text_in(port, name),
                 entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1") == 0);
    snprintf(name, sizeof(name), "gid_attrs/ndevs/%d", index);
    CHECK(strcmp(text_in(port, name), if_indextoname(entry.ndev_ifindex, interface)) == 0);
  }
}

static void compare_device(struct ibv_device* device) {
  struct ibv_context* context = ibv_open_device(device);
  struct ibv_device_attr attr;
  struct ibv_port_attr port;
  struct stat status;
  unsigned a, b, c, d;
  char* top = device->ibdev_path;
  char expected[64], path[PATH_MAX];

  CHECK(context && ibv_query_device(context, &attr) == 0 && ibv_query_port(context, 1, &port) == 0);
  CHECK(exists(top, S_IFDIR) && strcmp(realpath(top, path), top) == 0);
  CHECK(sscanf(text_in(top, "node_guid"), "%x:%x:%x:%x", &a, &b, &c, &d) == 4);
  CHECK(be64toh(attr.node_guid) ==
        ((uint64_t)a << 48 | (uint64_t)b << 32 | (uint64_t)c << 16 | (uint64_t)d));
  CHECK(strcmp(text_in(top, "fw_ver"), attr.fw_ver) == 0);
  CHECK(atoi(text_in(top, "node_type")) == (int)device->node_type);
  snprintf(path, sizeof(path), "%s/ports/1", top);
  CHECK(atoi(text_in(path, "state")) == (int)port.state);
  CHECK(atoi(text_in(path, "phys_state")) == port.phys_state);
  CHECK(strcmp(text_in(path, "link_layer"), "Ethernet") == 0);
  snprintf(expected, sizeof(expected), "0x%08x", port.port_cap_flags);
  CHECK(strcmp(text_in(path, "cap_mask"), expected) == 0);
  CHECK(strcmp(text_in(path, "pkeys/0"), "0xffff") == 0);
  CHECK(strstr(text_in(path, "rate"), " Gb/sec (") != NULL);
  compare_gids(context, path, port.gid_tbl_len);

  snprintf(path, sizeof(path), "%s/device", top);
  CHECK(exists(in_folder(path, "vendor"), S_IFREG) && exists(in_folder(path, "net"), S_IFDIR));
  CHECK(exists(in_folder(path, "local_cpus"), S_IFREG));
  CHECK(exists(in_folder(path, "numa_node"), S_IFREG));

  CHECK(strcmp(text_in(device->dev_path, "ibdev"), device->name) == 0);
  snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
  CHECK(exists(path, S_IFCHR) && access(path, R_OK | W_OK) == 0 && stat(path, &status) == 0);
  snprintf(expected, sizeof(expected), "%u:%u", major(status.st_rdev), minor(status.st_rdev));
  CHECK(strcmp(text_in(device->dev_path, "dev"), expected) == 0);
  CHECK(open(path, O_RDWR) == -1 && errno == ENXIO);
  absent(in_folder(top, "nothing"));
  absent(in_folder(top, "node_guid/below"));
  CHECK(ibv_close_device(context) == 0);
}

static void spellings(void) {
  char path[PATH_MAX];
  struct dirent** names;
  int count = names_in("/sys/class/infiniband", &names);

  CHECK(count > 0);
  snprintf(path, sizeof(path), "/sys//class/./infiniband/%s/ports/../ports/1//state",
           count > 0 ? names[0]->d_name : "");
  CHECK(strcmp(text_of(path), "4: ACTIVE") == 0);
  CHECK(open(path, O_RDWR) == -1 && errno == EACCES);
  CHECK(fopen(path, "w") == NULL && errno == EACCES);
  CHECK(access(path, W_OK) == -1 && errno == EACCES);
  CHECK(open(path, O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
  CHECK(opendir(path) == NULL && errno == ENOTDIR);
  CHECK(readlink(path, path + PATH_MAX / 2, 10) == -1 && errno == EINVAL);
  free_names(names, count);
}

// All else is as it was.
static void others(void) {
  struct dirent** names;
  struct stat status;
  int count = scandir("/sys/class/net", &names, visible, alphasort);

  CHECK(count > 0);
  free_names(names, count);
  CHECK(stat("/etc/passwd", &status) == 0 && S_ISREG(status.st_mode));
  CHECK(access("/sys/class/infiniband_of_nobody", F_OK) == -1);
  CHECK(open("/dev/null", O_WRONLY) >= 0 && access("/dev/null", W_OK) == 0);
}

static void show_gids(void) {
  char line[16];

  while (fgets(line, sizeof(line), stdin)) {
    struct dirent** names;
    int count = names_in("/sys/class/infiniband", &names), i, index;

    for (i = 0; i < count; i++) {
      for (index = 0; index < 8; index++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gids/%d", names[i]->d_name,
                 index);
        printf("%s %s\n", names[i]->d_name, text_of(path));
      }
    }
    printf("end\n");
    fflush(stdout);
    free_names(names, count);
  }
}

int main(int argc, char** argv) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_device** device;
  int before;

  (void)argv;
  if (argc > 1) {
    show_gids();
    return conclude();
  }
  CHECK(list && list[0]);
  absent("/sys/class/infiniband/nothing");
  before = count_descriptors();
  for (device = list; device && *device; device++) compare_device(*device);
  CHECK(strcmp(text_of("/sys/class/infiniband_verbs/abi_version"), "6") == 0);
  CHECK(exists("/dev/infiniband/rdma_cm", S_IFCHR));
  spellings();
  CHECK(count_descriptors() == before);
  others();
  ibv_free_device_list(list);
  return conclude();
}
