// SPDX-License-Identifier: MIT
// States of a queue pair and the one table of its legal transitions: which there are, what each
// must name and what it may name, by type of queue pair (IBTA vol. 1, 10.3.1 and table 91 of
// 11.2.5.2, with the attributes that the Linux RDMA stack lets through). ibv_modify_qp, the
// validation layer and the test that walks all pairs read the same data.
#pragma once

#include <cstdint>
#include <span>

namespace airdma::model {

/// Values are those of enum ibv_qp_state.
enum class QpState : std::uint8_t {
  kReset = 0,
  kInit = 1,
  kRtr = 2,
  kRts = 3,
  kSqd = 4,
  kSqe = 5,
  kError = 6
};
inline constexpr unsigned kQpStates = 7;

/// Values are those of enum ibv_qp_type.
enum class QpType : std::uint8_t {
  kRc = 2,
  kUc = 3,
  kUd = 4,
  kRawPacket = 8,
  kXrcSend = 9,
  kXrcReceive = 10
};

/// Set of attributes; bits are those of enum ibv_qp_attr_mask.
using QpAttrMask = std::uint32_t;
inline constexpr QpAttrMask kQpAttrState = 1u << 0;
inline constexpr QpAttrMask kQpAttrCurrentState = 1u << 1;
inline constexpr QpAttrMask kQpAttrSqdNotify = 1u << 2;
inline constexpr QpAttrMask kQpAttrAccess = 1u << 3;
inline constexpr QpAttrMask kQpAttrPkeyIndex = 1u << 4;
inline constexpr QpAttrMask kQpAttrPort = 1u << 5;
inline constexpr QpAttrMask kQpAttrQkey = 1u << 6;
inline constexpr QpAttrMask kQpAttrAv = 1u << 7;
inline constexpr QpAttrMask kQpAttrPathMtu = 1u << 8;
inline constexpr QpAttrMask kQpAttrTimeout = 1u << 9;
inline constexpr QpAttrMask kQpAttrRetryCount = 1u << 10;
inline constexpr QpAttrMask kQpAttrRnrRetry = 1u << 11;
inline constexpr QpAttrMask kQpAttrRqPsn = 1u << 12;
inline constexpr QpAttrMask kQpAttrMaxRdAtomic = 1u << 13;
inline constexpr QpAttrMask kQpAttrAltPath = 1u << 14;
inline constexpr QpAttrMask kQpAttrMinRnrTimer = 1u << 15;
inline constexpr QpAttrMask kQpAttrSqPsn = 1u << 16;
inline constexpr QpAttrMask kQpAttrMaxDestRdAtomic = 1u << 17;
inline constexpr QpAttrMask kQpAttrPathMigState = 1u << 18;
inline constexpr QpAttrMask kQpAttrDestQpn = 1u << 20;
inline constexpr QpAttrMask kQpAttrRateLimit = 1u << 25;

/// One legal transition of one type of queue pair. kQpAttrState is always allowed and not listed.
struct QpTransition {
  QpState from;
  QpState to;
  QpType type;
  QpAttrMask required;
  QpAttrMask optional;
};

/// The transitions that need or take attributes of their own, for walks over all of them. Besides
/// these, every state may go to RESET and every one but RESET to ERR, with no attribute at all.
std::span<const QpTransition> qp_transitions();

enum class TransitionFault : std::uint8_t {
  kNone,
  kIllegal,      // no such transition
  kMissing,      // a required attribute is not in the mask
  kSuperfluous,  // the mask has what this transition does not take
};

/// Whether a queue pair of `type` may go `from` -> `to` with the attributes of `mask`.
/// CUR_STATE's value is the caller's to compare.
TransitionFault check_transition(QpType type, QpState from, QpState to, QpAttrMask mask);

}  // namespace airdma::model
