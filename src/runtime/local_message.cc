// SPDX-License-Identifier: MIT
#include "runtime/local_message.h"

#include <cstring>

#include "runtime/roce_trace.h"

namespace airdma::runtime {
namespace {

constexpr std::size_t kFixedBytes = offsetof(LocalMessageHeader, lengths);

}  // namespace

LocalMessageHeader::LocalMessageHeader(const rocev2::PacketOrigin& origin, bool has_strayed)
    : traffic_class(origin.traffic_class),
      hop_limit(origin.hop_limit),
      recorded_in(trace_mark()),
      flow_label(origin.flow_label),
      strayed(has_strayed ? 1 : 0),
      source(origin.source.bytes),
      destination(origin.destination.bytes) {}

std::size_t LocalMessageHeader::bytes() const { return kFixedBytes + packets * sizeof lengths[0]; }

std::optional<LocalMessage> LocalMessage::read(Bytes message) {
  LocalMessageHeader header;
  if (message.size() < kFixedBytes) return std::nullopt;
  std::memcpy(static_cast<void*>(&header), message.data(), kFixedBytes);
  if (header.magic != LocalMessageHeader::kMagic) return std::nullopt;
  if (header.packets > LocalMessageHeader::kMaxPackets || message.size() < header.bytes()) {
    return std::nullopt;
  }
  std::memcpy(header.lengths.data(), message.data() + kFixedBytes, header.bytes() - kFixedBytes);
  LocalMessage result;
  result.recorded_in = header.recorded_in;
  result.origin.source.bytes = header.source;
  result.origin.destination.bytes = header.destination;
  result.origin.traffic_class = header.traffic_class;
  result.origin.hop_limit = header.hop_limit;
  result.origin.flow_label = header.flow_label;
  result.strayed = header.strayed != 0;
  Bytes rest = message.subspan(header.bytes());
  for (; result.count < header.packets; ++result.count) {
    const std::size_t bytes = header.lengths[result.count];
    if (bytes > rest.size()) return std::nullopt;
    result.packets[result.count] = rest.first(bytes);
    rest = rest.subspan(bytes);
  }
  if (!rest.empty()) return std::nullopt;
  return result;
}

}  // namespace airdma::runtime
