// SPDX-License-Identifier: MIT
#include "runtime/known_blocks.h"

#include <charconv>
#include <cstdio>

#include "io/local_socket.h"
#include "runtime/progress.h"

namespace airdma::runtime {

std::string hex_of(const model::Gid& address) {
  char text[2 * sizeof address.bytes + 1];
  char* end = text;
  for (const std::uint8_t byte : address.bytes) end += std::snprintf(end, 3, "%02x", byte);
  return text;
}

const std::vector<std::uint32_t>& KnownBlocks::look(const std::string& prefix, Duration keep) {
  const Time now = Progress::now();
  if (read_at_ != Time{} && now - read_at_ <= keep) return blocks_;
  blocks_.clear();
  for (const std::string& name : io::local_names(prefix)) {
    std::uint32_t block = 0;
    const char* const end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + prefix.size(), end, block);
    if (result.ec == std::errc{} && result.ptr == end) blocks_.push_back(block);
  }
  read_at_ = now;
  return blocks_;
}

}  // namespace airdma::runtime
