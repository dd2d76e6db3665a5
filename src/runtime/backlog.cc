// SPDX-License-Identifier: MIT
#include "runtime/backlog.h"

#include <algorithm>
#include <cstring>

#include "base/guarded_copy.h"

namespace airdma::runtime {

Backlog& Backlog::operator=(Backlog&& other) noexcept {
  clear();
  std::ranges::move(other.buffers_, buffers_);
  std::ranges::copy(other.ends_, ends_);
  count_ = std::exchange(other.count_, 0);
  first_ = std::exchange(other.first_, 0);
  begin_ = std::exchange(other.begin_, 0);
  return *this;
}

void Backlog::adopt(IoBuffer buffer, std::size_t begin, std::size_t end) {
  clear();
  buffers_[0] = std::move(buffer);
  begin_ = begin;
  ends_[0] = end;
  count_ = 1;
}

bool Backlog::add_buffer() {
  if (count_ == kMost) return false;
  buffers_[count_] = IoBuffer::borrow();
  if (!buffers_[count_]) return false;
  ends_[count_++] = 0;
  return true;
}

bool Backlog::append(Bytes bytes) {
  while (!bytes.empty()) {
    if ((empty() || ends_[count_ - 1] == IoBuffer::kSize) && !add_buffer()) return false;
    std::size_t& end = ends_[count_ - 1];
    const Bytes piece = bytes.first(std::min(bytes.size(), IoBuffer::kSize - end));
    std::byte* const to = buffers_[count_ - 1].bytes().data() + end;
    const auto copy = [&] { std::memcpy(to, piece.data(), piece.size()); };
    if (!guarded(piece.data(), piece.size(), copy)) return false;
    end += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return true;
}

Bytes Backlog::front() const {
  return Bytes(buffers_[first_].bytes()).subspan(begin_, ends_[first_] - begin_);
}

void Backlog::use(std::size_t count) {
  begin_ += count;
  if (begin_ < ends_[first_]) return;
  buffers_[first_++].give_back();
  begin_ = 0;
  if (empty()) clear();
}

void Backlog::clear() {
  for (std::size_t i = first_; i < count_; ++i) buffers_[i].give_back();
  count_ = first_ = begin_ = 0;
}

}  // namespace airdma::runtime
