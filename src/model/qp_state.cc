// SPDX-License-Identifier: MIT
#include "model/qp_state.h"

#include <array>

namespace airdma::model {
namespace {

using enum QpState;
using enum QpType;

constexpr QpAttrMask kCurrent = kQpAttrCurrentState;
constexpr QpAttrMask kAccess = kQpAttrAccess;
constexpr QpAttrMask kPkey = kQpAttrPkeyIndex;
constexpr QpAttrMask kPort = kQpAttrPort;
constexpr QpAttrMask kQkey = kQpAttrQkey;
constexpr QpAttrMask kPaths = kQpAttrAltPath | kQpAttrPathMigState;
constexpr QpAttrMask kConnect = kQpAttrAv | kQpAttrPathMtu | kQpAttrDestQpn | kQpAttrRqPsn;
constexpr QpAttrMask kResponder = kQpAttrMaxDestRdAtomic | kQpAttrMinRnrTimer;
constexpr QpAttrMask kRetries = kQpAttrTimeout | kQpAttrRetryCount | kQpAttrRnrRetry;
constexpr QpAttrMask kNotify = kQpAttrSqdNotify;
constexpr QpAttrMask kRnr = kQpAttrMinRnrTimer;

// clang-format off
constexpr std::array kTransitions = {
  //            from    to      type          required                             optional
  QpTransition{kReset, kInit,  kRc,          kPkey | kPort | kAccess,              0},
  QpTransition{kReset, kInit,  kUc,          kPkey | kPort | kAccess,              0},
  QpTransition{kReset, kInit,  kUd,          kPkey | kPort | kQkey,                0},
  QpTransition{kReset, kInit,  kRawPacket,   kPort,                                0},
  QpTransition{kReset, kInit,  kXrcSend,     kPkey | kPort | kAccess,              0},
  QpTransition{kReset, kInit,  kXrcReceive,  kPkey | kPort | kAccess,              0},

  QpTransition{kInit,  kInit,  kRc,          0,                                    kPkey | kPort | kAccess},
  QpTransition{kInit,  kInit,  kUc,          0,                                    kPkey | kPort | kAccess},
  QpTransition{kInit,  kInit,  kUd,          0,                                    kPkey | kPort | kQkey},
  QpTransition{kInit,  kInit,  kXrcSend,     0,                                    kPkey | kPort | kAccess},
  QpTransition{kInit,  kInit,  kXrcReceive,  0,                                    kPkey | kPort | kAccess},

  QpTransition{kInit,  kRtr,   kRc,          kConnect | kResponder,                kQpAttrAltPath | kAccess | kPkey},
  QpTransition{kInit,  kRtr,   kUc,          kConnect,                             kQpAttrAltPath | kAccess | kPkey},
  QpTransition{kInit,  kRtr,   kUd,          0,                                    kPkey | kQkey},
  QpTransition{kInit,  kRtr,   kRawPacket,   0,                                    0},
  QpTransition{kInit,  kRtr,   kXrcSend,     kConnect,                             kQpAttrAltPath | kAccess | kPkey},
  QpTransition{kInit,  kRtr,   kXrcReceive,  kConnect | kResponder,                kQpAttrAltPath | kAccess | kPkey},

  QpTransition{kRtr,   kRts,   kRc,          kRetries | kQpAttrSqPsn | kQpAttrMaxRdAtomic, kCurrent | kPaths | kAccess | kRnr},
  QpTransition{kRtr,   kRts,   kUc,          kQpAttrSqPsn,                         kCurrent | kPaths | kAccess},
  QpTransition{kRtr,   kRts,   kUd,          kQpAttrSqPsn,                         kCurrent | kQkey},
  QpTransition{kRtr,   kRts,   kRawPacket,   0,                                    kQpAttrRateLimit},
  QpTransition{kRtr,   kRts,   kXrcSend,     kRetries | kQpAttrSqPsn | kQpAttrMaxRdAtomic, kCurrent | kPaths | kAccess},
  QpTransition{kRtr,   kRts,   kXrcReceive,  kQpAttrTimeout | kQpAttrSqPsn,        kCurrent | kPaths | kAccess | kRnr},

  QpTransition{kRts,   kRts,   kRc,          0,                                    kCurrent | kPaths | kAccess | kRnr},
  QpTransition{kRts,   kRts,   kUc,          0,                                    kCurrent | kPaths | kAccess},
  QpTransition{kRts,   kRts,   kUd,          0,                                    kCurrent | kQkey},
  QpTransition{kRts,   kRts,   kRawPacket,   0,                                    kQpAttrRateLimit},
  QpTransition{kRts,   kRts,   kXrcSend,     0,                                    kCurrent | kPaths | kAccess},
  QpTransition{kRts,   kRts,   kXrcReceive,  0,                                    kCurrent | kPaths | kAccess | kRnr},

  QpTransition{kRts,   kSqd,   kRc,          0,                                    kNotify},
  QpTransition{kRts,   kSqd,   kUc,          0,                                    kNotify},
  QpTransition{kRts,   kSqd,   kUd,          0,                                    kNotify},
  QpTransition{kRts,   kSqd,   kXrcSend,     0,                                    kNotify},
  QpTransition{kRts,   kSqd,   kXrcReceive,  0,                                    kNotify},

  QpTransition{kSqd,   kRts,   kRc,          0,                                    kCurrent | kPaths | kAccess | kRnr},
  QpTransition{kSqd,   kRts,   kUc,          0,                                    kCurrent | kPaths | kAccess},
  QpTransition{kSqd,   kRts,   kUd,          0,                                    kCurrent | kQkey},
  QpTransition{kSqd,   kRts,   kXrcSend,     0,                                    kCurrent | kPaths | kAccess},
  QpTransition{kSqd,   kRts,   kXrcReceive,  0,                                    kCurrent | kPaths | kAccess | kRnr},

  QpTransition{kSqd,   kSqd,   kRc,          0, kPort | kQpAttrAv | kRetries | kQpAttrMaxRdAtomic | kResponder | kPaths | kAccess | kPkey},
  QpTransition{kSqd,   kSqd,   kUc,          0, kQpAttrAv | kPaths | kAccess | kPkey},
  QpTransition{kSqd,   kSqd,   kUd,          0, kPkey | kQkey},
  QpTransition{kSqd,   kSqd,   kXrcSend,     0, kPort | kQpAttrAv | kRetries | kQpAttrMaxRdAtomic | kPaths | kAccess | kPkey},
  QpTransition{kSqd,   kSqd,   kXrcReceive,  0, kPort | kQpAttrAv | kQpAttrTimeout | kResponder | kPaths | kAccess | kPkey},

  QpTransition{kSqe,   kRts,   kUc,          0,                                    kCurrent | kAccess},
  QpTransition{kSqe,   kRts,   kUd,          0,                                    kCurrent | kQkey},
};
// clang-format on

}  // namespace

std::span<const QpTransition> qp_transitions() { return kTransitions; }

TransitionFault check_transition(QpType type, QpState from, QpState to, QpAttrMask mask) {
  const QpAttrMask named = mask & ~kQpAttrState;
  if (to == kReset || (to == kError && from != kReset)) {
    return named == 0 ? TransitionFault::kNone : TransitionFault::kSuperfluous;
  }
  for (const QpTransition& transition : kTransitions) {
    if (transition.from != from || transition.to != to || transition.type != type) continue;
    if ((named & transition.required) != transition.required) return TransitionFault::kMissing;
    if ((named & ~(transition.required | transition.optional)) != 0) {
      return TransitionFault::kSuperfluous;
    }
    return TransitionFault::kNone;
  }
  return TransitionFault::kIllegal;
}

}  // namespace airdma::model
