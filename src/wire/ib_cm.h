// SPDX-License-Identifier: MIT
// The InfiniBand communication manager's messages (IBTA vol. 1, 12.6 to 12.11), as values. Each is
// a management datagram to queue pair 1: REQ, REP and RTU open a connection, DREQ and DREP end it,
// SIDR_REQ and SIDR_REP look up a datagram service. Over RoCE the LIDs say nothing (the kernel
// sends 0xffff in the primary path) and the GIDs are IP addresses (annex A17).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <variant>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/psn.h"
#include "wire/mad.h"

namespace airdma::wire {

/// Names one end of a connection to its communication manager. Each end chooses its own; 0 in a REJ
/// says that there is none.
using CommunicationId = Id<struct CommunicationIdTag>;
/// What a REQ or SIDR_REQ asks for.
using ServiceId = Id<struct ServiceIdTag, std::uint64_t>;
/// GID as it lies in a packet.
using GidBytes = std::array<std::uint8_t, 16>;

// Private data is always as long as its message has room for, zeroes behind what a program gave.
inline constexpr std::size_t kReqPrivateBytes = 92;
inline constexpr std::size_t kMraPrivateBytes = 222;
inline constexpr std::size_t kRejPrivateBytes = 148;
inline constexpr std::size_t kRepPrivateBytes = 196;
inline constexpr std::size_t kRtuPrivateBytes = 224;
inline constexpr std::size_t kDreqPrivateBytes = 220;
inline constexpr std::size_t kDrepPrivateBytes = 224;
inline constexpr std::size_t kSidrReqPrivateBytes = 216;
inline constexpr std::size_t kSidrRepPrivateBytes = 136;
inline constexpr std::size_t kLapPrivateBytes = 168;
inline constexpr std::size_t kAprPrivateBytes = 148;
/// Additional information of REJ, SIDR_REP and APR.
inline constexpr std::size_t kAdditionalInfoBytes = 72;

// Private data and additional information of parsed messages point into the bytes that were parsed.
// For emission they may be shorter than what the message has room for.

/// One of a REQ's two paths. Zeroes are an absent alternate path.
struct CmPath {
  std::uint16_t local_lid = 0;
  std::uint16_t remote_lid = 0;
  GidBytes local_gid{};
  GidBytes remote_gid{};
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint8_t packet_rate = 0;  // 6 bits, an enumeration; the kernel sends what its path has, or 0
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t service_level = 0;  // 4 bits
  bool subnet_local = false;
  std::uint8_t ack_timeout = 0;  // 5 bits: 4.096 us * 2^n
  friend bool operator==(const CmPath&, const CmPath&) = default;
};

/// Transport service type of a REQ, with its extension in the upper bits. Off the wire it may hold
/// any value below 32.
enum class CmTransport : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kXrc = 3 | 1 << 2 };

struct CmReq {
  CommunicationId local_id{};
  ServiceId service_id{};
  std::uint64_t local_ca_guid = 0;
  Qkey local_qkey{};
  Qpn local_qpn{};
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint32_t local_eecn = 0;   // reliable datagrams only
  std::uint32_t remote_eecn = 0;  // reliable datagrams only
  /// How long the receiver of the REQ may take to answer, and how long the sender does: both are
  /// exponents of 5 bits, 4.096 us * 2^n (IBTA vol. 1, 12.7.20 and 21).
  std::uint8_t remote_response_timeout = 0;
  std::uint8_t local_response_timeout = 0;
  CmTransport transport = CmTransport::kRc;
  bool flow_control = false;
  Psn starting_psn{};
  std::uint8_t retry_count = 0;  // 3 bits
  Pkey pkey{};
  std::uint8_t path_mtu = 0;  // 4 bits, an ibv_mtu
  bool rdc_exists = false;
  std::uint8_t rnr_retry_count = 0;  // 3 bits
  std::uint8_t max_cm_retries = 0;   // 4 bits
  bool srq = false;
  CmPath primary{};
  CmPath alternate{};
  Bytes private_data{};
};

/// Which message an MRA or a REJ answers.
enum class CmAnswered : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

/// The message arrived and its answer will take longer.
struct CmMra {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  CmAnswered answered = CmAnswered::kReq;  // kOther: a LAP
  std::uint8_t service_timeout = 0;        // 5 bits, 4.096 us * 2^n
  Bytes private_data{};
};

/// Why a connection is refused (IBTA vol. 1, 12.6.7.2). Off the wire it may hold any value.
enum class CmRejectReason : std::uint16_t {
  kNoQp = 1,
  kNoEec = 2,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupportedRequest = 5,
  kInvalidCommunicationId = 6,
  kInvalidCommunicationInstance = 7,
  kInvalidServiceId = 8,
  kInvalidTransportType = 9,
  kStaleConnection = 10,
  kNoRdc = 11,
  kPrimaryGid = 12,
  kPrimaryLid = 13,
  kPrimaryServiceLevel = 14,
  kPrimaryTrafficClass = 15,
  kPrimaryHopLimit = 16,
  kPrimaryPacketRate = 17,
  kAlternateGid = 18,
  kAlternateLid = 19,
  kAlternateServiceLevel = 20,
  kAlternateTrafficClass = 21,
  kAlternateHopLimit = 22,
  kAlternatePacketRate = 23,
  kPortAndCmRedirection = 24,
  kPortRedirection = 25,
  kInvalidMtu = 26,
  kInsufficientResources = 27,
  kConsumer = 28,
  kRnrRetryCount = 29,
  kDuplicateCommunicationId = 30,
  kInvalidClassVersion = 31,
  kPrimaryFlowLabel = 32,
  kAlternateFlowLabel = 33,
  kVendorOption = 35,  // of the options that an ECE carries
};

