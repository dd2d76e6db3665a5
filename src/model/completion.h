// SPDX-License-Identifier: MIT
// What a queue pair reports: completions and asynchronous events, as data.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace airdma::model {

/// Values are those of enum ibv_wc_status.
enum class WcStatus : std::uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalProtectionError = 4,
  kFlushError = 5,
  kMwBindError = 6,
  kBadResponse = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kFatal = 19,
  kGeneralError = 21,
};

/// Values are those of enum ibv_wc_opcode.
enum class WcOpcode : std::uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInvalidate = 6,
  kReceive = 128,
  kReceiveRdmaWithImm = 129,
};

/// Values are those of enum ibv_wc_flags.
inline constexpr std::uint32_t kWcWithGrh = 1u << 0;
inline constexpr std::uint32_t kWcWithImmediate = 1u << 1;
inline constexpr std::uint32_t kWcWithInvalidate = 1u << 3;
// And above them the service level that ibv_wc has, shifted. Of a datagram over Ethernet it says
// what the packet's header is (annex A17, 17.4.5.1; the values are those that network cards give):
// programs look there to know how to read the first 40 bytes.
inline constexpr std::uint32_t kWcFlags = 0xffffff;
inline constexpr unsigned kWcServiceLevelShift = 24;
inline constexpr std::uint32_t kWcUdpOverIpv4 = 0xau << kWcServiceLevelShift;
inline constexpr std::uint32_t kWcUdpOverIpv6 = 0x9u << kWcServiceLevelShift;

/// One completion queue entry.
struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  bool receive = false;    // belongs to the receive CQ
  bool solicited = false;  // the sender asked for a solicited event, or the status is an error
  std::uint32_t byte_len = 0;
  std::uint32_t immediate = 0;  // immediate data in network order, or the invalidated key
  std::uint32_t flags = 0;      // kWc*, with the service level
  std::uint32_t vendor_error = 0;
  Qpn qpn{};
  Qpn source_qpn{};  // of a datagram
  Srqn srqn{};       // XRC: the shared receive queue it came from, whose CQ it goes to
};

/// Affiliated asynchronous events of a queue pair; values are those of enum ibv_event_type.
enum class QpEvent : std::uint8_t {
  kFatal = 1,
  kRequestError = 2,
  kAccessError = 3,
  kCommunicationEstablished = 4,
  kSqDrained = 5,
  kLastWqeReached = 16,
};

}  // namespace airdma::model
