// SPDX-License-Identifier: MIT
// Everything a peer can do wrong, and our own program too: the Terminate it gets, the completions
// and events here, and what the Terminate makes of the other side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "model/violation.h"
#include "tests/sim/endpoint_pair.h"
#include "tests/sim/wire_peer.h"

namespace airdma::iwarp {
namespace {

using model::QpEvent;
using model::SendOpcode;
using model::Violation;
using model::WcStatus;
using sim::Buffer;
using sim::kKey;
using sim::Side;
using wire::Msn;
using wire::Opcode;

constexpr std::uint64_t kBase = 0x10000;
constexpr std::size_t kSize = 4096;
constexpr Stag kReadOnly{0x51};
constexpr Stag kForeign{0x52};
constexpr Stag kLocalOnly{0x53};
constexpr std::uint64_t kTop = ~std::uint64_t{0} - 99;  // a region that ends with the address space

/// An operational endpoint that accepted its connection, with memory and two receives of 64 bytes.
struct World {
  explicit World(model::AccessMask remote_access = sim::kAllRights)
      : it(64, 4, remote_access),
        buffer(it.table, kKey, kBase, kSize),
        read_only(it.table, kReadOnly, kBase, kSize, model::kAccessRemoteRead),
        foreign(it.table, kForeign, kBase, kSize, sim::kAllRights, sim::kOtherPd),
        local_only(it.table, kLocalOnly, kBase, kSize, model::kAccessLocalWrite) {
    it.endpoint.start({.ird = 2, .ord = 2}, Time{});
    post_receive(100);
    post_receive(101);
  }
  void post_receive(std::uint64_t wr_id) { it.post_receive(wr_id, {{kBase, 64, kKey}}); }
  void feed(const std::vector<std::byte>& bytes) {
    it.endpoint.on_bytes(bytes, Time{});
    it.drain();
  }
  void post_read(std::uint64_t wr_id) {
    it.post({.opcode = SendOpcode::kRead,
             .wr_id = wr_id,
             .sges = {{kBase + 512, 100, kKey}},
             .remote_addr = 0x5000,
             .rkey = Stag{9}});
  }
  /// Fills all memory; what is not a receive must keep this.
  void mark_memory() {
    for (Buffer* one : {&buffer, &read_only, &foreign, &local_only}) sim::fill(one->bytes(), 1);
    image = buffer.bytes();
  }
  [[nodiscard]] bool memory_is_untouched() {
    for (Buffer* one : {&read_only, &foreign, &local_only}) {
      if (one->bytes() != image) return false;
    }
    return std::equal(image.begin() + kReceiveBytes, image.end(),
                      buffer.bytes().begin() + kReceiveBytes);
  }
  static constexpr std::ptrdiff_t kReceiveBytes = 64;
  Side it;
  Buffer buffer, read_only, foreign, local_only;
  std::vector<std::byte> image;
};

wire::SegmentHeader send_header(std::uint32_t msn = 1, std::uint32_t offset = 0, bool last = true) {
  return wire::untagged_header(Opcode::kSend, last, Msn{msn}, offset);
}
wire::SegmentHeader write_header(Stag stag, std::uint64_t offset) {
  return wire::tagged_header(Opcode::kWrite, true, stag, offset);
}
wire::SegmentHeader read_header(std::uint32_t msn = 1) {
  return wire::untagged_header(Opcode::kReadRequest, true, Msn{msn}, 0);
}
std::vector<std::byte> bytes(std::size_t count) { return std::vector<std::byte>(count); }

struct Case {
  const char* name;
  Violation violation;
  std::function<void(World&)> provoke;
  model::AccessMask remote_access = sim::kAllRights;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class Cases {
 public:
  void add(const char* name, Violation violation, std::function<void(World&)> provoke,
           model::AccessMask access = sim::kAllRights) {
    all_.push_back({name, violation, std::move(provoke), access});
  }
  [[nodiscard]] const std::vector<Case>& list() const { return all_; }

 private:
  std::vector<Case> all_;
};

std::function<void(World&)> segment(wire::SegmentHeader header, std::size_t payload) {
  return [=](World& w) { w.feed(sim::fpdu(header, bytes(payload))); };
}
std::function<void(World&)> read(wire::ReadRequest request) {
  return [=](World& w) { w.feed(sim::read_request(read_header(), request)); };
}

void add_header_cases(Cases& all) {
  wire::SegmentHeader odd;

  all.add("BadCrc", Violation::kMpaCrc, [](World& w) {
    auto fpdu = sim::fpdu(send_header(), bytes(10));
    fpdu[25] ^= std::byte{1};
    w.feed(fpdu);
  });
  odd = write_header(kKey, kBase);
  odd.ddp_version = 2;
  all.add("TaggedVersion", Violation::kTaggedVersion, segment(odd, 1));
  odd = send_header();
  odd.ddp_version = 0;
  all.add("UntaggedVersion", Violation::kUntaggedVersion, segment(odd, 1));
  odd = send_header();
  odd.rdmap_version = 2;
  all.add("RdmapVersion", Violation::kRdmapVersion, segment(odd, 1));
  odd = send_header();
  odd.queue = static_cast<wire::QueueNumber>(7);
  all.add("Queue", Violation::kUntaggedQueue, segment(odd, 1));
  odd = send_header();
  odd.opcode = 15;
  all.add("UnknownOpcode", Violation::kUnexpectedOpcode, segment(odd, 1));
  odd = send_header();
  odd.queue = wire::QueueNumber::kReadRequest;
  all.add("OpcodeOfOtherQueue", Violation::kUnexpectedOpcode, segment(odd, 1));
  odd = write_header(kKey, kBase);
  odd.opcode = static_cast<std::uint8_t>(Opcode::kSend);
  all.add("TaggedSend", Violation::kUnexpectedOpcode, segment(odd, 1));
  all.add("ResponseWithoutRead", Violation::kUnexpectedOpcode,
          segment(wire::tagged_header(Opcode::kReadResponse, true, kKey, kBase), 4));
}

void add_write_cases(Cases& all) {
  all.add("WriteUnknownStag", Violation::kTaggedInvalidStag,
          segment(write_header(Stag{77}, kBase), 4));
  all.add("WriteOtherDomain", Violation::kTaggedOtherStream,
          segment(write_header(kForeign, kBase), 4));
  all.add("WriteBeyondEnd", Violation::kTaggedBounds,
          segment(write_header(kKey, kBase + kSize - 3), 4));
  all.add("WriteBeforeStart", Violation::kTaggedBounds, segment(write_header(kKey, kBase - 1), 4));
  all.add("WriteWraps", Violation::kTaggedOffsetWrap,
          segment(write_header(kKey, ~std::uint64_t{0} - 2), 4));
  all.add("WriteToReadOnly", Violation::kWriteDenied, segment(write_header(kReadOnly, kBase), 4));
  all.add("WriteQpDenies", Violation::kWriteDenied, segment(write_header(kKey, kBase), 4),
          model::kAccessRemoteRead);
}

void add_send_cases(Cases& all) {
  all.add("SendMsnSkips", Violation::kUntaggedMsn, segment(send_header(2), 4));
  all.add("SendMsnRepeats", Violation::kUntaggedMsn, [](World& w) {
    w.feed(sim::fpdu(send_header(1), bytes(4)));
    w.it.completions.clear();
    w.post_receive(102);
    w.feed(sim::fpdu(send_header(1), bytes(4)));
  });
  all.add("SendOffsetNotZero", Violation::kUntaggedOffset, segment(send_header(1, 4), 4));
  all.add("SendOffsetGap", Violation::kUntaggedOffset, [](World& w) {
    w.feed(sim::fpdu(send_header(1, 0, false), bytes(4)));
    w.feed(sim::fpdu(send_header(1, 5), bytes(4)));
  });
  all.add("SendChangesOpcode", Violation::kUnexpectedOpcode, [](World& w) {
    w.feed(sim::fpdu(send_header(1, 0, false), bytes(4)));
    w.feed(sim::fpdu(wire::untagged_header(Opcode::kSendSolicited, true, Msn{1}, 4), bytes(4)));
  });
  all.add("SendTooLong", Violation::kUntaggedTooLong, segment(send_header(), 65));
  all.add("SendTooLongLater", Violation::kUntaggedTooLong, [](World& w) {
    w.feed(sim::fpdu(send_header(1, 0, false), bytes(64)));
    w.feed(sim::fpdu(send_header(1, 64), bytes(1)));
  });
  all.add("SendInvalidates", Violation::kCannotInvalidate,
          segment(wire::untagged_header(Opcode::kSendInvalidate, true, Msn{1}, 0, kKey), 4));
  all.add("ImmediateInsideSend", Violation::kUnexpectedOpcode, [](World& w) {
    w.feed(sim::fpdu(send_header(1, 0, false), bytes(4)));
    w.feed(sim::fpdu(wire::untagged_header(Opcode::kImmediate, true, Msn{1}, 4), bytes(8)));
  });
  all.add("ImmediateTooShort", Violation::kMessageLength,
          segment(wire::untagged_header(Opcode::kImmediate, true, Msn{1}, 0), 7));
  all.add("ImmediateTooLong", Violation::kMessageLength,
          segment(wire::untagged_header(Opcode::kImmediate, true, Msn{1}, 0), 9));
}

void add_read_cases(Cases& all) {
  all.add("ReadUnknownStag", Violation::kReadInvalidStag, read({kKey, 0, 4, Stag{77}, kBase}));
  all.add("ReadOtherDomain", Violation::kReadOtherStream, read({kKey, 0, 4, kForeign, kBase}));
  all.add("ReadBeyondEnd", Violation::kReadBounds, read({kKey, 0, kSize + 1, kKey, kBase}));
  all.add("ReadWraps", Violation::kReadOffsetWrap, read({kKey, 0, 200, kKey, kTop}));
  all.add("ReadOfLocal", Violation::kReadDenied, read({kKey, 0, 4, kLocalOnly, kBase}));
  all.add("ReadOffsetNotZero", Violation::kUntaggedOffset,
          segment(wire::untagged_header(Opcode::kReadRequest, true, Msn{1}, 4), 28));
  all.add("ReadInSeveralSegments", Violation::kMessageLength,
          segment(wire::untagged_header(Opcode::kReadRequest, false, Msn{1}, 0), 28));
  all.add("ReadQpDenies", Violation::kReadDenied, read({kKey, 0, 4, kKey, kBase}),
          model::kAccessRemoteWrite);
  all.add("ReadMsnSkips", Violation::kUntaggedMsn,
          [](World& w) { w.feed(sim::read_request(read_header(2), {kKey, 0, 4, kKey, kBase})); });
  all.add("ReadTooShort", Violation::kMessageLength, segment(read_header(), 27));
  all.add("ReadTooLong", Violation::kMessageLength, segment(read_header(), 29));
  all.add("TooManyReads", Violation::kUntaggedNoBuffer, [](World& w) {
    for (std::uint32_t i = 1; i <= 3; ++i) {
      w.feed(sim::read_request(read_header(i), {kKey, 0, 4, kKey, kBase}));
    }
  });
}

wire::SegmentHeader atomic_header(std::uint32_t msn = 1) {
  return wire::untagged_header(Opcode::kAtomicRequest, true, Msn{msn}, 0);
}
std::function<void(World&)> atomic(Stag stag, std::uint64_t offset) {
  wire::AtomicRequest request{.stag = stag, .tagged_offset = offset, .add_or_swap_data = 1};
  return [=](World& w) { w.feed(sim::atomic_request(atomic_header(), request)); };
}

void add_atomic_cases(Cases& all) {
  all.add("AtomicUnknownStag", Violation::kReadInvalidStag, atomic(Stag{77}, kBase));
  all.add("AtomicOtherDomain", Violation::kReadOtherStream, atomic(kForeign, kBase));
  all.add("AtomicBeyondEnd", Violation::kReadBounds, atomic(kKey, kBase + kSize));
  all.add("AtomicOfReadOnly", Violation::kReadDenied, atomic(kReadOnly, kBase));
  all.add("AtomicOfLocal", Violation::kReadDenied, atomic(kLocalOnly, kBase));
  all.add("AtomicQpDenies", Violation::kReadDenied, atomic(kKey, kBase),
          model::kAccessRemoteWrite | model::kAccessRemoteRead);
  all.add("AtomicUnaligned", Violation::kAtomicUnaligned, atomic(kKey, kBase + 4));
  all.add("AtomicOperation", Violation::kAtomicOperation, [](World& w) {
    wire::AtomicRequest request{.stag = kKey, .tagged_offset = kBase};
    request.operation = static_cast<wire::AtomicOperation>(1);
    w.feed(sim::atomic_request(atomic_header(), request));
  });
  all.add("AtomicTooShort", Violation::kMessageLength, segment(atomic_header(), 51));
  all.add("AtomicTooLong", Violation::kMessageLength, segment(atomic_header(), 53));
  all.add("AtomicMsnSkips", Violation::kUntaggedMsn, [](World& w) {
    w.feed(sim::atomic_request(atomic_header(2), {.stag = kKey, .tagged_offset = kBase}));
  });
  all.add("TooManyAtomics", Violation::kUntaggedNoBuffer, [](World& w) {
    w.feed(sim::read_request(read_header(1), {kKey, 0, 4, kKey, kBase}));
    for (std::uint32_t i = 2; i <= 3; ++i) {
      w.feed(sim::atomic_request(atomic_header(i), {.stag = kKey, .tagged_offset = kBase}));
    }
  });
  all.add("AtomicResponseWithoutRequest", Violation::kUnexpectedOpcode,
          segment(wire::untagged_header(Opcode::kAtomicResponse, true, Msn{1}, 0), 12));
}

std::vector<Case> cases() {
  Cases all;
  add_header_cases(all);
  add_write_cases(all);
  add_send_cases(all);
  add_read_cases(all);
  add_atomic_cases(all);
  return all.list();
}

TEST(Violation, EachThatAPeerCanCommitIsCommitted) {
  std::set<Violation> committed{
      // In tests of their own below, in fpdu_reader's and in those of the two files beside.
      Violation::kMpaMarker, Violation::kSegmentTooShort, Violation::kReadWithdrawn,
      Violation::kReadResponseLength, Violation::kAtomicResponse};
  for (const Case& c : cases()) committed.insert(c.violation);
  for (const model::ViolationInfo& info : model::kViolations) {
    const bool of_a_peer = info.violation < Violation::kSendBuffer;
    EXPECT_EQ(committed.contains(info.violation), of_a_peer) << info.text;
  }
}

class PeerViolation : public testing::TestWithParam<Case> {};

TEST_P(PeerViolation, GetsItsTerminateAndFlushesEverything) {
  const Case& c = GetParam();
  const model::ViolationInfo& info = model::info(c.violation);
  World w(c.remote_access);
  w.mark_memory();
  w.it.post({.wr_id = 1, .sges = {{kBase, 8, kKey}}});  // held: the initiator has not spoken
  c.provoke(w);
  EXPECT_EQ(w.it.endpoint.state(), EndpointState::kError);
  EXPECT_EQ(w.it.endpoint.stream_request(), StreamRequest::kShutdown);
  EXPECT_STREQ(w.it.endpoint.failure(), info.text);

  const auto terminate = sim::sent_terminate(w.it);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->order, wire::TerminateOrder::kRfc);
  EXPECT_EQ(static_cast<int>(terminate->cause.layer), info.layer);
  EXPECT_EQ(terminate->cause.type, info.type);
  EXPECT_EQ(terminate->cause.code, info.code);
  EXPECT_TRUE(wire::is_defined(terminate->cause));
  EXPECT_EQ(terminate->segment_header.has_value(),
            info.headers == model::TerminateHeaders::kSegment);
  EXPECT_TRUE(sim::sent_ulpdus(w.it).empty()) << "one Terminate, and nothing after it";

