// SPDX-License-Identifier: MIT
#include "trace/pcapng.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace airdma::trace {
namespace {

// Blocks are in the byte order of the machine that writes; the byte-order magic tells readers.
struct SectionHeader {
  std::uint32_t type = 0x0a0d0d0a;
  std::uint32_t total_length = 44;
  std::uint32_t byte_order_magic = 0x1a2b3c4d;
  std::uint16_t major = 1;
  std::uint16_t minor = 0;
  std::uint32_t section_length_low = 0xffffffff;  // unknown: the section grows
  std::uint32_t section_length_high = 0xffffffff;
  std::uint16_t application_code = 4;  // shb_userappl
  std::uint16_t application_length = 6;
  std::array<char, 8> application{'a', 'i', 'r', 'd', 'm', 'a'};
  std::uint32_t end_of_options = 0;
  std::uint32_t total_length_again = 44;
};

struct InterfaceDescription {
  std::uint32_t type = 1;
  std::uint32_t total_length = 44;
  std::uint16_t link_type = 1;  // LINKTYPE_ETHERNET
  std::uint16_t reserved = 0;
  std::uint32_t snap_length = 0;  // no limit
  std::uint16_t name_code = 2;    // if_name
  std::uint16_t name_length = 6;
  std::array<char, 8> name{'a', 'i', 'r', 'd', 'm', 'a'};
  std::uint16_t resolution_code = 9;  // if_tsresol: 10^-9 s
  std::uint16_t resolution_length = 1;
  std::array<std::uint8_t, 4> resolution{9};
  std::uint32_t end_of_options = 0;
  std::uint32_t total_length_again = 44;
};

struct PacketHeader {
  std::uint32_t type = 6;
  std::uint32_t total_length = 0;
  std::uint32_t interface_id = 0;
  std::uint32_t time_high = 0;
  std::uint32_t time_low = 0;
  std::uint32_t captured_bytes = 0;
  std::uint32_t original_bytes = 0;
};

struct PacketTrailer {
  std::uint16_t flags_code = 2;  // epb_flags
  std::uint16_t flags_length = 4;
  std::uint32_t flags = 0;
  std::uint32_t end_of_options = 0;
  std::uint32_t total_length_again = 0;
};

static_assert(sizeof(SectionHeader) == 44);
static_assert(sizeof(InterfaceDescription) == 44);
static_assert(sizeof(PacketHeader) == 28);
static_assert(sizeof(PacketTrailer) == 16);

struct FileHead {
  SectionHeader section;
  InterfaceDescription interface;
};
static_assert(sizeof(FileHead) == sizeof(SectionHeader) + sizeof(InterfaceDescription));

constexpr std::size_t padding_of(std::size_t bytes) { return (4 - bytes % 4) % 4; }

/// The head of the file: ours already, or written now. The lock only orders first writers.
Status ensure_head(int fd) {
  if (::flock(fd, LOCK_EX) != 0) return fail(errno, "flock");
  const FileHead head{};
  FileHead found{};
  Status status;
  const ssize_t length = ::pread(fd, &found, sizeof found, 0);
  if (length == 0) {
    const ssize_t written = ::write(fd, &head, sizeof head);
    if (written != sizeof head) status = fail(written < 0 ? errno : ENOSPC, "write");
  } else if (length != sizeof head || std::memcmp(&found, &head, sizeof head) != 0) {
    status = fail(length < 0 ? errno : EEXIST, "not a trace of airdma");
  }
  ::flock(fd, LOCK_UN);
  return status;
}

}  // namespace

Result<PcapngFile> PcapngFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return fail(errno, "open");
  PcapngFile file(fd);
  if (const Status head = ensure_head(fd); !head) return std::unexpected(head.error());
  return file;
}

PcapngFile::PcapngFile(PcapngFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), broken_(other.broken_.load()) {}

PcapngFile::~PcapngFile() {
  if (fd_ >= 0) ::close(fd_);
}

void PcapngFile::append(std::uint64_t unix_time_ns, FrameDirection direction, Bytes header,
                        Bytes payload) {
  if (broken_.load(std::memory_order_relaxed)) return;
  const std::size_t frame = header.size() + payload.size();
  const std::size_t padding = padding_of(frame);
  PacketHeader before;
  PacketTrailer after;
  const std::size_t total = sizeof before + frame + padding + sizeof after;
  before.total_length = after.total_length_again = static_cast<std::uint32_t>(total);
  before.time_high = static_cast<std::uint32_t>(unix_time_ns >> 32);
  before.time_low = static_cast<std::uint32_t>(unix_time_ns);
  before.captured_bytes = before.original_bytes = static_cast<std::uint32_t>(frame);
  after.flags = static_cast<std::uint32_t>(direction);

  std::array<std::byte, 4> zeros{};
  const auto piece = [](Bytes bytes) {
    return iovec{const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  const std::array<iovec, 5> pieces{iovec{&before, sizeof before}, piece(header), piece(payload),
                                    iovec{zeros.data(), padding}, iovec{&after, sizeof after}};
  // Not the C library's writev(), which is a cancellation point: the caller holds a queue pair.
  const ssize_t written = ::syscall(SYS_writev, fd_, pieces.data(), pieces.size());
  if (written == static_cast<ssize_t>(total)) return;
  if (!broken_.exchange(true)) {
    AIRDMA_LOG_ERROR("trace stopped: writev: %s", written < 0 ? std::strerror(errno) : "disk full");
  }
}

PcapngFile::Identity PcapngFile::identity() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

Result<TraceSummary> summarize(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(errno, "open");
  TraceSummary summary;
  off_t offset = sizeof(FileHead);
  for (;;) {
    PacketHeader block;
    const ssize_t length = ::pread(fd, &block, sizeof block, offset);
    if (length != sizeof block || block.type != PacketHeader{}.type) break;
    if (block.total_length < sizeof block) break;
    ++summary.frames;
    summary.bytes += block.original_bytes;
    offset += block.total_length;
  }
  ::close(fd);
  return summary;
}

}  // namespace airdma::trace
