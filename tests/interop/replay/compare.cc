// SPDX-License-Identifier: MIT
#include "tests/interop/replay/compare.h"

#include <algorithm>

#include "wire/print.h"

namespace airdma::interop {
namespace {

using Found = std::optional<Difference>;

// MPA frames.

void forgive_reply(const wire::MpaFrame& request, wire::MpaFrame& reply, wire::MpaFrame& ours,
                   Deviations& used) {
  if (reply.reject) {
    wire::MpaFrame bare = reply;
    bare.crc = ours.crc;
    bare.markers = ours.markers;
    bare.enhanced = ours.enhanced;
    if (!(bare == reply)) used.insert(Deviation::kRejectFields);
    reply = bare;
    return;
  }
  if (request.crc && !reply.crc) {
    used.insert(Deviation::kReplyCrc);
    reply.crc = true;
  }
  if (!reply.enhanced || !ours.enhanced || !request.enhanced) return;
  if (reply.enhanced->ord > request.enhanced->ird) {
    used.insert(Deviation::kReplyOrd);
    reply.enhanced->ord = request.enhanced->ird;
  }
  wire::MpaEnhanced same_rtr = *reply.enhanced;
  same_rtr.peer_to_peer = ours.enhanced->peer_to_peer;
  same_rtr.rtr_send = ours.enhanced->rtr_send;
  same_rtr.rtr_write = ours.enhanced->rtr_write;
  same_rtr.rtr_read = ours.enhanced->rtr_read;
  if (request.enhanced->peer_to_peer && !(same_rtr == *reply.enhanced)) {
    used.insert(Deviation::kRtrChoice);
    reply.enhanced = same_rtr;
  }
}

// FPDUs.

class StreamComparer {
 public:
  StreamComparer(const Script& script, bool crc, const FpduStream& ours, Deviations& used)
      : script_(script), theirs_(script.own->fpdus), ours_(ours), crc_(crc), used_(used) {}

  Found run(bool exact) {
    if (script_.orderly && theirs_.broken_off) {
      return Difference{theirs_.end, "an orderly end", "after a whole FPDU",
                        "the captured stream ends inside one"};
    }
    for (const Lane lane : {Lane::kRequest, Lane::kResponse}) {
      if (auto found = exact ? fpdus(lane) : messages(lane)) return found;
    }
    if (auto found = terminates()) return found;
    if (auto found = crcs()) return found;
    note_order();
    return std::nullopt;
  }

 private:
  static std::vector<const Fpdu*> lane_fpdus(const FpduStream& stream, Lane lane) {
    std::vector<const Fpdu*> found;
    for (const Fpdu& fpdu : stream.fpdus) {
      if (!fpdu.valid || lane_of(fpdu.header) == lane) found.push_back(&fpdu);
    }
    return found;
  }
  /// The zero-length frame of peer-to-peer mode: its kind counts, not what it names.
  [[nodiscard]] bool same_rtr(const wire::SegmentHeader& a, Bytes a_payload,
                              const wire::SegmentHeader& b, Bytes b_payload) const {
    if (!script_.rtr || script_.role != Role::kInitiator || a.opcode != b.opcode) return false;
    if (a.opcode != static_cast<std::uint8_t>(wire::Opcode::kReadRequest)) {
      return a_payload.empty() && b_payload.empty();
    }
    const auto x = wire::parse_read_request(a_payload);
    const auto y = wire::parse_read_request(b_payload);
    return x && y && x->read_bytes == 0 && y->read_bytes == 0 && a.msn == b.msn;
  }

  Found fpdus(Lane lane) {
    const auto theirs = lane_fpdus(theirs_, lane);
    const auto ours = lane_fpdus(ours_, lane);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const Fpdu& want = *theirs[i];
      if (i >= ours.size()) {
        // Too little is left of some to say what was asked for.
        if (!want.complete) return std::nullopt;
        return Difference{want.begin, "missing FPDU", want.text(), "nothing"};
      }
      const Fpdu& have = *ours[i];
      // Byte for byte, so that bits without a meaning count as well.
      const bool headers = want.valid && have.valid && want.ulpdu.size() == have.ulpdu.size() &&
                           std::ranges::equal(want.header_bytes(), have.header_bytes());
      if (headers && same_payload(want.payload(), want.known_payload, have.payload())) continue;
      if (i == 0 && lane == Lane::kRequest &&
          same_rtr(want.header, want.payload(), have.header, have.payload())) {
        used_.insert(Deviation::kRtrStag);
        continue;
      }
      return Difference{want.begin, headers ? "payload of FPDU" : "FPDU", want.text(), have.text()};
    }
    return extra(lane, theirs.size(), ours);
  }

