// SPDX-License-Identifier: MIT
#include "model/qp_state.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace airdma::model {
namespace {

constexpr QpType kTypes[] = {QpType::kRc,        QpType::kUc,      QpType::kUd,
                             QpType::kRawPacket, QpType::kXrcSend, QpType::kXrcReceive};
constexpr QpAttrMask kAllBits = (1u << 21) - 1;

QpState state(unsigned value) { return static_cast<QpState>(value); }

/// Lines of the table of one transition; the table may name it once at most.
const QpTransition* find(QpType type, QpState from, QpState to) {
  const QpTransition* found = nullptr;
  for (const QpTransition& line : qp_transitions()) {
    if (line.type != type || line.from != from || line.to != to) continue;
    EXPECT_EQ(found, nullptr) << "named twice";
    found = &line;
  }
  return found;
}

void check_line(const QpTransition& line) {
  const auto check = [&](QpAttrMask mask) {
    return check_transition(line.type, line.from, line.to, mask | kQpAttrState);
  };
  EXPECT_EQ(check(line.required), TransitionFault::kNone);
  EXPECT_EQ(check(line.required | line.optional), TransitionFault::kNone);
  EXPECT_EQ(line.required & line.optional, 0u);
  for (unsigned i = 1; i < 32; ++i) {
    const QpAttrMask bit = 1u << i;
    if ((line.required & bit) != 0) {
      EXPECT_EQ(check(line.required & ~bit), TransitionFault::kMissing) << i;
    } else if ((line.optional & bit) == 0) {
      EXPECT_EQ(check(line.required | bit), TransitionFault::kSuperfluous) << i;
    }
  }
}

TEST(QpStateTable, EveryPairOfEveryType) {
  for (const QpType type : kTypes) {
    for (unsigned from = 0; from < kQpStates; ++from) {
      for (unsigned to = 0; to < kQpStates; ++to) {
        SCOPED_TRACE(testing::Message() << int(type) << ": " << from << " -> " << to);
        const QpTransition* line = find(type, state(from), state(to));
        const bool bare = state(to) == QpState::kReset ||
                          (state(to) == QpState::kError && state(from) != QpState::kReset);
        const auto fault = check_transition(type, state(from), state(to), kQpAttrState);
        if (bare) {
          EXPECT_EQ(line, nullptr);
          EXPECT_EQ(fault, TransitionFault::kNone);
          EXPECT_EQ(check_transition(type, state(from), state(to), kQpAttrState | kQpAttrAccess),
                    TransitionFault::kSuperfluous);
        } else if (line != nullptr) {
          check_line(*line);
        } else {
          EXPECT_EQ(fault, TransitionFault::kIllegal);
          EXPECT_EQ(check_transition(type, state(from), state(to), kAllBits),
                    TransitionFault::kIllegal);
        }
      }
    }
  }
}

// What the kernel's common layer answers for RC with the state alone: 1 goes, 0 is refused.
TEST(QpStateTable, ReliableConnectedMovesWithTheStateAlone) {
  constexpr int kExpected[7][7] = {
      // RESET INIT RTR RTS SQD SQE ERR
      {1, 0, 0, 0, 0, 0, 0},  // RESET
      {1, 1, 0, 0, 0, 0, 1},  // INIT
      {1, 0, 0, 0, 0, 0, 1},  // RTR
      {1, 0, 0, 1, 1, 0, 1},  // RTS
      {1, 0, 0, 1, 1, 0, 1},  // SQD
      {1, 0, 0, 0, 0, 0, 1},  // SQE
      {1, 0, 0, 0, 0, 0, 1},  // ERR
  };
  for (unsigned from = 0; from < kQpStates; ++from) {
    for (unsigned to = 0; to < kQpStates; ++to) {
      const auto fault = check_transition(QpType::kRc, state(from), state(to), kQpAttrState);
      EXPECT_EQ(fault == TransitionFault::kNone, kExpected[from][to] == 1) << from << "->" << to;
    }
  }
}

TEST(QpStateTable, RequiredAttributesOfTheConnectedTypes) {
  using enum QpState;
  const auto required = [](QpType type, QpState from, QpState to) {
    const QpTransition* line = find(type, from, to);
    return line != nullptr ? line->required : ~0u;
  };
  const QpAttrMask init = kQpAttrPkeyIndex | kQpAttrPort | kQpAttrAccess;
  const QpAttrMask rtr = kQpAttrAv | kQpAttrPathMtu | kQpAttrDestQpn | kQpAttrRqPsn;
  EXPECT_EQ(required(QpType::kRc, kReset, kInit), init);
  EXPECT_EQ(required(QpType::kUc, kReset, kInit), init);
  EXPECT_EQ(required(QpType::kRc, kInit, kRtr), rtr | kQpAttrMaxDestRdAtomic | kQpAttrMinRnrTimer);
  EXPECT_EQ(required(QpType::kUc, kInit, kRtr), rtr);
  EXPECT_EQ(required(QpType::kRc, kRtr, kRts), kQpAttrTimeout | kQpAttrRetryCount |
                                                   kQpAttrRnrRetry | kQpAttrSqPsn |
                                                   kQpAttrMaxRdAtomic);
  EXPECT_EQ(required(QpType::kUc, kRtr, kRts), kQpAttrSqPsn);
  EXPECT_EQ(required(QpType::kUd, kReset, kInit), kQpAttrPkeyIndex | kQpAttrPort | kQpAttrQkey);
  EXPECT_EQ(required(QpType::kUd, kRtr, kRts), kQpAttrSqPsn);
}

}  // namespace
}  // namespace airdma::model
