// SPDX-License-Identifier: MIT
#include "verbs/strings.h"

#include <array>
#include <cstddef>

#include "verbs/cm_api.h"

namespace airdma::verbs {
namespace {

// Callers are C programs: the value behind the enumeration's type may be anything.
template <size_t kCount>
const char* name_of(const std::array<const char*, kCount>& names, int value,
                    const char* otherwise) noexcept {
  if (value < 0 || static_cast<size_t>(value) >= kCount) return otherwise;
  return names[static_cast<size_t>(value)];
}

constexpr auto kWcStatus = std::to_array<const char*>({
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
});
static_assert(kWcStatus.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr auto kNodeType = std::to_array<const char*>({
    "unknown",
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
});
static_assert(kNodeType.size() == IBV_NODE_UNSPECIFIED + 1);

constexpr auto kPortState = std::to_array<const char*>({
    "no state change (NOP)",
    "down",
    "init",
    "armed",
    "active",
    "active defer",
});
static_assert(kPortState.size() == IBV_PORT_ACTIVE_DEFER + 1);

constexpr auto kEventType = std::to_array<const char*>({
    "completion queue error",
    "queue pair: fatal error",
    "queue pair: invalid request from the peer",
    "queue pair: access violation by the peer",
    "queue pair: communication established",
    "queue pair: send queue drained",
    "queue pair: path migrated",
    "queue pair: path migration failed",
    "device: fatal error",
    "port active",
    "port inactive",
    "port: LID changed",
    "port: P_Key table changed",
    "port: subnet manager changed",
    "shared receive queue: error",
    "shared receive queue: limit reached",
    "queue pair: last WQE reached",
    "port: client reregistration wanted",
    "port: GID table changed",
    "work queue: fatal error",
});
static_assert(kEventType.size() == IBV_EVENT_WQ_FATAL + 1);

struct Rate {
  ibv_rate rate;
  int mult;  // of 2.5 Gbit/s; -1: the conversion functions know none
  int mbps;
};

// Speeds are signalling rates times lanes; those above 10 Gbit/s a lane are not round.
// clang-format off
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS,    1,    2500},
    {IBV_RATE_5_GBPS,      2,    5000},
    {IBV_RATE_10_GBPS,     4,   10000},
    {IBV_RATE_14_GBPS,    -1,   14062},
    {IBV_RATE_20_GBPS,     8,   20000},
    {IBV_RATE_25_GBPS,    -1,   25781},
    {IBV_RATE_28_GBPS,    11,   28125},
    {IBV_RATE_30_GBPS,    12,   30000},
    {IBV_RATE_40_GBPS,    16,   40000},
    {IBV_RATE_50_GBPS,    20,   53125},
    {IBV_RATE_56_GBPS,    -1,   56250},
    {IBV_RATE_60_GBPS,    24,   60000},
    {IBV_RATE_80_GBPS,    32,   80000},
    {IBV_RATE_100_GBPS,   -1,  103125},
    {IBV_RATE_112_GBPS,   -1,  112500},
    {IBV_RATE_120_GBPS,   48,  120000},
    {IBV_RATE_168_GBPS,   -1,  168750},
    {IBV_RATE_200_GBPS,   -1,  206250},
    {IBV_RATE_300_GBPS,   -1,  309375},
    {IBV_RATE_400_GBPS,  160,  425000},
    {IBV_RATE_600_GBPS,  240,  637500},
    {IBV_RATE_800_GBPS,  320,  850000},
    {IBV_RATE_1200_GBPS, 480, 1275000},
};
// clang-format on

}  // namespace

const char* wc_status_str(ibv_wc_status status) noexcept {
  return name_of(kWcStatus, status, "unknown");
}

const char* node_type_str(ibv_node_type type) noexcept {
  return name_of(kNodeType, type, "unknown");
}

const char* port_state_str(ibv_port_state state) noexcept {
  return name_of(kPortState, static_cast<int>(state), "unknown");
}

const char* event_type_str(ibv_event_type event) noexcept {
  return name_of(kEventType, static_cast<int>(event), "unknown");
}

int rate_to_mult(ibv_rate rate) noexcept {
  for (const Rate& row : kRates) {
    if (row.rate == rate) return row.mult;
  }
  return -1;
}

int rate_to_mbps(ibv_rate rate) noexcept {
  for (const Rate& row : kRates) {
    if (row.rate == rate) return row.mbps;
  }
  return -1;
}

ibv_rate mult_to_rate(int mult) noexcept {
  for (const Rate& row : kRates) {
    if (row.mult == mult && mult > 0) return row.rate;
  }
  return IBV_RATE_MAX;
}

ibv_rate mbps_to_rate(int mbps) noexcept {
  for (const Rate& row : kRates) {
    if (row.mbps == mbps) return row.rate;
  }
  return IBV_RATE_MAX;
}

}  // namespace airdma::verbs

namespace airdma::cm {
namespace {

constexpr auto kCmEvent = std::to_array<const char*>({
    "RDMA_CM_EVENT_ADDR_RESOLVED",
    "RDMA_CM_EVENT_ADDR_ERROR",
    "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",
    "RDMA_CM_EVENT_CONNECT_REQUEST",
    "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",
    "RDMA_CM_EVENT_UNREACHABLE",
    "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",
    "RDMA_CM_EVENT_DISCONNECTED",
    "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN",
    "RDMA_CM_EVENT_MULTICAST_ERROR",
    "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",
});
static_assert(kCmEvent.size() == RDMA_CM_EVENT_TIMEWAIT_EXIT + 1);

}  // namespace

const char* event_str(rdma_cm_event_type event) noexcept {
  return verbs::name_of(kCmEvent, static_cast<int>(event), "UNKNOWN EVENT");
}

}  // namespace airdma::cm
