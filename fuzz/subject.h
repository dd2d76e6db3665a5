// SPDX-License-Identifier: MIT
// What targets have in common whose input is a sequence of commands to one endpoint: the commands,
// and the memory that nothing may touch beside.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "fuzz/check.h"
#include "model/memory.h"

namespace airdma::fuzz {

/// What is left of an input. Behind its end there are zeroes.
class Commands {
 public:
  explicit Commands(Bytes input) : left_(input) {}

  [[nodiscard]] bool empty() const { return left_.empty(); }
  std::uint8_t byte() {
    const Bytes one = bytes(1);
    return one.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(one[0]);
  }
  /// At most so many.
  Bytes bytes(std::size_t wanted) {
    const Bytes taken = left_.first(std::min(wanted, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  /// As many as the two bytes in front of them say.
  Bytes counted_bytes() {
    const std::size_t high = byte();
    return bytes(high << 8 | byte());
  }

 private:
  Bytes left_;
};

/// A registered region and what lies around it.
class GuardedMemory {
 public:
  static constexpr std::uint64_t kBase = 0x1000;
  static constexpr Stag kKey{0x11};
  static constexpr PdId kPd{1};

  GuardedMemory(model::MemoryTable& table, std::size_t bytes)
      : table_(table), memory_(kGuard + bytes + kGuard, kUntouched) {
    region_.start = memory_.data() + kGuard;
    region_.base = kBase;
    region_.length = bytes;
    region_.pd = kPd;
    region_.access = model::kAccessLocalWrite | model::kAccessRemoteRead |
                     model::kAccessRemoteWrite | model::kAccessRemoteAtomic;
    FUZZ_CHECK(table_.publish(kKey, region_));
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void withdraw() { table_.retract(region_); }
  void check() const {
    FUZZ_CHECK(model::MemoryTable::idle(region_));
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    FUZZ_CHECK(std::all_of(memory_.begin(), memory_.begin() + kGuard, untouched));
    FUZZ_CHECK(std::all_of(memory_.end() - kGuard, memory_.end(), untouched));
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kUntouched{0x5a};

  model::MemoryTable& table_;
  std::vector<std::byte> memory_;
  model::Region region_;
};

/// The body of a target: a byte of options makes the subject, then each byte is a command, which
/// may take more, and what must hold is checked behind each.
template <class Subject, class Command>
void run_commands(Bytes input, Command command) {
  if (input.empty()) return;
  Commands commands(input);
  Subject subject(commands.byte());
  while (!commands.empty()) {
    const unsigned code = commands.byte();
    command(subject, code, commands);
    subject.check();
  }
}

}  // namespace airdma::fuzz