  static bool same_payload(Bytes want, std::size_t known, Bytes have) {
    return have.size() >= known && std::ranges::equal(want.first(known), have.first(known));
  }

  /// Ours may go on only where the captured side was cut off.
  Found extra(Lane lane, std::size_t count, const std::vector<const Fpdu*>& ours) {
    if (ours.size() <= count) return std::nullopt;
    const std::uint64_t end = script_.own->raw.size();
    if (lane == Lane::kResponse) {
      used_.insert(Deviation::kUnanswered);
      return std::nullopt;
    }
    const bool unfinished = !script_.posts.empty() && !script_.posts.back().complete;
    if (unfinished) return std::nullopt;
    return Difference{end, "FPDU that the captured side did not send", "nothing",
                      ours[count]->text()};
  }

  Found messages(Lane lane) {
    const auto theirs = theirs_.lane(lane);
    const auto ours = ours_.lane(lane);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const Message& want = *theirs[i];
      if (!want.contiguous) {
        return Difference{want.begin, "segments do not follow one another", want.text(), ""};
      }
      if (i >= ours.size()) {
        if (want.cut) return std::nullopt;
        return Difference{want.begin, "missing message", want.text(), "nothing"};
      }
      const Message& have = *ours[i];
      if (i == 0 && lane == Lane::kRequest &&
          same_rtr(want.header, want.payload, have.header, have.payload)) {
        continue;
      }
      if (!same_message(want, have)) {
        return Difference{want.begin, "message", want.text(), have.text()};
      }
    }
    if (theirs.size() < ours.size()) {
      return extra(lane, theirs.size(), first_fpdus(ours));
    }
    return std::nullopt;
  }
  [[nodiscard]] std::vector<const Fpdu*> first_fpdus(
      const std::vector<const Message*>& messages) const {
    std::vector<const Fpdu*> found;
    for (const Message* message : messages) found.push_back(&ours_.fpdus[message->first_fpdu]);
    return found;
  }
  static bool same_message(const Message& want, const Message& have) {
    wire::SegmentHeader header = have.header;
    header.last = want.header.last;
    if (!(header == want.header) || !have.contiguous) return false;
    if (want.complete && have.payload.size() != want.payload.size()) return false;
    if (want.open && have.complete && have.payload.size() <= want.payload.size()) return false;
    return same_payload(want.payload, want.payload.size(), have.payload);
  }

  Found terminates() {
    const auto theirs = theirs_.lane(Lane::kTerminate);
    const auto ours = ours_.lane(Lane::kTerminate);
    if (theirs.empty() && ours.empty()) return std::nullopt;
    if (!theirs.empty() && theirs[0]->cut) return std::nullopt;
    if (theirs.empty()) {
      if (script_.own_reset) {
        used_.insert(Deviation::kResetOnly);
        return std::nullopt;
      }
      return Difference{script_.own->raw.size(), "Terminate that the captured side did not send",
                        "nothing", ours_.fpdus[ours[0]->first_fpdu].text()};
    }
    const std::string want_text = theirs_.fpdus[theirs[0]->first_fpdu].text();
    if (ours.empty()) {
      return Difference{theirs[0]->begin, "missing Terminate", want_text, "nothing"};
    }
    return same_terminate(*theirs[0], *ours[0], want_text);
  }

  Found same_terminate(const Message& theirs, const Message& ours, const std::string& text) {
    const auto want = wire::parse_terminate(theirs.payload);
    const auto have = wire::parse_terminate(ours.payload);
    const Difference difference{theirs.begin, "Terminate", text,
                                ours_.fpdus[ours.first_fpdu].text()};
    if (!want || !have || !same_cause(want->cause, have->cause)) return difference;
    if (want->order != have->order) used_.insert(Deviation::kTerminateOrder);
    if (want->segment_header && have->segment_header &&
        !(*want->segment_header == *have->segment_header)) {
      return difference;
    }
    if (!same_length(*want, *have)) return difference;
    if (want->read_request && have->read_request && !(*want->read_request == *have->read_request)) {
      return difference;
    }
    if (want->segment_bytes.has_value() != have->segment_bytes.has_value() ||
        want->segment_header.has_value() != have->segment_header.has_value() ||
        want->read_request.has_value() != have->read_request.has_value()) {
      used_.insert(Deviation::kTerminateHeaders);
    }
    return std::nullopt;
  }

