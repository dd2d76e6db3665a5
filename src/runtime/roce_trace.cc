// SPDX-License-Identifier: MIT
#include "runtime/roce_trace.h"

#include <bit>

#include "trace/roce_tap.h"

namespace airdma::runtime {
namespace {

trace::RocePath path_of(const rocev2::PacketOrigin& origin, std::uint16_t source_port) {
  return {.source = std::bit_cast<wire::IpAddress>(origin.source.bytes),
          .destination = std::bit_cast<wire::IpAddress>(origin.destination.bytes),
          .source_port = source_port,
          .traffic_class = origin.traffic_class,
          .hop_limit = origin.hop_limit,
          .flow_label = origin.flow_label};
}

/// How many of the packets that are done with were sent.
std::size_t sent_of(const SendOutcome& outcome) {
  switch (outcome.status) {
    case SendStatus::kSent:
    case SendStatus::kBusy:
    case SendStatus::kUnreadable:
      return outcome.packets;
    case SendStatus::kTooLong:
      return outcome.packets - 1;
    case SendStatus::kUnreachable:
      return 0;
  }
  return 0;
}

}  // namespace

SendTrace::SendTrace(const rocev2::PacketOrigin& origin, std::uint16_t source_port)
    : tap_(trace::process_roce_tap()), origin_(origin), source_port_(source_port) {
  if (tap_ != nullptr) time_ns_ = tap_->now();
}

void SendTrace::record(std::span<const Frame> frames, const SendOutcome& outcome) const {
  const trace::RocePath path = path_of(origin_, source_port_);
  for (const Frame& frame : frames.first(sent_of(outcome))) {
    tap_->record(time_ns_, trace::FrameDirection::kOutbound, path, frame.header, frame.pieces,
                 frame.pad_bytes);
  }
}

void trace_received(const rocev2::PacketOrigin& origin, std::uint16_t source_port, Bytes packet) {
  trace::RoceTap* const tap = trace::process_roce_tap();
  if (tap == nullptr) return;
  tap->record(tap->now(), trace::FrameDirection::kInbound, path_of(origin, source_port), packet);
}

std::uint64_t trace_mark() {
  const trace::RoceTap* const tap = trace::process_roce_tap();
  return tap != nullptr ? tap->mark() : 0;
}

}  // namespace airdma::runtime
