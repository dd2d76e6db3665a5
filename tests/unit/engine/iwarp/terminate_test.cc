// SPDX-License-Identifier: MIT
// Every cause of a Terminate that an RFC defines: which violation gives it, or why none does, and
// what it makes of the work requests of the side that gets it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/violation.h"
#include "tests/sim/endpoint_pair.h"
#include "tests/sim/wire_peer.h"

namespace airdma::iwarp {
namespace {

using model::SendOpcode;
using model::Violation;
using model::ViolationInfo;
using model::WcStatus;
using sim::Buffer;
using sim::kKey;
using sim::Side;
using wire::Msn;
using wire::Opcode;
using wire::QueueNumber;
using wire::SegmentHeader;
using wire::TerminateCause;
using wire::TerminateLayer;

constexpr std::uint64_t kBase = 0x10000;
constexpr std::uint64_t kRemote = 0x5000;
constexpr Stag kTheirs{9};
constexpr WcStatus kFlush = WcStatus::kFlushError;
constexpr WcStatus kAccess = WcStatus::kRemoteAccessError;
constexpr WcStatus kInvalid = WcStatus::kRemoteInvalidRequest;
constexpr WcStatus kOperation = WcStatus::kRemoteOperationError;

struct Row {
  std::uint8_t layer, type, code;
  bool sent;           // some violation gives it
  WcStatus one_sided;  // of the READ, atomic or WRITE that its headers show
  WcStatus send;       // of the SEND that they show
};

// RFC 5040 4.8, RFC 5041 8, RFC 5044 8, RFC 6581 10; docs/protocols/iwarp.md says why some are not
// sent.
constexpr Row kRows[] = {
    {0, 0, 0x00, true, kOperation, kOperation},  // local catastrophic error
    {0, 1, 0x00, true, kAccess, kAccess},        // invalid STag
    {0, 1, 0x01, true, kAccess, kAccess},        // bounds
    {0, 1, 0x02, true, kAccess, kAccess},        // access rights
    {0, 1, 0x03, true, kAccess, kAccess},        // STag of another stream
    {0, 1, 0x04, true, kAccess, kAccess},        // wrap
    {0, 1, 0x09, true, kAccess, kAccess},        // cannot be invalidated
    {0, 1, 0xff, false, kAccess, kAccess},
    {0, 2, 0x05, true, kInvalid, kInvalid},  // version
    {0, 2, 0x06, true, kInvalid, kInvalid},  // opcode
    {0, 2, 0x07, false, kOperation, kOperation},
    {0, 2, 0x08, false, kOperation, kOperation},
    {0, 2, 0x09, false, kInvalid, kInvalid},
    {0, 2, 0xff, true, kInvalid, kInvalid},
    {1, 0, 0x00, true, kOperation, kOperation},
    {1, 1, 0x00, true, kAccess, kAccess},                       // invalid STag
    {1, 1, 0x01, true, kAccess, kAccess},                       // bounds
    {1, 1, 0x02, true, kAccess, kAccess},                       // STag of another stream
    {1, 1, 0x03, true, kAccess, kAccess},                       // wrap
    {1, 1, 0x04, true, kInvalid, kInvalid},                     // version
    {1, 2, 0x01, true, kInvalid, kInvalid},                     // queue
    {1, 2, 0x02, true, kInvalid, WcStatus::kRnrRetryExceeded},  // no buffer
    {1, 2, 0x03, true, kInvalid, kInvalid},                     // MSN
    {1, 2, 0x04, true, kInvalid, kInvalid},                     // offset
    {1, 2, 0x05, true, kInvalid, kInvalid},                     // too long
    {1, 2, 0x06, true, kInvalid, kInvalid},                     // version
    {2, 0, 0x01, false, kOperation, kOperation},                // connection lost
    {2, 0, 0x02, true, kOperation, kOperation},                 // CRC
    {2, 0, 0x03, true, kOperation, kOperation},                 // marker
    {2, 0, 0x04, false, kOperation, kOperation},                // MPA frame
    {2, 0, 0x05, false, kOperation, kOperation},
    {2, 0, 0x06, false, kOperation, kOperation},  // insufficient IRD
    {2, 0, 0x07, false, kOperation, kOperation},  // no RTR
};

TerminateCause cause_of(const Row& row) {
  return {static_cast<TerminateLayer>(row.layer), row.type, row.code};
}
bool gives(const ViolationInfo& info, const Row& row) {
  return info.layer == row.layer && info.type == row.type && info.code == row.code;
}

TEST(Causes, EachIsSentByAViolationOrByNone) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(wire::describe(cause_of(row)));
    EXPECT_TRUE(wire::is_defined(cause_of(row)));
    EXPECT_EQ(std::any_of(model::kViolations.begin(), model::kViolations.end(),
                          [&](const ViolationInfo& info) { return gives(info, row); }),
              row.sent);
  }
  for (const ViolationInfo& info : model::kViolations) {
    EXPECT_TRUE(std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) {
      return row.sent && gives(info, row);
    })) << info.text;
  }
}

