// SPDX-License-Identifier: MIT
#include "trace/fpdu_splitter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace airdma::trace {
namespace {

using Buffer = std::vector<std::byte>;

void append(Buffer& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

Buffer text(const std::string& characters) {
  const auto bytes = std::as_bytes(std::span(characters));
  return {bytes.begin(), bytes.end()};
}

/// An MPA request: key, flags, revision, length, private data (RFC 5044 7.1).
Buffer request(std::uint8_t flags, std::size_t private_bytes) {
  Buffer frame = text("MPA ID Req Frame");
  append(frame, Buffer{std::byte{flags}, std::byte{1}, std::byte{0}, std::byte(private_bytes)});
  frame.resize(frame.size() + private_bytes, std::byte{0x77});
  return frame;
}

/// An FPDU with its pad; the splitter looks at the length field only.
Buffer fpdu(std::size_t ulpdu_bytes) {
  Buffer frame{std::byte(ulpdu_bytes >> 8), std::byte(ulpdu_bytes & 0xff)};
  frame.resize(2 + ulpdu_bytes, std::byte{0x41});
  while (frame.size() % 4 != 0) frame.push_back(std::byte{0});
  frame.resize(frame.size() + 4, std::byte{0xcc});
  return frame;
}

Buffer join(const std::vector<Buffer>& units) {
  Buffer stream;
  for (const Buffer& unit : units) append(stream, unit);
  return stream;
}

struct Collector {
  std::vector<Buffer> units;
  FpduSplitter::Sink sink = [this](Bytes unit) { units.emplace_back(unit.begin(), unit.end()); };
};

TEST(FpduSplitter, FindsTheSameFramesForEveryCut) {
  const std::vector<Buffer> units{request(0, 6), fpdu(20), fpdu(0), fpdu(37)};
  const Buffer stream = join(units);
  for (std::size_t first = 0; first <= stream.size(); ++first) {
    for (std::size_t second = first; second <= stream.size(); ++second) {
      FpduSplitter splitter(wire::MpaFrameKind::kRequest);
      Collector found;
      splitter.feed(Bytes(stream).first(first), found.sink);
      splitter.feed(Bytes(stream).subspan(first, second - first), found.sink);
      splitter.feed(Bytes(stream).subspan(second), found.sink);
      ASSERT_EQ(found.units, units) << "cut at " << first << " and " << second;
    }
  }
}

TEST(FpduSplitter, HandlesTheLargestFpduByteByByte) {
  const std::vector<Buffer> units{request(0, 0), fpdu(65535), fpdu(1)};
  FpduSplitter splitter(wire::MpaFrameKind::kRequest);
  Collector found;
  for (std::byte byte : join(units)) splitter.feed(Bytes(&byte, 1), found.sink);
  EXPECT_EQ(found.units, units);
}

TEST(FpduSplitter, CountsMarkersIntoTheFpdu) {
  // Markers stand at stream positions 0 and 512: the first FPDU (608 bytes without) holds two,
  // the second, which begins at 616, none.
  Buffer with_markers(4, std::byte{0});
  const Buffer plain = fpdu(600);
  append(with_markers, Bytes(plain).first(508));
  append(with_markers, Buffer(4, std::byte{0}));
  append(with_markers, Bytes(plain).subspan(508));
  const std::vector<Buffer> units{request(0x80, 0), with_markers, fpdu(10)};
  FpduSplitter splitter(wire::MpaFrameKind::kRequest);
  splitter.expect_markers();
  Collector found;
  splitter.feed(join(units), found.sink);
  EXPECT_EQ(found.units, units);
  EXPECT_TRUE(splitter.wants_markers());
}

TEST(FpduSplitter, PassesOnWhatIsNotMpa) {
  FpduSplitter splitter(wire::MpaFrameKind::kRequest);
  Collector found;
  splitter.feed(text("MPA ID"), found.sink);
  EXPECT_TRUE(found.units.empty());
  splitter.feed(text(" is not this"), found.sink);
  splitter.feed(text("more"), found.sink);
  EXPECT_EQ(found.units, (std::vector<Buffer>{text("MPA ID is not this"), text("more")}));
}

TEST(FpduSplitter, FlushHandsOverTheUnfinished) {
  FpduSplitter splitter(wire::MpaFrameKind::kRequest);
  Collector found;
  splitter.feed(request(0, 0), found.sink);
  splitter.feed(Bytes(fpdu(40)).first(11), found.sink);
  splitter.flush(found.sink);
  splitter.flush(found.sink);
  ASSERT_EQ(found.units.size(), 2u);
  EXPECT_EQ(found.units[1].size(), 11u);
}

}  // namespace
}  // namespace airdma::trace
