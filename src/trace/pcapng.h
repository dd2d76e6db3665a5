// SPDX-License-Identifier: MIT
// A pcapng file that several processes append to at once.
//
// The file starts with one section header and one interface (Ethernet, nanoseconds), written by
// whoever finds the file empty, under a lock. Everybody then only appends Enhanced Packet Blocks,
// each with a single write to an O_APPEND descriptor, which the kernel keeps whole. So a program
// that forks, or a script that starts a server and a client, ends up in one readable file.
// Format: draft-ietf-opsawg-pcapng, sections 4.1 (SHB), 4.2 (IDB), 4.3 (EPB).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace airdma::trace {

/// Seen from the process that writes: bits 0-1 of the option epb_flags.
enum class FrameDirection : std::uint32_t { kInbound = 1, kOutbound = 2 };

class PcapngFile {
 public:
  /// Opens or creates `path` and writes the head of the file when it is empty. Fails with the
  /// system's errno, and with EEXIST when the file holds something that airdma did not begin.
  [[nodiscard]] static Result<PcapngFile> open(const std::string& path);

  PcapngFile(PcapngFile&& other) noexcept;
  PcapngFile& operator=(PcapngFile&&) = delete;
  ~PcapngFile();

  /// Appends one frame, given in two parts so that payload is not copied. After a failed or short
  /// write (a full disk) the file takes no more frames from this process: a block after a torn
  /// one could not be read. Thread-safe.
  void append(std::uint64_t unix_time_ns, FrameDirection direction, Bytes header, Bytes payload);

  /// Device and inode: the same file has the same identity in every process.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
  };
  [[nodiscard]] Identity identity() const;

 private:
  explicit PcapngFile(int fd) : fd_(fd) {}

  int fd_;
  std::atomic<bool> broken_ = false;
};

/// What a finished file holds.
struct TraceSummary {
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;  // lengths of the frames, Ethernet headers included
};

/// Counts the frames of a file that PcapngFile wrote; stops quietly at a torn last block.
[[nodiscard]] Result<TraceSummary> summarize(const std::string& path);

}  // namespace airdma::trace
