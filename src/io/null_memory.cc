// SPDX-License-Identifier: MIT
#include "io/null_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/process_global.h"
#include "io/fd.h"

namespace airdma::io {
namespace {

/// What the sink's pages are in truth: these, again and again. Limit: that much memory for all that
/// is thrown away, against kNullMemoryBytes / kSinkBytes mappings of a process's 65,530.
constexpr std::size_t kSinkBytes = std::size_t{16} << 20;

std::byte* map(void* where, std::size_t bytes, int protection, int flags, int fd) {
  void* start = ::mmap(where, bytes, protection, flags, fd, 0);
  return start == MAP_FAILED ? nullptr : static_cast<std::byte*>(start);
}

std::byte* map_sink() {
  const Fd file(::memfd_create("airdma-sink", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), kSinkBytes) != 0) return nullptr;
  std::byte* sink =
      map(nullptr, kNullMemoryBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (sink == nullptr) return nullptr;
  for (std::size_t at = 0; at < kNullMemoryBytes; at += kSinkBytes) {
    if (map(sink + at, kSinkBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get())) {
      continue;
    }
    ::munmap(sink, kNullMemoryBytes);
    return nullptr;
  }
  ::madvise(sink, kNullMemoryBytes, MADV_DONTDUMP);
  return sink;
}

struct Maker {
  std::mutex mutex;
  NullMemory memory;
};

}  // namespace

Result<NullMemory> null_memory() {
  Maker& maker = ProcessGlobal<Maker>::get();
  std::lock_guard lock(maker.mutex);
  NullMemory& memory = maker.memory;
  if (memory.sink == nullptr) memory.sink = map_sink();
  if (memory.zeroes == nullptr) {
    // Pages that are only read are all the kernel's one page of zeroes.
    memory.zeroes =
        map(nullptr, kNullMemoryBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (memory.zeroes != nullptr) ::madvise(memory.zeroes, kNullMemoryBytes, MADV_DONTDUMP);
  }
  if (memory.sink == nullptr || memory.zeroes == nullptr) return fail(ENOMEM, "mmap");
  return memory;
}

}  // namespace airdma::io
