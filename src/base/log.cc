// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace airdma {
namespace {

struct LogTarget {
  LogLevel level = LogLevel::kOff;
  int fd = STDERR_FILENO;
};

LogLevel parse_level(const char* text, std::size_t length) {
  const auto is = [&](const char* name) {
    return std::strlen(name) == length && std::memcmp(text, name, length) == 0;
  };
  if (is("error")) return LogLevel::kError;
  if (is("info")) return LogLevel::kInfo;
  if (is("debug")) return LogLevel::kDebug;
  return LogLevel::kOff;
}

LogTarget open_target() {
  const char* text = std::getenv("AIRDMA_LOG");
  if (text == nullptr) return {};
  const char* colon = std::strchr(text, ':');
  const std::size_t length = colon ? static_cast<std::size_t>(colon - text) : std::strlen(text);
  LogTarget target{parse_level(text, length)};
  if (target.level == LogLevel::kOff || colon == nullptr) return target;
  target.fd = ::open(colon + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (target.fd < 0) target = {LogLevel::kOff};
  return target;
}

const LogTarget& target() {
  static const LogTarget instance = open_target();
  return instance;
}

}  // namespace

bool log_enabled(LogLevel level) { return level <= target().level; }

void log_line(LogLevel level, const char* format, ...) {
  static constexpr const char* kNames[] = {"", "error", "info", "debug"};
  char line[1024];
  int used = std::snprintf(line, sizeof line, "airdma[%d]: %s: ", static_cast<int>(::getpid()),
                           kNames[static_cast<int>(level)]);
  std::va_list args;
  va_start(args, format);
  const auto room = sizeof line - static_cast<std::size_t>(used) - 1;
  used += std::min(std::vsnprintf(line + used, room, format, args), static_cast<int>(room) - 1);
  va_end(args);
  line[used++] = '\n';
  [[maybe_unused]] const auto written =
      // Not the C library's write(), which is a cancellation point.
      ::syscall(SYS_write, target().fd, line, static_cast<std::size_t>(used));
}

}  // namespace airdma
