// SPDX-License-Identifier: MIT
// What the printers write with: print.cc for iWARP, print_roce.cc for RoCEv2, ib_cm_print.cc
// for the communication manager.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace airdma::wire {

/// Text that ends where its room ends. No locale, no heap, no stdio.
class Text {
 public:
  explicit Text(std::span<char> room) : room_(room) {}

  Text& operator<<(std::string_view text) {
    const std::size_t n = std::min(text.size(), room_.size() - used_);
    std::copy_n(text.data(), n, room_.data() + used_);
    used_ += n;
    return *this;
  }
  Text& dec(std::uint64_t value) { return number(value, 10, 1); }
  Text& hex(std::uint64_t value, unsigned digits = 1) {
    *this << "0x";
    return number(value, 16, digits);
  }
  Text& bare_hex(std::uint64_t value) { return number(value, 16, 1); }
  Text& flag(std::string_view name, bool value) { return *this << name << (value ? "1" : "0"); }

  [[nodiscard]] std::string_view view() const { return {room_.data(), used_}; }

 private:
  Text& number(std::uint64_t value, unsigned base, unsigned digits) {
    char buffer[20];
    unsigned n = 0;
    for (; value != 0 || n < digits; value /= base) {
      buffer[sizeof buffer - ++n] = "0123456789abcdef"[value % base];
    }
    return *this << std::string_view(buffer + sizeof buffer - n, n);
  }

  std::span<char> room_;
  std::size_t used_ = 0;
};

}  // namespace airdma::wire
