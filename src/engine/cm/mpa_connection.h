// SPDX-License-Identifier: MIT
// MPA connection setup (RFC 5044 7, RFC 6581): the request and the reply, without a socket.
// The MPA initiator is the side that opened the TCP connection; the MPA responder accepted it.
// One owner drives an object; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "wire/mpa.h"

namespace airdma::mpa {

/// Ready-to-receive frame the initiator sends first in peer-to-peer mode (RFC 6581 9.2).
enum class Rtr : std::uint8_t { kNone, kSend, kWrite, kRead };

/// How one side deals with the CRC. RFC 5044 7.1: CRCs are on when either side's C bit says so.
///             initiator                        responder
///   kOff      does not ask, follows the reply  does not ask, follows the request
///   kPrefer   asks                             as kOff: one asking side is enough
///   kRequire  asks                             asks whatever the request says
///   kRefuse   does not ask, fails on a reply   rejects a request that asks
///             that asks
enum class CrcPolicy : std::uint8_t { kOff, kPrefer, kRequire, kRefuse };

/// READs one side lets the other have outstanding when that other insists, unless told otherwise.
inline constexpr std::uint16_t kDefaultMaxIrd = 128;

/// What one side brings to the negotiation. ird/ord: outstanding inbound/outbound READs; 0x3fff
/// leaves a limit out of the negotiation (RFC 6581 9.1).
struct Offer {
  std::uint8_t revision = 2;
  CrcPolicy crc = CrcPolicy::kPrefer;
  bool peer_to_peer = true;  // initiator: offer an RTR frame so that the responder may send first
  /// Initiator: the only RTR frame on offer, instead of WRITE and READ. Responder: the one it takes
  /// if it is offered, instead of the cheapest; kNone turns every offer down.
  std::optional<Rtr> rtr = std::nullopt;
  bool markers = false;               // demand markers in what the peer sends
  bool large_fpdus = false;           // say that FPDUs of more than a TCP segment are welcome
  bool reads_from_the_start = false;  // responder: say that nothing behind the reply is missed
  std::uint16_t ird = 0;
  std::uint16_t ord = 0;
  std::uint16_t max_ird = kDefaultMaxIrd;  // ird is raised up to this when the peer's ord is more
};

/// What both sides agreed on.
struct Agreement {
  std::uint8_t revision = 2;
  bool crc = false;
  bool send_markers = false;     // the peer demands markers in what we send
  bool receive_markers = false;  // we demand them in what it sends
  bool large_fpdus = false;      // the peer welcomes FPDUs of more than a TCP segment
  /// Initiator: the peer misses nothing that follows its reply at once (StreamParams::nudge_after).
  bool reads_from_the_start = false;
  bool enhanced = false;  // IRD and ORD were exchanged
  std::uint16_t ird = 0;  // READs the peer may have outstanding with us
  std::uint16_t ord = 0;  // READs we may have outstanding with the peer
  Rtr rtr = Rtr::kNone;   // the initiator sends it first, the responder waits for it
};

/// What a request says, as the passive side's program is shown it.
struct Request {
  std::uint8_t revision = 2;
  bool crc = false;
  bool markers = false;
  bool large_fpdus = false;
  bool enhanced = false;
  bool peer_to_peer = false;  // some RTR frame is on offer
  bool rtr_send = false;      // which ones
  bool rtr_write = false;
  bool rtr_read = false;
  std::uint16_t ird = 0;  // the initiator's; valid when enhanced
  std::uint16_t ord = 0;
  std::vector<std::byte> private_data;
};

enum class SetupState : std::uint8_t { kWaiting, kRequested, kEstablished, kRejected, kFailed };

/// Why setup failed. For logs and tests; the program sees CONNECT_ERROR or REJECTED.
enum class SetupError : std::uint8_t {
  kNone,
  kBadKey,         // not an MPA frame of the kind that is due
  kBadRevision,    // 0, one we do not know, or a reply in another than the request's
  kBadLength,      // PD_Length over 512, or too short for the enhanced word
  kBadFlags,       // a request that is marked as rejected
  kCrcMismatch,    // one side asks for CRCs, the other refuses them
  kNoResources,    // the peer wants more READs outstanding than we can take
  kNoMatchingRtr,  // the reply picks a ready-to-receive frame that was not offered
};

/// Collects one MPA frame from a stream that may be cut anywhere.
class FrameCollector {
 public:
  explicit FrameCollector(wire::MpaFrameKind kind) : kind_(kind) {}
  FrameCollector(FrameCollector&&) = default;
  FrameCollector& operator=(FrameCollector&&) = default;

