// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

constexpr const char* kNames[] = {"", "error", "info", "debug"};

void write_line(int fd, LogLevel level, const char* format, std::va_list args) {
  char line[1024];
  int used = std::snprintf(line, sizeof line, "airdma[%d]: %s: ", static_cast<int>(::getpid()),
                           kNames[static_cast<int>(level)]);
  const auto room = sizeof line - static_cast<std::size_t>(used) - 1;
  used += std::min(std::vsnprintf(line + used, room, format, args), static_cast<int>(room) - 1);
  line[used++] = '\n';
  [[maybe_unused]] const auto written =
      // Not the C library's write(), which is a cancellation point.
      ::syscall(SYS_write, fd, line, static_cast<std::size_t>(used));
}

/// Who set the variable wants to hear something: what is wrong with it as well.
__attribute__((format(printf, 1, 2))) LogTarget refuse(const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  write_line(STDERR_FILENO, LogLevel::kError, format, args);
  va_end(args);
  return {};
}

LogTarget open_target() {
  // secure_getenv: whoever starts a set-user-ID program does not choose a file for it.
  const char* text = ::secure_getenv("AIRDMA_LOG");
  if (text == nullptr || *text == '\0') return {};
  const char* colon = std::strchr(text, ':');
  const std::size_t length = colon ? static_cast<std::size_t>(colon - text) : std::strlen(text);
  LogTarget target{parse_level(text, length)};
  if (target.level == LogLevel::kOff) {
    return refuse("AIRDMA_LOG=%s is not error, info or debug; ignored", text);
  }
  if (colon == nullptr) return target;
  target.fd = ::open(colon + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (target.fd < 0) return refuse("AIRDMA_LOG=%s: %s; ignored", text, std::strerror(errno));
  return target;
}

const LogTarget& target() {
  static const LogTarget instance = open_target();
  return instance;
}

}  // namespace

bool log_enabled(LogLevel level) { return level <= target().level; }

void log_line(LogLevel level, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  write_line(target().fd, level, format, args);
  va_end(args);
}

}  // namespace airdma
