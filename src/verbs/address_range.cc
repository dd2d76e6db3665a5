// SPDX-License-Identifier: MIT
#include "verbs/address_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/fd.h"
#include "io/raw_calls.h"

#ifndef MADV_POPULATE_READ  // Linux 5.14
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace airdma::verbs {
namespace {

/// Ranges up to this are populated. Limit: hardware pins whatever is registered; a program that
/// registers more than this need not have it all resident here.
constexpr std::size_t kPopulateBytes = 4u << 20;

/// 0, or the errno of the attempt.
int populate(std::uintptr_t start, std::size_t bytes, bool write) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = start / page * page;
  // The last page may end at the top of the address space: then this is 0, and the call refuses.
  const std::uintptr_t end = (start + bytes - 1) / page * page + page;
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  for (;;) {
    if (::madvise(reinterpret_cast<void*>(first), end - first, advice) == 0) return 0;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
}

/// The process's mappings as text; empty when /proc is not there.
std::string read_maps() {
  const io::Fd file(io::raw::open("/proc/self/maps"), false);
  std::string text;
  if (!file) return text;
  constexpr std::size_t kStep = 64u << 10;
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + kStep);
    const ssize_t got = io::raw::read(file.get(), text.data() + had, kStep);
    text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
  }
}

struct Mapping {
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;
  bool readable = false;
  bool writable = false;
};

/// A line such as "7f12a000-7f12b000 rw-p ...".
Mapping parse_mapping(std::string_view line) {
  Mapping mapping;
  const char* last = line.data() + line.size();
  auto at = std::from_chars(line.data(), last, mapping.start, 16).ptr;
  if (at == last) return {};
  at = std::from_chars(at + 1, last, mapping.end, 16).ptr;
  if (last - at < 4) return {};
  mapping.readable = at[1] == 'r';
  mapping.writable = at[2] == 'w';
  return mapping;
}

/// Walks the mappings, which are sorted by address.
bool mapped(std::string_view maps, std::uintptr_t start, std::uintptr_t end, bool write) {
  std::uintptr_t reached = start;
  while (!maps.empty() && reached < end) {
    const std::size_t length = std::min(maps.find('\n'), maps.size());
    const Mapping mapping = parse_mapping(maps.substr(0, length));
    maps.remove_prefix(std::min(length + 1, maps.size()));
    if (mapping.end <= reached) continue;
    if (mapping.start > reached || !mapping.readable || (write && !mapping.writable)) return false;
    reached = mapping.end;
  }
  return reached >= end;
}

Status check(std::uintptr_t start, std::size_t bytes, bool write, std::size_t most_resident) {
  if (bytes == 0) return {};
  if (start + bytes < start) return fail(EINVAL);
  int error = ENOSYS;
  if (bytes <= most_resident) error = populate(start, bytes, write);
  if (error == 0) return {};
  // The file behind a mapping ends before the range does, or the page is lost.
  if (error == EFAULT || error == EHWPOISON) return fail(EFAULT, "madvise");
  // An old kernel, memory that cannot be populated (a device's), or a refusal: the mappings tell.
  const std::string maps = read_maps();
  if (maps.empty()) error = populate(start, bytes, write);
  if (maps.empty() ? error != 0 : !mapped(maps, start, start + bytes, write)) return fail(EFAULT);
  return {};
}

}  // namespace

Status check_range(const void* start, std::size_t bytes, bool write) {
  return check(reinterpret_cast<std::uintptr_t>(start), bytes, write, kPopulateBytes);
}

Status make_resident(const void* start, std::size_t bytes, bool write) {
  return check(reinterpret_cast<std::uintptr_t>(start), bytes, write, ~std::size_t{0});
}

}  // namespace airdma::verbs