  bool same_cause(const wire::TerminateCause& want, const wire::TerminateCause& have) {
    if (want == have) return true;
    if (want != wire::cause::kUntaggedNoBuffer || have != wire::cause::kUntaggedTooLong) {
      return false;
    }
    used_.insert(Deviation::kTooLongCode);
    return true;
  }
  bool same_length(const wire::TerminateMessage& want, const wire::TerminateMessage& have) {
    if (!want.segment_bytes || !have.segment_bytes) return true;
    if (*want.segment_bytes == *have.segment_bytes) return true;
    if (!want.segment_header) return false;
    used_.insert(Deviation::kTerminateLength);
    return *want.segment_bytes + want.segment_header->bytes() == *have.segment_bytes;
  }

  /// A CRC where one was agreed, zero where none was.
  Found crcs() {
    for (const Fpdu& fpdu : ours_.fpdus) {
      if (!fpdu.pad_zero) return Difference{fpdu.begin, "pad of our FPDU", "zero", fpdu.text()};
      if (!fpdu.complete || (crc_ ? fpdu.crc_good : fpdu.crc_field == 0)) continue;
      return Difference{fpdu.begin, "CRC field of our FPDU", crc_ ? "CRC32C" : "zero", fpdu.text()};
    }
    for (const Fpdu& fpdu : theirs_.fpdus) {
      if (!fpdu.complete) continue;
      if (!fpdu.pad_zero) used_.insert(Deviation::kPadBytes);
      if (!crc_ && fpdu.crc_field != 0) used_.insert(Deviation::kCrcFieldOff);
      if (crc_ && !fpdu.crc_good) {
        return Difference{fpdu.begin, "CRC of the captured FPDU is wrong", fpdu.text(), ""};
      }
    }
    return std::nullopt;
  }

  void note_order() {
    const auto& theirs = theirs_.messages;
    const auto& ours = ours_.messages;
    const std::size_t common = std::min(theirs.size(), ours.size());
    for (std::size_t i = 0; i < common; ++i) {
      if (theirs[i].lane == ours[i].lane) continue;
      used_.insert(Deviation::kResponseOrder);
      return;
    }
  }

  const Script& script_;
  const FpduStream& theirs_;
  const FpduStream& ours_;
  bool crc_;
  Deviations& used_;
};

}  // namespace

std::optional<Difference> compare_frames(const Script& script, Bytes ours, Deviations& used) {
  const bool request = script.role == Role::kInitiator;
  const auto kind = request ? wire::MpaFrameKind::kRequest : wire::MpaFrameKind::kReply;
  wire::MpaFrame want = *script.own->mpa;
  const std::string want_text = wire::to_text(want);
  const wire::MpaParse parse = wire::parse_mpa(ours, kind);
  if (!parse.frame || parse.frame_bytes != ours.size()) {
    return Difference{0, "MPA frame", want_text, "no whole MPA frame"};
  }
  wire::MpaFrame have = *parse.frame;
  if (want.reserved != 0) used.insert(Deviation::kMpaReserved);
  want.reserved = 0;
  if (want.markers && !want.reject) {
    used.insert(Deviation::kMarkersAsked);
    want.markers = false;
  }
  if (!request) forgive_reply(*script.peer->mpa, want, have, used);
  if (want == have) return std::nullopt;
  return Difference{0, "MPA frame", want_text, wire::to_text(have)};
}

Comparison compare_streams(const Script& script, bool crc, Bytes ours, Deviations& used) {
  const Half& own = *script.own;
  const FpduStream sent = read_fpdus(ours, own.mpa_bytes, own.markers);
  Comparison result;
  result.exact = uniform_ulpdu(own.fpdus) != 0 && uniform_ulpdu(own.fpdus) >= 128;
  const bool one_each = std::ranges::all_of(
      own.fpdus.fpdus, [](const Fpdu& fpdu) { return fpdu.valid && fpdu.header.last; });
  result.exact = result.exact || one_each;
  result.difference = StreamComparer(script, crc, sent, used).run(result.exact);
  result.identical =
      std::ranges::equal(own.raw.subspan(own.mpa_bytes), ours.subspan(own.mpa_bytes));
  return result;
}

}  // namespace airdma::interop