/// A side with a READ, an atomic, a SEND, a WRITE and a SEND_WITH_IMM (1 to 5) that are framed, but
/// of which TCP has taken nothing.
struct Asking {
  Asking() : buffer(it.table, kKey, kBase, 256) {
    it.endpoint.start({.initiator = true, .ord = 4}, Time{});
    post(1, SendOpcode::kRead);
    post(2, SendOpcode::kFetchAdd);
    post(3, SendOpcode::kSend);
    post(4, SendOpcode::kWrite);
    post(5, SendOpcode::kSendWithImm);
    std::vector<std::byte> out(4096);
    if (it.endpoint.poll_transmit(out, Time{}) == 0) std::abort();
  }
  void post(std::uint64_t wr_id, SendOpcode opcode) {
    it.post({.opcode = opcode,
             .wr_id = wr_id,
             .sges = {{kBase, 8, kKey}},
             .remote_addr = kRemote,
             .rkey = kTheirs});
  }
  Side it;
  Buffer buffer;
};

SegmentHeader in_queue(Opcode opcode, std::uint32_t msn) {
  return wire::untagged_header(opcode, true, Msn{msn}, 0);
}

/// The statuses of the five after a Terminate.
std::vector<WcStatus> statuses_after(const wire::TerminateMessage& message) {
  Asking asking;
  asking.it.endpoint.on_bytes(sim::terminate(message), Time{});
  EXPECT_TRUE(sim::sent_ulpdus(asking.it).empty()) << "no Terminate answers a Terminate";
  EXPECT_EQ(asking.it.endpoint.state(), EndpointState::kError);
  EXPECT_TRUE(asking.it.events.empty());
  std::vector<WcStatus> statuses;
  for (const model::Completion& wc : asking.it.completions) statuses.push_back(wc.status);
  return statuses;
}

std::vector<WcStatus> only(std::size_t wr_id, WcStatus status) {
  std::vector<WcStatus> statuses(5, kFlush);
  if (wr_id != 0) statuses[wr_id - 1] = status;
  return statuses;
}

