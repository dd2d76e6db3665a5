// SPDX-License-Identifier: MIT
#include "verbs/strings.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

#include "verbs/cm_api.h"

namespace airdma::verbs {
namespace {

// A C program's value, which may lie outside the enumeration: static_cast would be undefined.
template <class Enum>
Enum as(int value) {
  return std::bit_cast<Enum>(value);
}

TEST(Strings, AreTheOnesProgramsParse) {
  EXPECT_STREQ(wc_status_str(IBV_WC_SUCCESS), "success");
  EXPECT_STREQ(wc_status_str(IBV_WC_LOC_LEN_ERR), "local length error");
  EXPECT_STREQ(wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error");
  EXPECT_STREQ(wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE), "TM software rendezvous");
  EXPECT_STREQ(node_type_str(IBV_NODE_RNIC), "iWARP NIC");
  EXPECT_STREQ(port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(event_type_str(IBV_EVENT_GID_CHANGE), "port: GID table changed");
}

TEST(Strings, OfValuesOutsideAreNeverNull) {
  for (const int value : {-2, -1, 24, 1000}) {
    EXPECT_STREQ(wc_status_str(as<ibv_wc_status>(value)), "unknown") << value;
    EXPECT_STREQ(event_type_str(as<ibv_event_type>(value)), "unknown") << value;
    EXPECT_STREQ(port_state_str(as<ibv_port_state>(value)), "unknown") << value;
    EXPECT_STREQ(node_type_str(as<ibv_node_type>(value)), "unknown") << value;
  }
}

TEST(Strings, OfDifferentValuesDiffer) {
  std::set<std::string> seen;
  for (int value = IBV_WC_SUCCESS; value <= IBV_WC_TM_RNDV_INCOMPLETE; ++value) {
    EXPECT_TRUE(seen.insert(wc_status_str(as<ibv_wc_status>(value))).second) << value;
  }
  for (int value = IBV_EVENT_CQ_ERR; value <= IBV_EVENT_WQ_FATAL; ++value) {
    EXPECT_TRUE(seen.insert(event_type_str(as<ibv_event_type>(value))).second) << value;
  }
}

TEST(Strings, OfCmEventsAreTheirConstants) {
  EXPECT_STREQ(cm::event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(cm::event_str(RDMA_CM_EVENT_DISCONNECTED), "RDMA_CM_EVENT_DISCONNECTED");
  EXPECT_STREQ(cm::event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
  EXPECT_STREQ(cm::event_str(as<rdma_cm_event_type>(-1)), "UNKNOWN EVENT");
  EXPECT_STREQ(cm::event_str(as<rdma_cm_event_type>(16)), "UNKNOWN EVENT");
}

TEST(Rates, ConvertBothWays) {
  for (int value = IBV_RATE_2_5_GBPS; value <= IBV_RATE_1200_GBPS; ++value) {
    const auto rate = as<ibv_rate>(value);
    EXPECT_EQ(mbps_to_rate(rate_to_mbps(rate)), rate) << value;
    if (rate_to_mult(rate) > 0) {
      EXPECT_EQ(mult_to_rate(rate_to_mult(rate)), rate) << value;
    }
  }
  EXPECT_EQ(rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(rate_to_mult(IBV_RATE_40_GBPS), 16);
}

TEST(Rates, WithoutAnEquivalentAreMinusOneOrMax) {
  EXPECT_EQ(rate_to_mult(IBV_RATE_56_GBPS), -1);
  EXPECT_EQ(rate_to_mbps(IBV_RATE_MAX), -1);
  EXPECT_EQ(rate_to_mbps(as<ibv_rate>(99)), -1);
  EXPECT_EQ(mult_to_rate(-1), IBV_RATE_MAX);
  EXPECT_EQ(mult_to_rate(3), IBV_RATE_MAX);
  EXPECT_EQ(mbps_to_rate(2501), IBV_RATE_MAX);
}

}  // namespace
}  // namespace airdma::verbs
