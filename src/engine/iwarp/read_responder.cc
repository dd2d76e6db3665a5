// SPDX-License-Identifier: MIT
#include "engine/iwarp/read_responder.h"

#include <algorithm>

namespace airdma::iwarp {

using model::AccessFault;
using model::Violation;

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
                               model::kAccessRemoteRead);
  if (pin) {
    if ((remote_access_ & model::kAccessRemoteRead) == 0) return Violation::kReadDenied;
    return std::nullopt;
  }
  switch (pin.error()) {
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

Verdict ReadResponder::accept(const InboundRead& read) {
  if (read.header.msn != expected_msn_) return Violation::kUntaggedMsn;
  if (read.header.message_offset != 0) return Violation::kUntaggedOffset;
  if (queue_.full()) return Violation::kUntaggedNoBuffer;
  if (const auto violation = check(read.request)) return *violation;
  expected_msn_ = wire::next(expected_msn_);
  queue_.push(read);
  return {};
}

std::size_t ReadResponder::frame(FpduWriter& writer, const Room& room) {
  if (queue_.empty() || failed_) return 0;
  const wire::ReadRequest& request = queue_.front().request;
  const std::size_t remaining = request.read_bytes - offset_;
  const auto payload = segment_payload(writer, room, wire::kTaggedHeaderBytes, remaining);
  if (!payload) return 0;
  const auto pin = memory_.pin(request.source_stag, pd_, request.source_offset + offset_, *payload,
                               model::kAccessRemoteRead);
  if (!pin) {
    failed_ = true;
    return 0;
  }
  const bool last = *payload == remaining;
  writer.begin(room.out, wire::kTaggedHeaderBytes + *payload);
  writer.header(wire::tagged_header(wire::Opcode::kReadResponse, last, request.sink_stag,
                                    request.sink_offset + offset_));
  writer.append(Bytes{pin->data(), *payload});
  offset_ += static_cast<std::uint32_t>(*payload);
  payload_sent_ += *payload;
  if (last) {
    queue_.pop();
    offset_ = 0;
  }
  return writer.finish();
}

}  // namespace airdma::iwarp