  /// Takes what belongs to the frame and nothing behind it; returns how many bytes that was.
  std::size_t feed(Bytes bytes);
  /// The whole frame, once it is here. Its private data points into this object.
  [[nodiscard]] const std::optional<wire::MpaFrame>& frame() const { return frame_; }
  [[nodiscard]] SetupError error() const { return error_; }
  [[nodiscard]] bool done() const { return frame_.has_value() || error_ != SetupError::kNone; }

 private:
  wire::MpaFrameKind kind_;
  std::vector<std::byte> received_;
  std::optional<wire::MpaFrame> frame_;
  SetupError error_ = SetupError::kNone;
};

/// Active side. After construction drain take_transmit(), then feed the peer's bytes.
class Initiator {
 public:
  Initiator(const Offer& offer, Bytes private_data);

  /// Bytes to put on the stream now; empty when none. The caller sends them all, in order.
  [[nodiscard]] std::vector<std::byte> take_transmit();
  /// Feeds stream bytes; returns how many were used. What follows the reply belongs to the FPDU
  /// stream and is never consumed.
  std::size_t on_bytes(Bytes bytes);

  [[nodiscard]] SetupState state() const { return state_; }
  [[nodiscard]] SetupError error() const { return error_; }
  /// Valid once established.
  [[nodiscard]] const Agreement& agreement() const { return agreement_; }
  /// The reply's private data, of an acceptance or a rejection.
  [[nodiscard]] Bytes private_data() const { return private_data_; }

 private:
  void on_reply(const wire::MpaFrame& reply);
  void agree_depths(const wire::MpaEnhanced& theirs);
  void agree_rtr(const wire::MpaEnhanced& theirs);
  void fail(SetupError error);

  Offer offer_;
  SetupState state_ = SetupState::kWaiting;
  SetupError error_ = SetupError::kNone;
  Agreement agreement_;
  std::vector<std::byte> transmit_;
  FrameCollector collector_{wire::MpaFrameKind::kReply};
  std::vector<std::byte> private_data_;
};

/// Passive side. Feed bytes until kRequested, then accept() or reject(), then drain transmit().
class Responder {
 public:
  Responder() = default;

  /// As Initiator::on_bytes. Bytes after the request are not consumed.
  std::size_t on_bytes(Bytes bytes);
  /// Valid in kRequested.
  [[nodiscard]] const Request& request() const { return request_; }

  /// Answers. `offer.ird`/`ord` are the answering program's wishes; the agreement is bounded by the
  /// request. Afterwards kEstablished, or kFailed when the CRC policies cannot meet (a rejection is
  /// then what take_transmit() gives).
  void accept(const Offer& offer, Bytes private_data);
  void reject(Bytes private_data);
  [[nodiscard]] std::vector<std::byte> take_transmit();

  [[nodiscard]] SetupState state() const { return state_; }
  [[nodiscard]] SetupError error() const { return error_; }
  [[nodiscard]] const Agreement& agreement() const { return agreement_; }

 private:
  void on_request(const wire::MpaFrame& frame);
  void agree_on(const Offer& offer);
  void agree_depths(const Offer& offer);
  void fail(SetupError error);

  SetupState state_ = SetupState::kWaiting;
  SetupError error_ = SetupError::kNone;
  Request request_;
  Agreement agreement_;
  std::vector<std::byte> transmit_;
  FrameCollector collector_{wire::MpaFrameKind::kRequest};
};

}  // namespace airdma::mpa
