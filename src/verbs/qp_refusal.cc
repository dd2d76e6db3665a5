// SPDX-License-Identifier: MIT
#include "verbs/qp_refusal.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "base/log.h"

namespace airdma::verbs {
namespace {

struct Name {
  std::uint32_t bit;
  const char* text;
};
constexpr std::array kNames = {Name{IBV_QP_STATE, "STATE"},
                               Name{IBV_QP_CUR_STATE, "CUR_STATE"},
                               Name{IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"},
                               Name{IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
                               Name{IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
                               Name{IBV_QP_PORT, "PORT"},
                               Name{IBV_QP_QKEY, "QKEY"},
                               Name{IBV_QP_AV, "AV"},
                               Name{IBV_QP_PATH_MTU, "PATH_MTU"},
                               Name{IBV_QP_TIMEOUT, "TIMEOUT"},
                               Name{IBV_QP_RETRY_CNT, "RETRY_CNT"},
                               Name{IBV_QP_RNR_RETRY, "RNR_RETRY"},
                               Name{IBV_QP_RQ_PSN, "RQ_PSN"},
                               Name{IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
                               Name{IBV_QP_ALT_PATH, "ALT_PATH"},
                               Name{IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
                               Name{IBV_QP_SQ_PSN, "SQ_PSN"},
                               Name{IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
                               Name{IBV_QP_PATH_MIG_STATE, "PATH_MIG_STATE"},
                               Name{IBV_QP_CAP, "CAP"},
                               Name{IBV_QP_DEST_QPN, "DEST_QPN"},
                               Name{IBV_QP_RATE_LIMIT, "RATE_LIMIT"}};

/// "IBV_QP_PORT IBV_QP_QKEY"
std::string names_of(std::uint32_t mask) {
  std::string text;
  for (; mask != 0; mask &= mask - 1) {
    const std::uint32_t bit = 1u << std::countr_zero(mask);
    const auto* const found = std::ranges::find(kNames, bit, &Name::bit);
    if (!text.empty()) text += ' ';
    text += found != kNames.end() ? std::string("IBV_QP_") + found->text
                                  : "bit " + std::to_string(std::countr_zero(bit));
  }
  return text;
}

const char* name_of(model::QpState state) {
  constexpr std::array<const char*, model::kQpStates> kStates = {"RESET", "INIT", "RTR", "RTS",
                                                                 "SQD",   "SQE",  "ERR"};
  return kStates[static_cast<unsigned>(state)];
}

std::string reason(const model::QpTransition& move, std::uint32_t mask) {
  const std::uint32_t named = mask & ~model::kQpAttrState;
  const std::uint32_t missing = move.required & ~named;
  const std::uint32_t superfluous = named & ~(move.required | move.optional);
  if (missing != 0) return "lacks " + names_of(missing);
  if (superfluous != 0) return "does not take " + names_of(superfluous);
  return "the device cannot do it with these values: " + names_of(named);
}

}  // namespace

void log_bad_value(Qpn qpn, std::uint32_t bit) {
  AIRDMA_LOG_DEBUG("ibv_modify_qp: qp 0x%x: %s has a value that it cannot have", qpn.value(),
                   names_of(bit).c_str());
}

void log_refused_move(Qpn qpn, model::QpType type, model::QpState from, model::QpState to,
                      std::uint32_t mask) {
  if (!log_enabled(LogLevel::kDebug)) return;
  std::string why = "no such move";
  for (const model::QpTransition& move : model::qp_transitions()) {
    if (move.type == type && move.from == from && move.to == to) why = reason(move, mask);
  }
  AIRDMA_LOG_DEBUG("ibv_modify_qp: qp 0x%x: %s to %s: %s", qpn.value(), name_of(from), name_of(to),
                   why.c_str());
}

}  // namespace airdma::verbs
