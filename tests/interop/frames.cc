// SPDX-License-Identifier: MIT
// Capture files to frames: pcap and pcapng, in whatever byte order they were written.
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/interop/capture.h"

namespace airdma::interop {
namespace {

using Frames = std::expected<std::vector<Frame>, std::string>;

/// Fixed-width fields of a file whose writer may have had the other byte order.
class FileView {
 public:
  FileView(Bytes bytes, bool swap) : bytes_(bytes), swap_(swap) {}

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] Bytes part(std::size_t at, std::size_t n) const { return bytes_.subspan(at, n); }
  [[nodiscard]] std::uint32_t u32(std::size_t at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return swap_ ? __builtin_bswap32(value) : value;
  }
  [[nodiscard]] std::uint16_t u16(std::size_t at) const {
    std::uint16_t value = 0;
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return swap_ ? __builtin_bswap16(value) : value;
  }

 private:
  Bytes bytes_;
  bool swap_;
};

ByteVector copy_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

constexpr std::uint64_t kSecond = 1'000'000'000;

Frames read_pcap(const FileView& file, bool nanoseconds) {
  constexpr std::size_t kFileHeader = 24;
  constexpr std::size_t kRecordHeader = 16;
  if (file.size() < kFileHeader) return std::unexpected("pcap header cut off");
  const std::uint32_t link_type = file.u32(20) & 0xffff;
  std::vector<Frame> frames;
  std::size_t at = kFileHeader;
  while (at < file.size()) {
    if (file.size() - at < kRecordHeader) return std::unexpected("pcap record header cut off");
    const std::uint32_t captured = file.u32(at + 8);
    if (captured > file.size() - at - kRecordHeader) return std::unexpected("pcap record cut off");
    Frame frame;
    frame.link_type = link_type;
    frame.time_ns = file.u32(at) * kSecond + file.u32(at + 4) * (nanoseconds ? 1u : 1000u);
    frame.original_bytes = file.u32(at + 12);
    frame.bytes = copy_of(file.part(at + kRecordHeader, captured));
    frames.push_back(std::move(frame));
    at += kRecordHeader + captured;
  }
  return frames;
}

struct Interface {
  std::uint32_t link_type = 1;
  std::uint64_t units_per_second = 1'000'000;
};

/// Option if_tsresol (9): a power of ten, or of two with the top bit set.
std::uint64_t time_resolution(const FileView& file, std::size_t at, std::size_t end) {
  while (at + 4 <= end) {
    const std::uint16_t code = file.u16(at);
    const std::uint16_t length = file.u16(at + 2);
    if (code == 0 || at + 4 + length > end) break;
    if (code == 9 && length >= 1) {
      const auto value = std::to_integer<unsigned>(file.part(at + 4, 1)[0]);
      if (value & 0x80) return std::uint64_t{1} << (value & 0x3f);
      std::uint64_t units = 1;
      for (unsigned i = 0; i < value && i < 19; ++i) units *= 10;
      return units;
    }
    at += 4 + (length + 3u) / 4 * 4;
  }
  return 1'000'000;
}

std::uint64_t to_ns(std::uint64_t units, std::uint64_t per_second) {
  const std::uint64_t rest = units % per_second;
  return units / per_second * kSecond +
         static_cast<std::uint64_t>(static_cast<long double>(rest) * kSecond /
                                    static_cast<long double>(per_second));
}

/// Enhanced Packet Block (6) or Simple Packet Block (3), its body at `at`.
std::expected<Frame, std::string> read_packet(const FileView& file, std::uint32_t type,
                                              std::size_t at, std::size_t end,
                                              const std::vector<Interface>& interfaces) {
  const std::size_t fixed = type == 6 ? 20 : 4;
  if (end - at < fixed) return std::unexpected("pcapng packet cut off");
  const std::uint32_t index = type == 6 ? file.u32(at) : 0;
  if (index >= interfaces.size()) return std::unexpected("pcapng packet of unknown interface");
  Frame frame;
  frame.link_type = interfaces[index].link_type;
  std::size_t captured = end - at - fixed;
  if (type == 6) {
    const std::uint64_t units = std::uint64_t{file.u32(at + 4)} << 32 | file.u32(at + 8);
    frame.time_ns = to_ns(units, interfaces[index].units_per_second);
    if (file.u32(at + 12) > captured) return std::unexpected("pcapng packet cut off");
    captured = file.u32(at + 12);
    frame.original_bytes = file.u32(at + 16);
  } else {
    frame.original_bytes = file.u32(at);
    captured = std::min<std::size_t>(captured, frame.original_bytes);
  }
  frame.bytes = copy_of(file.part(at + fixed, captured));
  return frame;
}

constexpr std::uint32_t kSectionBlock = 0x0a0d0d0a;

/// A section's byte order is that of its magic number; each section may have its own.
bool section_is_swapped(Bytes file, std::size_t at) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, file.data() + at + 8, sizeof magic);
  return magic != 0x1a2b3c4d;
}

Frames read_pcapng(Bytes bytes) {
  std::vector<Frame> frames;
  std::vector<Interface> interfaces;
  bool swapped = false;
  std::size_t at = 0;
  while (at < bytes.size()) {
    if (bytes.size() - at < 12) return std::unexpected("pcapng block cut off");
    if (FileView(bytes, false).u32(at) == kSectionBlock) {
      swapped = section_is_swapped(bytes, at);
      interfaces.clear();
    }
    const FileView file(bytes, swapped);
    const std::uint32_t type = file.u32(at);
    const std::uint32_t length = file.u32(at + 4);
    if (length < 12 || length % 4 != 0 || length > bytes.size() - at) {
      return std::unexpected("pcapng block of impossible length");
    }
    const std::size_t body = at + 8;
    const std::size_t end = at + length - 4;
    if (type == 1 && end - body >= 8) {
      interfaces.push_back({file.u16(body), time_resolution(file, body + 8, end)});
    } else if (type == 6 || type == 3) {
      auto frame = read_packet(file, type, body, end, interfaces);
      if (!frame) return std::unexpected(frame.error());
      frames.push_back(std::move(*frame));
    }
    at += length;
  }
  return frames;
}

}  // namespace

Frames read_frames(Bytes file) {
  if (file.size() < 12) return std::unexpected("too short for a capture file");
  const std::uint32_t magic = FileView(file, false).u32(0);
  switch (magic) {
    case 0xa1b2c3d4:
      return read_pcap(FileView(file, false), false);
    case 0xa1b23c4d:
      return read_pcap(FileView(file, false), true);
    case 0xd4c3b2a1:
      return read_pcap(FileView(file, true), false);
    case 0x4d3cb2a1:
      return read_pcap(FileView(file, true), true);
    case kSectionBlock:
      return read_pcapng(file);
    default:
      return std::unexpected("neither pcap nor pcapng");
  }
}

Frames read_frames(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::unexpected(path + ": cannot be read");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto frames = read_frames(std::as_bytes(std::span(text)));
  if (!frames) return std::unexpected(path + ": " + frames.error());
  return frames;
}

}  // namespace airdma::interop
