// SPDX-License-Identifier: MIT
// opendir() and what follows, scandir(). A stream over a directory of the tree is an object of
// ours; all functions that take a stream tell those from libc's.
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

#include "sysfs/node.h"
#include "sysfs/real.h"

using airdma::sysfs::find_place;
using airdma::sysfs::Place;
using airdma::sysfs::Real;

static_assert(sizeof(dirent) == sizeof(dirent64));

namespace {

constinit Real<DIR*(const char*)> real_opendir("opendir");
constinit Real<DIR*(int)> real_fdopendir("fdopendir");
constinit Real<dirent*(DIR*)> real_readdir("readdir");
constinit Real<dirent64*(DIR*)> real_readdir64("readdir64");
constinit Real<int(DIR*, dirent*, dirent**)> real_readdir_r("readdir_r");
constinit Real<int(DIR*, dirent64*, dirent64**)> real_readdir64_r("readdir64_r");
constinit Real<int(DIR*)> real_closedir("closedir");
constinit Real<int(DIR*)> real_dirfd("dirfd");
constinit Real<void(DIR*)> real_rewinddir("rewinddir");
constinit Real<long(DIR*)> real_telldir("telldir");
constinit Real<void(DIR*, long)> real_seekdir("seekdir");

using Filter = int(const dirent*);
using Compare = int(const dirent**, const dirent**);
constinit Real<int(const char*, dirent***, Filter*, Compare*)> real_scandir("scandir");
constinit Real<int(const char*, dirent***, Filter*, Compare*)> real_scandir64("scandir64");

struct Stream {
  std::vector<dirent> entries;
  std::size_t next = 0;
  int fd = -1;
};

struct Streams {
  std::mutex mutex;
  std::set<const void*> all;
};
constinit std::atomic<int> stream_count{0};

Streams& streams() {
  static Streams& all = *new Streams;
  return all;
}

/// Null for a stream of libc's.
Stream* own(DIR* stream) {
  if (stream_count.load(std::memory_order_acquire) == 0) return nullptr;
  std::lock_guard lock(streams().mutex);
  return streams().all.contains(stream) ? reinterpret_cast<Stream*>(stream) : nullptr;
}

/// `fd`: of the directory, which the stream closes at its end.
DIR* open_stream(const Place& place, int fd) {
  auto stream = std::make_unique<Stream>();
  stream->fd = fd;
  if (!airdma::sysfs::list_node(place, stream->entries)) return nullptr;
  std::lock_guard lock(streams().mutex);
  streams().all.insert(stream.get());
  stream_count.fetch_add(1, std::memory_order_release);
  return reinterpret_cast<DIR*>(stream.release());
}

dirent* next_entry(Stream& stream) {
  if (stream.next >= stream.entries.size()) return nullptr;
  return &stream.entries[stream.next++];
}

/// A copy on the heap, as scandir() gives them.
dirent* clone(const dirent& entry) {
  auto* copy = static_cast<dirent*>(::malloc(sizeof entry));
  if (copy != nullptr) *copy = entry;
  return copy;
}

void free_all(dirent** entries, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) ::free(entries[i]);
  ::free(entries);
}

int scan(const Place& place, dirent*** result, Filter* filter, Compare* compare) {
  std::vector<dirent> entries;
  if (place.kind == Place::Kind::kMissing) return airdma::sysfs::missing();
  if (!airdma::sysfs::list_node(place, entries)) return -1;
  auto** found = static_cast<dirent**>(::malloc(entries.size() * sizeof(dirent*)));
  std::size_t count = 0;
  for (const dirent& entry : entries) {
    if (found == nullptr) break;
    if (filter != nullptr && filter(&entry) == 0) continue;
    if ((found[count] = clone(entry)) == nullptr) {
      free_all(found, count);
      found = nullptr;
    } else {
      ++count;
    }
  }
  if (found == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  using Untyped = int(const void*, const void*);
  if (compare != nullptr) ::qsort(found, count, sizeof *found, reinterpret_cast<Untyped*>(compare));
  *result = found;
  return static_cast<int>(count);
}

}  // namespace