struct CmRej {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  CmAnswered answered = CmAnswered::kReq;  // kOther: it answers nothing
  CmRejectReason reason = CmRejectReason::kConsumer;
  Bytes additional{};  // what would have been accepted; at most kAdditionalInfoBytes
  Bytes private_data{};
};

struct CmRep {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  Qkey local_qkey{};
  Qpn local_qpn{};
  std::uint32_t local_eecn = 0;  // 24 bits; the queue pair of an XRC target is here
  Psn starting_psn{};
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;   // 5 bits, 4.096 us * 2^n
  std::uint8_t failover_accepted = 0;  // 2 bits: 0 yes, 1 not supported, 2 refused
  bool flow_control = false;
  std::uint8_t rnr_retry_count = 0;  // 3 bits
  bool srq = false;
  std::uint64_t local_ca_guid = 0;
  Bytes private_data{};
};

struct CmRtu {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  Bytes private_data{};
};

struct CmDreq {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  Qpn remote_qpn{};  // the receiver's
  Bytes private_data{};
};

struct CmDrep {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  Bytes private_data{};
};

struct CmSidrReq {
  CommunicationId request_id{};
  Pkey pkey{};
  ServiceId service_id{};
  Bytes private_data{};
};

/// IBTA vol. 1, 12.11.2. Off the wire it may hold any value.
enum class CmSidrStatus : std::uint8_t {
  kValid = 0,
  kUnsupportedService = 1,
  kRejected = 2,
  kNoQp = 3,
  kRedirect = 4,
  kUnsupportedVersion = 5,
};

struct CmSidrRep {
  CommunicationId request_id{};
  CmSidrStatus status = CmSidrStatus::kValid;
  Qpn qpn{};
  ServiceId service_id{};
  Qkey qkey{};
  Bytes additional{};
  Bytes private_data{};
};

/// Load alternate path. No path is ever migrated here, so that only what an answer needs is read.
struct CmLap {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  Qpn remote_qpn{};
  std::uint8_t remote_response_timeout = 0;
  Bytes private_data{};
};

/// IBTA vol. 1, 12.8.2.1. Off the wire it may hold any value.
enum class CmAprStatus : std::uint8_t {
  kLoaded = 0,
  kInvalidCommunicationId = 1,
  kUnsupported = 2,
  kRejected = 3,
};

struct CmApr {
  CommunicationId local_id{};
  CommunicationId remote_id{};
  CmAprStatus status = CmAprStatus::kUnsupported;
  Bytes additional{};
  Bytes private_data{};
};

using CmMessage = std::variant<CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep, CmSidrReq,
                               CmSidrRep, CmLap, CmApr>;

/// Attribute ids, in the order of CmMessage (IBTA vol. 1, 12.6 to 12.11).
enum class CmAttribute : std::uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
  kLap = 0x19,
  kApr = 0x1a,
};

struct CmMad {
  /// The sender's of the first message of an exchange; answers carry it back.
  std::uint64_t transaction_id = 0;
  CmMessage message;
};
/// Same fields and, filled up with zeroes, the same private data and additional information.
[[nodiscard]] bool operator==(const CmMad& a, const CmMad& b);

enum class CmError : std::uint8_t {
  kWrongLength,        // not kMadBytes
  kNotCm,              // another class, base version or method
  kWrongClassVersion,  // of the class, but not version 2
  kUnknownAttribute,
  kInfoTooLong,  // additional information beyond its field
};

/// Reads one datagram of the communication manager.
[[nodiscard]] std::expected<CmMad, CmError> parse_cm(Bytes mad);

using MadBuffer = std::array<std::byte, kMadBytes>;

/// Writes one. False, with `out` undefined, when private data or additional information is longer
/// than the message has room for.
[[nodiscard]] bool emit_cm(MadBuffer& out, const CmMad& mad);

// What the RDMA CM adds (annex A11, as librdmacm and the kernel use it).

inline constexpr std::size_t kCmaHeaderBytes = 36;

/// Who asks and whom, in front of a REQ's or SIDR_REQ's private data. IPv4 addresses are
/// ::ffff:a.b.c.d here.
struct CmaHeader {
  std::uint16_t source_port = 0;
  GidBytes source{};
  GidBytes destination{};
  friend bool operator==(const CmaHeader&, const CmaHeader&) = default;
};

/// Nothing when it is too short, of another version, or of an address family that is not IP.
[[nodiscard]] std::optional<CmaHeader> parse_cma(Bytes private_data);
/// Both addresses have to be of one family: that of `source`.
void emit_cma(std::array<std::byte, kCmaHeaderBytes>& out, const CmaHeader& header);

/// Service of a port in a port space (RDMA_PS_TCP 0x0106, RDMA_PS_UDP 0x0111, ...).
[[nodiscard]] constexpr ServiceId service_of(std::uint16_t port_space, std::uint16_t port) {
  return ServiceId{std::uint64_t{port_space} << 16 | port};
}
/// Nothing when it is not a service of a port: the upper half must be zero.
struct ServicePort {
  std::uint16_t port_space = 0;
  std::uint16_t port = 0;
  friend bool operator==(const ServicePort&, const ServicePort&) = default;
};
[[nodiscard]] constexpr std::optional<ServicePort> port_of(ServiceId service) {
  if (service.value() >> 32 != 0) return std::nullopt;
  return ServicePort{static_cast<std::uint16_t>(service.value() >> 16),
                     static_cast<std::uint16_t>(service.value())};
}

}  // namespace airdma::wire
