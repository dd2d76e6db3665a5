// SPDX-License-Identifier: MIT
#include "wire/ddp.h"

#include "wire/layout.h"

namespace airdma::wire {
namespace {

template <class L>
void read_control(SegmentHeader& header, const L& layout) {
  header.last = L::Last::get(layout) != 0;
  header.ddp_version = L::Version::get(layout);
  header.rdmap_version = L::RdmapVersion::get(layout);
  header.opcode = L::Opcode::get(layout);
}

template <class L>
void write_control(L& layout, const SegmentHeader& header) {
  L::Tagged::set(layout, header.tagged);
  L::Last::set(layout, header.last);
  L::Version::set(layout, header.ddp_version);
  L::RdmapVersion::set(layout, header.rdmap_version);
  L::Opcode::set(layout, header.opcode);
}

SegmentHeader header_of(const DdpTaggedHeader& layout) {
  SegmentHeader header;
  header.tagged = true;
  read_control(header, layout);
  header.stag = Stag{layout.stag.get()};
  header.tagged_offset = layout.tagged_offset.get();
  return header;
}

SegmentHeader header_of(const DdpUntaggedHeader& layout) {
  SegmentHeader header;
  read_control(header, layout);
  header.invalidate_stag = Stag{layout.invalidate_stag.get()};
  header.queue = QueueNumber{layout.queue.get()};
  header.msn = Msn{layout.msn.get()};
  header.message_offset = layout.message_offset.get();
  return header;
}

}  // namespace

std::optional<SegmentHeader> parse_segment_header(Bytes ulpdu) {
  if (ulpdu.empty()) return std::nullopt;
  if (segment_header_bytes(ulpdu[0]) == kTaggedHeaderBytes) {
    const auto layout = load<DdpTaggedHeader>(ulpdu);
    return layout ? std::optional(header_of(*layout)) : std::nullopt;
  }
  const auto layout = load<DdpUntaggedHeader>(ulpdu);
  return layout ? std::optional(header_of(*layout)) : std::nullopt;
}

std::size_t emit_segment_header(MutableBytes out, const SegmentHeader& header) {
  if (header.tagged) {
    DdpTaggedHeader layout{};
    write_control(layout, header);
    layout.stag = header.stag.value();
    layout.tagged_offset = header.tagged_offset;
    return store(out, layout);
  }
  DdpUntaggedHeader layout{};
  write_control(layout, header);
  layout.invalidate_stag = header.invalidate_stag.value();
  layout.queue = static_cast<std::uint32_t>(header.queue);
  layout.msn = header.msn.value();
  layout.message_offset = header.message_offset;
  return store(out, layout);
}

}  // namespace airdma::wire
