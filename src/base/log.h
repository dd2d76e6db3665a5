// SPDX-License-Identifier: MIT
// Diagnosis for people, silent unless AIRDMA_LOG asks for it:
//   AIRDMA_LOG=error|info|debug   to standard error
//   AIRDMA_LOG=debug:FILE         appended to FILE
// A value that is neither gives one line on standard error, and no more.
// Not for engines (they have no I/O) and never once per packet.
#pragma once

namespace airdma {

enum class LogLevel { kOff = 0, kError = 1, kInfo = 2, kDebug = 3 };

[[nodiscard]] bool log_enabled(LogLevel level);
/// printf-style; writes one line "airdma[PID]: LEVEL: text" with a single write(2).
void log_line(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace airdma

#define AIRDMA_LOG_AT(level, ...) \
  (::airdma::log_enabled(level) ? ::airdma::log_line(level, __VA_ARGS__) : (void)0)
#define AIRDMA_LOG_ERROR(...) AIRDMA_LOG_AT(::airdma::LogLevel::kError, __VA_ARGS__)
#define AIRDMA_LOG_INFO(...) AIRDMA_LOG_AT(::airdma::LogLevel::kInfo, __VA_ARGS__)
#define AIRDMA_LOG_DEBUG(...) AIRDMA_LOG_AT(::airdma::LogLevel::kDebug, __VA_ARGS__)
