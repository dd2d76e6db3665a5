// SPDX-License-Identifier: MIT
#include "engine/iwarp/read_responder.h"

#include <algorithm>

#include "engine/iwarp/atomics.h"

namespace airdma::iwarp {

using model::AccessFault;
using model::Violation;

Violation read_violation(AccessFault fault) {
  switch (fault) {
    case AccessFault::kInvalidKey:
      return Violation::kReadInvalidStag;
    case AccessFault::kOtherPd:
      return Violation::kReadOtherStream;
    case AccessFault::kDenied:
      return Violation::kReadDenied;
    case AccessFault::kBounds:
      return Violation::kReadBounds;
  }
  return Violation::kReadInvalidStag;
}

void ReadResponder::start(std::uint16_t ird) {
  // An RTR READ may come even where no IRD was agreed (RFC 6581 9.2).
  queue_.reset(std::max<std::size_t>(ird, 1));
}

std::optional<Violation> ReadResponder::check(const wire::ReadRequest& request) const {
  if (request.read_bytes == 0) return std::nullopt;  // no STag is looked at (RFC 5040 5.2)
  if (request.source_offset > ~std::uint64_t{0} - (request.read_bytes - 1)) {
    return Violation::kReadOffsetWrap;
  }
  const auto pin = memory_.pin(request.source_stag, pd_, request.source_offset, request.read_bytes,
                               model::kAccessRemoteRead, qpn_);
  if (pin) {
    if ((remote_access_ & model::kAccessRemoteRead) == 0) return Violation::kReadDenied;
    return std::nullopt;
  }
  return read_violation(pin.error());
}

std::optional<Violation> ReadResponder::check(InboundAtomic& atomic) {
  if (waiting_ == 0) return perform(atomic);
  const auto pin = pin_atomic(memory_, pd_, qpn_, remote_access_, atomic.request);
  return pin ? std::nullopt : std::optional(pin.error());
}

std::optional<Violation> ReadResponder::perform(InboundAtomic& atomic) const {
  const auto pin = pin_atomic(memory_, pd_, qpn_, remote_access_, atomic.request);
  if (!pin) return pin.error();
  atomic.original = perform_atomic(pin->data(), atomic.request);
  return atomic.original ? std::nullopt : std::optional(Violation::kReadDenied);
}

Verdict ReadResponder::accept(InboundRead read) {
  if (read.header.msn != expected_msn_) return Violation::kUntaggedMsn;
  if (read.header.message_offset != 0) return Violation::kUntaggedOffset;
  if (queue_.full()) return Violation::kUntaggedNoBuffer;
  const auto violation = std::visit([this](auto& request) { return check(request); }, read.request);
  if (violation) return *violation;
  const auto* atomic = std::get_if<InboundAtomic>(&read.request);
  if (atomic == nullptr || !atomic->original) ++waiting_;
  expected_msn_ = wire::next(expected_msn_);
  queue_.push(read);
  return {};
}

std::size_t ReadResponder::frame(FpduWriter& writer, const Room& room) {
  if (queue_.empty() || failure_) return 0;
  if (auto* atomic = std::get_if<InboundAtomic>(&queue_.front().request)) {
    return frame_atomic(writer, room, *atomic);
  }
  return frame_read(writer, room, std::get<wire::ReadRequest>(queue_.front().request));
}

std::size_t ReadResponder::frame_atomic(FpduWriter& writer, const Room& room,
                                        InboundAtomic& atomic) {
  constexpr std::size_t kUlpdu = wire::kUntaggedHeaderBytes + wire::kAtomicResponseBytes;
  if (!fits(writer, room, kUlpdu)) return 0;
  if (!atomic.original) {
    failure_ = perform(atomic);
    --waiting_;
  }
  if (failure_) return 0;
  std::byte payload[wire::kAtomicResponseBytes];
  (void)wire::emit_atomic_response(
      payload, {.request_id = atomic.request.request_id, .original_value = *atomic.original});
  writer.begin(room.out, kUlpdu);
  writer.header(wire::untagged_header(wire::Opcode::kAtomicResponse, true, atomic_msn_, 0));
  writer.append(payload);
  atomic_msn_ = wire::next(atomic_msn_);
  queue_.pop();
  return writer.finish();
}

std::size_t ReadResponder::frame_read(FpduWriter& writer, const Room& room,
                                      const wire::ReadRequest& request) {
  const std::size_t remaining = request.read_bytes - offset_;
  const auto payload = segment_payload(writer, room, wire::kTaggedHeaderBytes, remaining);
  if (!payload) return 0;
  const auto pin = memory_.pin(request.source_stag, pd_, request.source_offset + offset_, *payload,
                               model::kAccessRemoteRead, qpn_);
  if (!pin) {
    failure_ = Violation::kReadWithdrawn;
    return 0;
  }
  const bool last = *payload == remaining;
  writer.begin(room.out, wire::kTaggedHeaderBytes + *payload);
  writer.header(wire::tagged_header(wire::Opcode::kReadResponse, last, request.sink_stag,
                                    request.sink_offset + offset_));
  if (!writer.append_guarded(Bytes{pin->data(), *payload})) {
    failure_ = Violation::kReadDenied;
    return 0;
  }
  offset_ += static_cast<std::uint32_t>(*payload);
  payload_sent_ += *payload;
  if (last) {
    queue_.pop();
    --waiting_;
    offset_ = 0;
  }
  return writer.finish();
}

}  // namespace airdma::iwarp