  if (info.event) {
    EXPECT_EQ(w.it.events, std::vector<QpEvent>{*info.event});
  }
  std::multiset<std::uint64_t> ids;
  for (const auto& wc : w.it.completions) {
    ids.insert(wc.wr_id);
    const bool first_receive = wc.receive && wc.wr_id == 100;
    EXPECT_EQ(wc.status, first_receive ? info.local : WcStatus::kFlushError) << wc.wr_id;
  }
  EXPECT_EQ(ids.count(1), 1u);
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_TRUE(w.it.sq.empty());
  EXPECT_TRUE(w.it.rq.empty());
  EXPECT_TRUE(w.buffer.idle());
  EXPECT_TRUE(w.memory_is_untouched());
}

TEST_P(PeerViolation, NothingIsProcessedAfterwards) {
  const Case& c = GetParam();
  World w(c.remote_access);
  c.provoke(w);
  const auto before = w.buffer.bytes();
  w.post_receive(200);
  w.feed(sim::fpdu(write_header(kKey, kBase), std::vector<std::byte>(16, std::byte{0xee})));
  w.feed(sim::fpdu(send_header(), std::vector<std::byte>(16, std::byte{0xee})));
  EXPECT_EQ(w.buffer.bytes(), before);
  EXPECT_EQ(w.it.completions.back().wr_id, 200u);
  EXPECT_EQ(w.it.completions.back().status, WcStatus::kFlushError);
}

INSTANTIATE_TEST_SUITE_P(All, PeerViolation, testing::ValuesIn(cases()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Violation, ASegmentTooShortForItsHeader) {
  World w;
  w.feed(sim::fpdu_of(bytes(5)));
  EXPECT_STREQ(w.it.endpoint.failure(), model::info(Violation::kSegmentTooShort).text);
}

TEST(Violation, TheReadRequestIsShownInItsTerminate) {
  World w;
  const wire::ReadRequest request{kKey, 0x99, 4, Stag{77}, kBase};
  w.feed(sim::read_request(read_header(), request));
  const auto terminate = sim::sent_terminate(w.it);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->segment_bytes, 18 + 28);
  EXPECT_EQ(terminate->segment_header, read_header());
  EXPECT_EQ(terminate->read_request, request);
}

TEST(Violation, MemoryWithdrawnWhileAReadIsAnswered) {
  World w;
  w.feed(sim::read_request(read_header(), {kKey, 0, 4096, kKey, kBase}));
  std::vector<std::byte> out(1500);
  ASSERT_NE(w.it.endpoint.poll_transmit(out, Time{}), 0u);
  w.buffer.withdraw();
  EXPECT_TRUE(w.buffer.idle());
  const auto terminate = sim::sent_terminate(w.it);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->cause, wire::cause::kInvalidStag);
  EXPECT_EQ(terminate->read_request->read_bytes, 4096u);
  EXPECT_EQ(w.it.events, std::vector{QpEvent::kAccessError});
}

TEST(Violation, ReadResponsesMustFitTheirRead) {
  const auto response = [](bool last, Stag stag, std::uint64_t offset, std::size_t count) {
    return sim::fpdu(wire::tagged_header(Opcode::kReadResponse, last, stag, offset), bytes(count));
  };
  struct {
    std::vector<std::byte> fpdu;
    Violation violation;
    WcStatus status;
  } const wrong[] = {
      {response(true, Stag{5}, kBase + 512, 100), Violation::kTaggedInvalidStag,
       WcStatus::kFlushError},
      {response(true, kKey, kBase + 513, 99), Violation::kTaggedBounds, WcStatus::kFlushError},
      {response(true, kKey, kBase + 512, 101), Violation::kTaggedBounds, WcStatus::kFlushError},
      {response(true, kKey, kBase + 512, 99), Violation::kReadResponseLength,
       WcStatus::kBadResponse},
  };
  for (const auto& [fpdu, violation, status] : wrong) {
    World w;
    w.feed(sim::fpdu(send_header(), bytes(1)));  // releases the responder
    w.it.completions.clear();
    w.post_read(7);
    ASSERT_EQ(sim::sent_ulpdus(w.it).size(), 1u);
    w.feed(fpdu);
    EXPECT_STREQ(w.it.endpoint.failure(), model::info(violation).text);
    ASSERT_FALSE(w.it.completions.empty());
    EXPECT_EQ(w.it.completions[0].wr_id, 7u);
    EXPECT_EQ(w.it.completions[0].status, status);
  }
}

// What our own program does wrong.

struct LocalCase {
  const char* name;
  SendOpcode opcode;
  std::vector<model::Sge> sges;
  Violation violation;
};

TEST(Violation, LocalMistakesCompleteInTurn) {
  const LocalCase local[] = {
      {"unknown lkey", SendOpcode::kSend, {{kBase, 8, Stag{77}}}, Violation::kSendBuffer},
      {"other domain", SendOpcode::kWrite, {{kBase, 8, kForeign}}, Violation::kSendBuffer},
      {"bounds", SendOpcode::kSend, {{kBase, kSize + 1, kKey}}, Violation::kSendBuffer},
      {"second piece",
       SendOpcode::kSend,
       {{kBase, 8, kKey}, {kBase, 8, Stag{77}}},
       Violation::kSendBuffer},
      {"sink not writable", SendOpcode::kRead, {{kBase, 8, kReadOnly}}, Violation::kReadSinkBuffer},
      {"length of an atomic", SendOpcode::kFetchAdd, {{kBase, 4, kKey}}, Violation::kOperation},
      {"sink of an atomic",
       SendOpcode::kFetchAdd,
       {{kBase, 8, kReadOnly}},
       Violation::kReadSinkBuffer},
      {"local invalidate", SendOpcode::kLocalInvalidate, {}, Violation::kMemoryOperation},
  };
  for (const LocalCase& c : local) {
    SCOPED_TRACE(c.name);
    World w;
    w.feed(sim::fpdu(send_header(), bytes(1)));
    w.it.completions.clear();
    w.it.post({.wr_id = 1, .sges = {{kBase, 8, kKey}}});
    w.it.post({.opcode = c.opcode, .wr_id = 2, .sges = c.sges, .signaled = false});
    w.it.post({.wr_id = 3, .sges = {{kBase, 8, kKey}}});
    const auto terminate = sim::sent_terminate(w.it);
    ASSERT_TRUE(terminate);
    EXPECT_EQ(terminate->cause, wire::cause::kRdmapCatastrophic);
    ASSERT_EQ(w.it.completions.size(), 4u);
    EXPECT_EQ(w.it.completions[0].wr_id, 1u);
    EXPECT_EQ(w.it.completions[0].status, WcStatus::kSuccess);
    EXPECT_EQ(w.it.completions[1].wr_id, 2u);
    EXPECT_EQ(w.it.completions[1].status, model::info(c.violation).local);
    EXPECT_EQ(w.it.completions[2].wr_id, 3u);
    EXPECT_EQ(w.it.completions[2].status, WcStatus::kFlushError);
    EXPECT_EQ(w.it.completions[3].wr_id, 101u);
    EXPECT_EQ(w.it.events, std::vector{*model::info(c.violation).event});
  }
}

TEST(Violation, AReadWithoutOrdFailsInsteadOfHanging) {
  Side side;
  side.endpoint.start({.initiator = true, .ord = 0}, Time{});
  side.post({.opcode = SendOpcode::kRead, .wr_id = 4});
  EXPECT_TRUE(sim::sent_terminate(side));
  ASSERT_EQ(side.completions.size(), 1u);
  EXPECT_EQ(side.completions[0].status, WcStatus::kLocalQpOperationError);
}

TEST(Violation, AReceiveIntoMemoryThatDeniesIt) {
  World w;
  w.it.endpoint.on_bytes(sim::fpdu(send_header(1), bytes(1)), Time{});
  w.it.endpoint.on_bytes(sim::fpdu(send_header(2), bytes(1)), Time{});
  w.it.drain();
  w.it.completions.clear();
  w.it.post_receive(7, {{kBase, 64, kReadOnly}});
  w.it.post_receive(8, {{kBase, 64, kKey}});
  w.feed(sim::fpdu(send_header(3), bytes(1)));
  ASSERT_EQ(w.it.completions.size(), 2u);
  EXPECT_EQ(w.it.completions[0].status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(w.it.completions[1].status, WcStatus::kFlushError);
  EXPECT_EQ(sim::sent_terminate(w.it)->cause, wire::cause::kRdmapCatastrophic);
}

// What a Terminate makes of the side that gets it.

struct TerminateCase {
  const char* name;
  wire::TerminateMessage message;
  WcStatus first;  // of the two READs
  WcStatus second;
};

TEST(Terminate, NamesTheReadThatWasRefused) {
  const WcStatus flush = WcStatus::kFlushError;
  const wire::ReadRequest request{kKey, 0, 100, Stag{9}, 0x5000};
  const auto rfc = wire::TerminateOrder::kRfc;
  const auto siw = wire::TerminateOrder::kSiw;
  const TerminateCase terminates[] = {
      {"first",
       {rfc, wire::cause::kBounds, 46, read_header(1), request},
       WcStatus::kRemoteAccessError,
       flush},
      {"second",
       {rfc, wire::cause::kInvalidStag, 46, read_header(2), request},
       flush,
       WcStatus::kRemoteAccessError},
      {"siw",
       {siw, wire::cause::kBounds, 46, read_header(1), request},
       WcStatus::kRemoteAccessError,
       flush},
      {"too many",
       {rfc, wire::cause::kUntaggedNoBuffer, 46, read_header(2), {}},
       flush,
       WcStatus::kRemoteInvalidRequest},
      {"no headers", {rfc, wire::cause::kBounds, {}, {}, {}}, WcStatus::kRemoteAccessError, flush},
      {"operation",
       {rfc, wire::cause::kUnexpectedOpcode, {}, {}, {}},
       WcStatus::kRemoteInvalidRequest,
       flush},
      {"a write", {rfc, wire::cause::kTaggedBounds, 18, write_header(kKey, 0), {}}, flush, flush},
      {"a denied write", {rfc, wire::cause::kAccess, 18, write_header(kKey, 0), {}}, flush, flush},
      {"crc", {rfc, wire::cause::kMpaCrc, {}, {}, {}}, flush, flush},
      {"catastrophe", {rfc, wire::cause::kRdmapCatastrophic, {}, {}, {}}, flush, flush},
  };
  for (const TerminateCase& c : terminates) {
    SCOPED_TRACE(c.name);
    World w;
    w.feed(sim::fpdu(send_header(), bytes(1)));
    w.it.completions.clear();
    w.post_read(1);
    w.post_read(2);
    ASSERT_EQ(sim::sent_ulpdus(w.it).size(), 2u);
    w.feed(sim::terminate(c.message));
    EXPECT_TRUE(sim::sent_ulpdus(w.it).empty()) << "no Terminate answers a Terminate";
    EXPECT_EQ(w.it.endpoint.state(), EndpointState::kError);
    EXPECT_EQ(w.it.endpoint.stream_request(), StreamRequest::kShutdown);
    ASSERT_EQ(w.it.completions.size(), 3u);
    EXPECT_EQ(w.it.completions[0].status, c.first);
    EXPECT_EQ(w.it.completions[1].status, c.second);
    EXPECT_EQ(w.it.completions[2].status, flush);
    EXPECT_STREQ(w.it.endpoint.failure(), wire::describe(c.message.cause).data());
    EXPECT_TRUE(w.it.events.empty());
  }
}

// Ends without anybody's fault.

TEST(Ending, APeersFinFlushesWithoutAnEvent) {
  for (const StreamEnd end : {StreamEnd::kFin, StreamEnd::kReset}) {
    World w;
    w.it.post({.wr_id = 1, .sges = {{kBase, 8, kKey}}});
    w.it.endpoint.on_stream_end(end, Time{});
    w.it.drain();
    EXPECT_EQ(w.it.completions.size(), 3u);
    EXPECT_TRUE(w.it.events.empty());
    EXPECT_TRUE(sim::sent_ulpdus(w.it).empty());
    EXPECT_EQ(w.it.endpoint.stream_request(),
              end == StreamEnd::kFin ? StreamRequest::kShutdown : StreamRequest::kAbort);
  }
}

TEST(Ending, FailSendsATerminateOnlyOnAStream) {
  World w;
  w.it.endpoint.fail(Time{});
  EXPECT_EQ(sim::sent_terminate(w.it)->cause, wire::cause::kRdmapCatastrophic);
  EXPECT_EQ(w.it.completions.size(), 2u);
  EXPECT_TRUE(w.it.events.empty());

  Side idle;
  idle.post({.wr_id = 1});
  idle.endpoint.fail(Time{});
  idle.drain();
  EXPECT_TRUE(sim::sent_ulpdus(idle).empty());
  EXPECT_EQ(idle.completions.size(), 1u);
  EXPECT_EQ(idle.endpoint.state(), EndpointState::kError);
}

TEST(Ending, DisconnectFramesNothingNew) {
  World w;
  w.it.post({.wr_id = 1, .sges = {{kBase, 8, kKey}}});
  w.it.endpoint.disconnect(Time{});
  EXPECT_TRUE(sim::sent_ulpdus(w.it).empty());
  EXPECT_EQ(w.it.completions.size(), 3u);
  EXPECT_EQ(w.it.endpoint.stream_request(), StreamRequest::kShutdown);
  w.it.post({.wr_id = 5});
  w.post_receive(6);
  w.it.drain();
  EXPECT_EQ(w.it.completions.size(), 5u);
}

}  // namespace
}  // namespace airdma::iwarp
