// SPDX-License-Identifier: MIT
#include "verbs/marshal.h"

#include <gtest/gtest.h>

#include <cstring>

namespace airdma::verbs {
namespace {

// Every byte of a struct different from its neighbours, so that no two members look alike.
template <class T>
T counted() {
  T value;
  auto* bytes = reinterpret_cast<unsigned char*>(&value);
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<unsigned char>(i + 1);
  return value;
}

TEST(Marshal, PathRecordSurvivesBothWays) {
  auto kernel = counted<ib_user_path_rec>();
  kernel.mtu = 3;  // one byte in the program's struct
  ibv_sa_path_rec program;
  std::memset(&program, 0, sizeof(program));
  copy_path_rec_from_kern(program, kernel);
  EXPECT_EQ(program.mtu, 3);
  EXPECT_EQ(program.dlid, kernel.dlid);
  EXPECT_EQ(program.packet_life_time, kernel.packet_life_time);
  ib_user_path_rec back;
  std::memset(&back, 0, sizeof(back));
  copy_path_rec_to_kern(back, program);
  EXPECT_EQ(std::memcmp(&back, &kernel, offsetof(ib_user_path_rec, preference) + 1), 0);
}

TEST(Marshal, AddressAttributesArriveWhole) {
  const auto kernel = counted<ib_uverbs_ah_attr>();
  ibv_ah_attr program;
  std::memset(&program, 0, sizeof(program));
  copy_ah_attr_from_kern(program, kernel);
  EXPECT_EQ(std::memcmp(program.grh.dgid.raw, kernel.grh.dgid, sizeof(kernel.grh.dgid)), 0);
  EXPECT_EQ(program.grh.flow_label, kernel.grh.flow_label);
  EXPECT_EQ(program.grh.sgid_index, kernel.grh.sgid_index);
  EXPECT_EQ(program.grh.hop_limit, kernel.grh.hop_limit);
  EXPECT_EQ(program.grh.traffic_class, kernel.grh.traffic_class);
  EXPECT_EQ(program.dlid, kernel.dlid);
  EXPECT_EQ(program.sl, kernel.sl);
  EXPECT_EQ(program.src_path_bits, kernel.src_path_bits);
  EXPECT_EQ(program.static_rate, kernel.static_rate);
  EXPECT_EQ(program.is_global, kernel.is_global);
  EXPECT_EQ(program.port_num, kernel.port_num);
}

TEST(Marshal, QueuePairAttributesArriveAndTheRateLimitStays) {
  auto kernel = counted<ib_uverbs_qp_attr>();
  kernel.qp_state = IBV_QPS_RTS;
  kernel.cur_qp_state = IBV_QPS_RTR;
  kernel.path_mtu = IBV_MTU_2048;
  kernel.path_mig_state = IBV_MIG_ARMED;
  ibv_qp_attr program;
  std::memset(&program, 0, sizeof(program));
  program.rate_limit = 77;
  copy_qp_attr_from_kern(program, kernel);
  EXPECT_EQ(program.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(program.cur_qp_state, IBV_QPS_RTR);
  EXPECT_EQ(program.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(program.path_mig_state, IBV_MIG_ARMED);
  EXPECT_EQ(program.dest_qp_num, kernel.dest_qp_num);
  EXPECT_EQ(program.cap.max_inline_data, kernel.max_inline_data);
  EXPECT_EQ(program.alt_ah_attr.port_num, kernel.alt_ah_attr.port_num);
  EXPECT_EQ(program.alt_pkey_index, kernel.alt_pkey_index);
  EXPECT_EQ(program.max_dest_rd_atomic, kernel.max_dest_rd_atomic);
  EXPECT_EQ(program.min_rnr_timer, kernel.min_rnr_timer);
  EXPECT_EQ(program.rnr_retry, kernel.rnr_retry);
  EXPECT_EQ(program.alt_timeout, kernel.alt_timeout);
  EXPECT_EQ(program.rate_limit, 77U);
}

}  // namespace
}  // namespace airdma::verbs