AIRDMA_INTERPOSE DIR* opendir(const char* path) {
  const Place place = find_place(AT_FDCWD, path, true);
  if (place.kind == Place::Kind::kForeign) return real_opendir(path);
  if (place.kind == Place::Kind::kElsewhere) return real_opendir(place.path.c_str());
  if (place.kind == Place::Kind::kMissing) {
    airdma::sysfs::missing();
    return nullptr;
  }
  const int fd = airdma::sysfs::open_node(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd < 0 ? nullptr : open_stream(place, fd);
}
AIRDMA_INTERPOSE DIR* fdopendir(int fd) {
  const Place place = find_place(fd, ".", true);
  return place.kind == Place::Kind::kNode ? open_stream(place, fd) : real_fdopendir(fd);
}

AIRDMA_INTERPOSE dirent* readdir(DIR* stream) {
  Stream* ours = own(stream);
  return ours != nullptr ? next_entry(*ours) : real_readdir(stream);
}
AIRDMA_INTERPOSE dirent64* readdir64(DIR* stream) {
  Stream* ours = own(stream);
  if (ours == nullptr) return real_readdir64(stream);
  return reinterpret_cast<dirent64*>(next_entry(*ours));
}
AIRDMA_INTERPOSE int readdir_r(DIR* stream, dirent* entry, dirent** result) {
  Stream* ours = own(stream);
  if (ours == nullptr) return real_readdir_r(stream, entry, result);
  const dirent* next = next_entry(*ours);
  if (next != nullptr) *entry = *next;
  *result = next != nullptr ? entry : nullptr;
  return 0;
}
AIRDMA_INTERPOSE int readdir64_r(DIR* stream, dirent64* entry, dirent64** result) {
  if (own(stream) == nullptr) return real_readdir64_r(stream, entry, result);
  dirent* next = next_entry(*own(stream));
  if (next != nullptr) *reinterpret_cast<dirent*>(entry) = *next;
  *result = next != nullptr ? entry : nullptr;
  return 0;
}
AIRDMA_INTERPOSE int closedir(DIR* stream) {
  Stream* ours = own(stream);
  if (ours == nullptr) return real_closedir(stream);
  {
    std::lock_guard lock(streams().mutex);
    streams().all.erase(ours);
    stream_count.fetch_sub(1, std::memory_order_release);
  }
  const int fd = ours->fd;
  delete ours;
  return ::close(fd);
}
AIRDMA_INTERPOSE int dirfd(DIR* stream) noexcept {
  const Stream* ours = own(stream);
  return ours != nullptr ? ours->fd : real_dirfd(stream);
}
AIRDMA_INTERPOSE void rewinddir(DIR* stream) noexcept {
  Stream* ours = own(stream);
  if (ours == nullptr) return real_rewinddir(stream);
  ours->next = 0;
}
AIRDMA_INTERPOSE long telldir(DIR* stream) noexcept {
  const Stream* ours = own(stream);
  return ours != nullptr ? static_cast<long>(ours->next) : real_telldir(stream);
}
AIRDMA_INTERPOSE void seekdir(DIR* stream, long position) noexcept {
  Stream* ours = own(stream);
  if (ours == nullptr) return real_seekdir(stream, position);
  ours->next = static_cast<std::size_t>(position);
}

AIRDMA_INTERPOSE int scandir(const char* path, dirent*** result, Filter* filter, Compare* compare) {
  const Place place = find_place(AT_FDCWD, path, true);
  if (place.kind == Place::Kind::kForeign) return real_scandir(path, result, filter, compare);
  if (place.kind == Place::Kind::kElsewhere) {
    return real_scandir(place.path.c_str(), result, filter, compare);
  }
  return scan(place, result, filter, compare);
}
AIRDMA_INTERPOSE int scandir64(const char* path, dirent64*** result, int (*filter)(const dirent64*),
                               int (*compare)(const dirent64**, const dirent64**)) {
  auto*** plain = reinterpret_cast<dirent***>(result);
  auto* plain_filter = reinterpret_cast<Filter*>(filter);
  auto* plain_compare = reinterpret_cast<Compare*>(compare);
  const Place place = find_place(AT_FDCWD, path, true);
  if (place.kind == Place::Kind::kForeign) {
    return real_scandir64(path, plain, plain_filter, plain_compare);
  }
  if (place.kind == Place::Kind::kElsewhere) {
    return real_scandir64(place.path.c_str(), plain, plain_filter, plain_compare);
  }
  return scan(place, plain, plain_filter, plain_compare);
}
