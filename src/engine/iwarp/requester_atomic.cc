// SPDX-License-Identifier: MIT
// COMPARE_SWAP and FETCH_ADD of our program (RFC 7306 5). An atomic is a message of the READ queue:
// it takes one of the ORD places, and its answer comes in turn.
#include <cstddef>
#include <span>

#include "base/guarded_copy.h"
#include "engine/iwarp/atomics.h"
#include "engine/iwarp/requester.h"

namespace airdma::iwarp {

using model::SendOpcode;
using model::SendWqe;
using model::Sge;
using model::Violation;
using model::WcStatus;
using wire::AtomicRequest;
using wire::Opcode;
using wire::SegmentHeader;

namespace {

AtomicRequest atomic_request(const SendWqe& wqe, wire::Msn msn) {
  AtomicRequest request{
      .request_id = msn.value(), .stag = wqe.rkey, .tagged_offset = wqe.remote_addr};
  if (wqe.opcode == SendOpcode::kFetchAdd) {
    request.operation = wire::AtomicOperation::kFetchAdd;
    request.add_or_swap_data = wqe.compare_add;
    return request;  // masks of zero: one field of 64 bits
  }
  request.operation = wire::AtomicOperation::kCompareSwap;
  request.add_or_swap_data = wqe.swap;
  request.add_or_swap_mask = ~std::uint64_t{0};
  request.compare_data = wqe.compare_add;
  request.compare_mask = ~std::uint64_t{0};
  return request;
}

}  // namespace

bool Requester::begin_atomic(const SendWqe& wqe) {
  if (ord_ == 0 || wqe.inlined || wqe.length != kAtomicBytes) return refuse(Violation::kOperation);
  if (reads_.full()) return false;
  if (!writable(wqe)) return refuse(Violation::kReadSinkBuffer);
  progress_ = {.active = true, .stage = Stage::kAtomicRequest};
  in_flight(next_) = {};
  return true;
}

std::size_t Requester::frame_atomic(FpduWriter& writer, const Room& room, const SendWqe& wqe) {
  constexpr std::size_t kUlpdu = wire::kUntaggedHeaderBytes + wire::kAtomicRequestBytes;
  if (!fits(writer, room, kUlpdu)) return 0;
  std::byte payload[wire::kAtomicRequestBytes];
  (void)wire::emit_atomic_request(payload, atomic_request(wqe, read_msn_));
  writer.begin(room.out, kUlpdu);
  writer.header(wire::untagged_header(Opcode::kAtomicRequest, true, read_msn_, 0));
  writer.append(payload);
  reads_.push({.position = next_, .msn = read_msn_, .atomic = true});
  read_msn_ = wire::next(read_msn_);
  ++in_flight(next_).reads;
  framed(0);
  return writer.finish();
}

Verdict Requester::on_atomic_response(const SegmentHeader& header, Bytes payload) {
  if (reads_.empty() || !reads_.front().atomic) return Violation::kUnexpectedOpcode;
  if (header.msn != atomic_response_msn_) return Violation::kUntaggedMsn;
  if (header.message_offset != 0) return Violation::kUntaggedOffset;
  const auto response = wire::parse_atomic_response(payload);
  if (!response || payload.size() != wire::kAtomicResponseBytes || !header.last) {
    return Violation::kMessageLength;
  }
  const OutstandingRead& atomic = reads_.front();
  if (response->request_id != atomic.msn.value()) {
    blame_read(atomic.msn, WcStatus::kBadResponse);
    return Violation::kAtomicResponse;
  }
  if (!scatter_original(queue_.at(atomic.position), response->original_value)) {
    blame_read(atomic.msn, WcStatus::kLocalProtectionError);
    return Violation::kReadSinkBuffer;
  }
  atomic_response_msn_ = wire::next(atomic_response_msn_);
  payload_received_ += kAtomicBytes;
  read_done();
  return {};
}

/// The value goes into the program's buffer in this host's byte order. False when memory is not
/// ours to write.
bool Requester::scatter_original(const SendWqe& wqe, std::uint64_t value) const {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  std::size_t done = 0;
  for (std::uint16_t i = 0; i < wqe.sge_count; ++i) {
    const Sge& sge = wqe.sges[i];
    if (sge.length == 0) continue;
    const auto pin = memory_.pin(sge.lkey, pd_, sge.addr, sge.length, model::kAccessLocalWrite);
    if (!pin) return false;
    if (!copy_to_program(pin->data(), bytes.subspan(done, sge.length))) return false;
    done += sge.length;
  }
  return true;
}

bool Requester::blame_atomic(WcStatus status) {
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    if (!reads_.at(i).atomic) continue;
    blame_read(reads_.at(i).msn, status);
    return true;
  }
  return false;
}

}  // namespace airdma::iwarp
