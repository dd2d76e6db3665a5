// SPDX-License-Identifier: MIT
// Regions over memory that is not the program's own: none at all, and that of a dma-buf.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "io/fault_handler.h"
#include "io/null_memory.h"
#include "verbs/api.h"
#include "verbs/region.h"

namespace airdma::verbs {
namespace {

// What ibv_reg_dmabuf_mr(3) lists; optional bits are gone when this is asked.
constexpr unsigned kDmabufAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// A mapping that ends with the last handle to the region over it.
class Mapping {
 public:
  Mapping(void* start, std::size_t bytes) : start_(start), bytes_(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(start_, bytes_); }

  [[nodiscard]] std::byte* start() const { return static_cast<std::byte*>(start_); }

 private:
  void* start_;
  std::size_t bytes_;
};

/// An ordinary file, which maps beyond its end without a word, must hold the range.
Status check_file(int fd, std::uint64_t end) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail(errno, "fstat");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (S_ISREG(status.st_mode) && end > size) return fail(EINVAL);
  return {};
}

/// Maps whole pages from the one that `offset` is in. A dma-buf itself refuses what it has not.
Result<std::shared_ptr<Mapping>> map_file(int fd, std::uint64_t offset, std::size_t length,
                                          unsigned access, std::uint64_t page) {
  const std::uint64_t skipped = offset % page;
  const std::size_t bytes = (length + skipped + page - 1) / page * page;
  const bool write = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  void* start = ::mmap(nullptr, bytes, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
                       static_cast<off_t>(offset - skipped));
  if (start != MAP_FAILED) return std::make_shared<Mapping>(start, bytes);
  // ENODEV, ENXIO, ...: an exporter whose memory the processor cannot reach.
  const bool told = errno == EACCES || errno == EPERM || errno == EINVAL || errno == ENOMEM;
  return fail(told ? errno : EOPNOTSUPP, "mmap");
}

}  // namespace

Result<ibv_mr*> alloc_null_mr(ibv_pd* pd) {
  if (find_object(pd) == nullptr) return fail(EINVAL);
  const auto memory = io::null_memory();
  if (!memory) return std::unexpected(memory.error());
  const auto mr = add_region(pd, {.start = memory->zeroes,
                                  .length = std::numeric_limits<std::size_t>::max(),
                                  .access = IBV_ACCESS_LOCAL_WRITE,
                                  .sink = memory->sink,
                                  .fixed = true});
  if (!mr) return std::unexpected(mr.error());
  (*mr)->pub.rkey = 0;  // it is not for peers
  return &(*mr)->pub;
}

// Limit: the processor's caches and a device that shares the buffer are kept coherent by the
// exporter alone (DMA_BUF_IOCTL_SYNC belongs around each access of the program's, and we have no
// moment for it): right for memory that is coherent, as udmabuf's and that of most GPUs' GTT is.
Result<ibv_mr*> reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                              int access) {
  if (find_object(pd) == nullptr) return fail(EINVAL);
  const auto rights = check_access(static_cast<unsigned>(access));
  if (!rights) return std::unexpected(rights.error());
  if ((*rights & ~kDmabufAccess) != 0) return fail(EINVAL);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if ((offset ^ iova) % page != 0 || iova + length < iova) return fail(EINVAL);
  if (length == 0 || offset > kMost || length > kMost - offset) return fail(EINVAL);
  if (Status fits = check_file(fd, offset + length); !fits) return std::unexpected(fits.error());
  const auto mapping = map_file(fd, offset, length, *rights, page);
  if (!mapping) return std::unexpected(mapping.error());
  io::watch_faults();  // the file may be cut short
  const auto mr = add_region(pd, {.start = (*mapping)->start() + offset % page,
                                  .length = length,
                                  .base = iova,
                                  .access = *rights,
                                  .backing = *mapping,
                                  .fixed = true,
                                  .addr = reinterpret_cast<void*>(offset)});
  if (!mr) return std::unexpected(mr.error());
  return &(*mr)->pub;
}

}  // namespace airdma::verbs
