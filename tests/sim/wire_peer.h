// SPDX-License-Identifier: MIT
// A peer made of bytes: one real endpoint on side `it`, and hand-made FPDUs to feed it.
#pragma once

#include <optional>
#include <vector>

#include "engine/iwarp/fpdu_reader.h"
#include "engine/iwarp/fpdu_writer.h"
#include "tests/sim/endpoint_pair.h"
#include "wire/crc32c.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace airdma::sim {

/// One FPDU as this header and payload say, however wrong.
inline std::vector<std::byte> fpdu(const wire::SegmentHeader& header, Bytes payload = {}) {
  iwarp::FpduWriter writer;
  writer.start(true, false);
  const std::size_t ulpdu = header.bytes() + payload.size();
  std::vector<std::byte> out(wire::fpdu_bytes(ulpdu));
  writer.begin(out, ulpdu);
  writer.header(header);
  writer.append(payload);
  if (writer.finish() != out.size()) std::abort();
  return out;
}

/// A good FPDU around a ULPDU of anything at all.
inline std::vector<std::byte> fpdu_of(Bytes ulpdu) {
  std::vector<std::byte> out(wire::fpdu_bytes(ulpdu.size()));
  out[0] = static_cast<std::byte>(ulpdu.size() >> 8);
  out[1] = static_cast<std::byte>(ulpdu.size());
  std::copy(ulpdu.begin(), ulpdu.end(), out.begin() + wire::kFpduLengthBytes);
  const std::size_t covered = out.size() - wire::kFpduCrcBytes;
  wire::store_fpdu_crc(out.data() + covered, wire::crc32c(Bytes{out}.first(covered)));
  return out;
}

inline std::vector<std::byte> read_request(const wire::SegmentHeader& header,
                                           const wire::ReadRequest& request) {
  std::byte payload[wire::kReadRequestBytes];
  (void)wire::emit_read_request(payload, request);
  return fpdu(header, payload);
}

inline std::vector<std::byte> atomic_request(const wire::SegmentHeader& header,
                                             const wire::AtomicRequest& request) {
  std::byte payload[wire::kAtomicRequestBytes];
  (void)wire::emit_atomic_request(payload, request);
  return fpdu(header, payload);
}

inline std::vector<std::byte> atomic_response(const wire::SegmentHeader& header,
                                              const wire::AtomicResponse& response) {
  std::byte payload[wire::kAtomicResponseBytes];
  (void)wire::emit_atomic_response(payload, response);
  return fpdu(header, payload);
}

inline std::vector<std::byte> terminate(const wire::TerminateMessage& message) {
  std::byte payload[wire::kTerminateMaxBytes];
  const std::size_t bytes = wire::emit_terminate(payload, message);
  return fpdu(wire::untagged_header(wire::Opcode::kTerminate, true, wire::kFirstMsn, 0),
              Bytes{payload, bytes});
}

/// What an endpoint sends now, as ULPDUs.
inline std::vector<std::vector<std::byte>> sent_ulpdus(Side& side, Time now = {}) {
  std::vector<std::byte> out(std::size_t{1} << 18);
  iwarp::FpduReader reader;
  reader.start(true, false);
  std::vector<std::vector<std::byte>> ulpdus;
  while (const std::size_t bytes = side.endpoint.poll_transmit(out, now)) {
    side.endpoint.on_transmitted(bytes, now);
    reader.feed(Bytes{out}.first(bytes));
    for (auto next = reader.next(); next.outcome == iwarp::FpduReader::Outcome::kFpdu;
         next = reader.next()) {
      ulpdus.emplace_back(next.ulpdu.begin(), next.ulpdu.end());
      reader.consume();
    }
    reader.keep_rest();
  }
  side.drain();
  return ulpdus;
}

/// The Terminate among what an endpoint sends now; it must be the last thing.
inline std::optional<wire::TerminateMessage> sent_terminate(Side& side, Time now = {}) {
  const auto ulpdus = sent_ulpdus(side, now);
  if (ulpdus.empty()) return std::nullopt;
  const Bytes last{ulpdus.back()};
  const auto header = wire::parse_segment_header(last);
  if (!header || header->queue != wire::QueueNumber::kTerminate) return std::nullopt;
  return wire::parse_terminate(last.subspan(header->bytes()));
}

}  // namespace airdma::sim