TEST(Causes, TheRequestThatTheHeadersShowGetsItsStatus) {
  const struct {
    SegmentHeader header;
    std::size_t wr_id;  // 0: none of the five
  } shown[] = {
      {in_queue(Opcode::kReadRequest, 1), 1},
      {in_queue(Opcode::kAtomicRequest, 2), 2},
      {in_queue(Opcode::kReadRequest, 3), 0},
      {in_queue(Opcode::kSend, 1), 3},
      {in_queue(Opcode::kImmediate, 2), 5},
      {in_queue(Opcode::kSend, 3), 5},
      {in_queue(Opcode::kSend, 4), 0},
      {wire::tagged_header(Opcode::kWrite, true, kTheirs, kRemote), 4},
      {wire::tagged_header(Opcode::kWrite, true, kTheirs, kRemote + 100), 0},
      {wire::tagged_header(Opcode::kWrite, true, kKey, kRemote), 0},
      {wire::tagged_header(Opcode::kReadResponse, true, kTheirs, kRemote), 0},
  };
  for (const Row& row : kRows) {
    for (const auto& [header, wr_id] : shown) {
      SCOPED_TRACE(std::string(wire::describe(cause_of(row))) + " of " + std::to_string(wr_id));
      const bool send = !header.tagged && header.queue == QueueNumber::kSend;
      for (const auto order : {wire::TerminateOrder::kRfc, wire::TerminateOrder::kSiw}) {
        EXPECT_EQ(statuses_after({order, cause_of(row), 46, header, {}}),
                  only(wr_id, send ? row.send : row.one_sided));
      }
    }
  }
}

TEST(Causes, WithoutHeadersOnlyRdmapsCanBeAboutARead) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(wire::describe(cause_of(row)));
    const bool rdmap = row.layer == 0 && row.type != 0;
    std::size_t wr_id = rdmap ? 1 : 0;
    WcStatus status = row.one_sided;
    if (cause_of(row) == wire::cause::kUnexpectedOpcode) wr_id = 2;  // atomics are younger
    // These two cannot come once something was asked: they are siw's way to say RDMAP's 6 and 7.
    if (cause_of(row) == wire::cause::kMpaInsufficientIrd) {
      wr_id = 2;
      status = kInvalid;
    }
    if (cause_of(row) == wire::cause::kMpaNoRtr) wr_id = 1;
    EXPECT_EQ(statuses_after({wire::TerminateOrder::kRfc, cause_of(row), {}, {}, {}}),
              only(wr_id, status));
  }
}

/// What the table says of the peer's request is what an airdma peer makes of the Terminate.
TEST(Causes, TheTableKnowsWhatThePeerReports) {
  for (const ViolationInfo& info : model::kViolations) {
    if (info.headers == model::TerminateHeaders::kNone || info.remote == kFlush) continue;
    SCOPED_TRACE(info.text);
    const bool untagged_buffer = info.layer == 1 && info.type == 2;
    const bool of_read = info.violation == Violation::kUntaggedNoBuffer;
    const bool tagged_buffer = info.layer == 1 && info.type == 1;
    SegmentHeader header = in_queue(Opcode::kReadRequest, 1);
    std::size_t wr_id = 1;
    if (untagged_buffer && !of_read) {
      header = in_queue(Opcode::kSend, 1);
      wr_id = 3;
    } else if (tagged_buffer) {
      header = wire::tagged_header(Opcode::kWrite, true, kTheirs, kRemote);
      wr_id = 4;
    }
    const TerminateCause cause{static_cast<TerminateLayer>(info.layer), info.type, info.code};
    EXPECT_EQ(statuses_after({wire::TerminateOrder::kRfc, cause, 46, header, {}}),
              only(wr_id, info.remote));
  }
}

TEST(Causes, GarbageInATerminateEndsTheStreamToo) {
  for (const std::size_t bytes : {0u, 3u, 4u, 7u, 60u}) {
    Asking asking;
    const std::vector<std::byte> payload(bytes, std::byte{0xff});
    asking.it.endpoint.on_bytes(
        sim::fpdu(wire::untagged_header(Opcode::kTerminate, true, wire::kFirstMsn, 0), payload),
        Time{});
    asking.it.drain();
    EXPECT_EQ(asking.it.endpoint.state(), EndpointState::kError);
    EXPECT_EQ(asking.it.completions.size(), 5u);
    EXPECT_TRUE(sim::sent_ulpdus(asking.it).empty());
  }
}

}  // namespace
}  // namespace airdma::iwarp
