// SPDX-License-Identifier: MIT
// The memory of one side in a replay: regions under the keys and at the addresses that the capture
// names, each with a shadow that holds what ought to be in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "model/memory.h"
#include "tests/interop/capture.h"
#include "tests/interop/replay/script.h"

namespace airdma::interop {

inline constexpr PdId kReplayPd{1};
inline constexpr PdId kStrangerPd{2};

class Memory {
 public:
  Memory() = default;

  /// Plans what the script's tagged accesses need and publishes it; why that cannot be, else "".
  [[nodiscard]] std::string build(const Script& script);
  /// Memory of our own at an address and under a key of our choice.
  struct Place {
    Stag key;
    std::uint64_t addr = 0;
  };
  [[nodiscard]] Place place(Bytes content);
  /// The same for memory of the caller, without a shadow. Both arguments outlive this object.
  [[nodiscard]] Place publish(MutableBytes bytes, model::Region& region);

  /// The program stores these bytes.
  void store(Stag key, std::uint64_t addr, Bytes bytes);
  /// The engine ought to have placed these bytes.
  void expect(Stag key, std::uint64_t addr, Bytes bytes);
  /// The first byte that is not as it ought to be, in words: in a range, or anywhere.
  [[nodiscard]] std::optional<std::string> difference(Stag key, std::uint64_t addr,
                                                      std::uint64_t bytes) const;
  [[nodiscard]] std::optional<std::string> difference() const;

  /// Makes the offending segment meet what its Terminate says it met.
  void offend(const Script& script);

  [[nodiscard]] const model::MemoryTable& table() const { return table_; }

 private:
  struct Block {
    std::uint64_t base = 0;
    std::uint64_t end = 0;
    model::AccessMask access = 0;
    ByteVector bytes;
    ByteVector shadow;
    model::Region region;

    /// A damaged capture may name more than there is: that is the engine's to refuse.
    [[nodiscard]] bool holds(std::uint64_t addr, std::uint64_t count) const {
      return count != 0 && addr >= base && addr - base <= bytes.size() &&
             count <= bytes.size() - (addr - base);
    }
  };
  void cover(Stag key, std::uint64_t addr, std::uint64_t bytes, model::AccessMask access);
  void cover_script(const Script& script);
  [[nodiscard]] bool publish(Stag key, Block& block);
  [[nodiscard]] Place next_place();
  [[nodiscard]] Block* find(Stag key);
  [[nodiscard]] static std::optional<std::string> difference(Stag key, const Block& block,
                                                             std::size_t at, std::size_t bytes);

  model::MemoryTable table_;
  std::map<Stag, std::unique_ptr<Block>> blocks_;
  std::uint32_t next_key_ = 0x5eed0001;
};

}  // namespace airdma::interop
