// SPDX-License-Identifier: MIT
#include "trace/process_trace.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace airdma::trace {

PcapngFile* process_trace() {
  static PcapngFile* const file = []() -> PcapngFile* {
    const char* path = ::secure_getenv("AIRDMA_TRACE");
    if (path == nullptr || *path == '\0') return nullptr;
    Result<PcapngFile> opened = PcapngFile::open(path);
    if (opened) return new PcapngFile(std::move(*opened));
    AIRDMA_LOG_ERROR("no trace: %s: %s: %s", path, opened.error().call,
                     std::strerror(opened.error().code));
    return nullptr;
  }();
  return file;
}

std::uint64_t unix_time_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace airdma::trace
