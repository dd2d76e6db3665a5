// SPDX-License-Identifier: MIT
// A context on the loopback device and short ways to make objects on it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "verbs/api.h"
#include "verbs/state.h"

namespace airdma::verbs {

/// errno of an outcome; 0 for success.
template <class Outcome>
int error_of(const Outcome& outcome) {
  return outcome ? 0 : outcome.error().code;
}

/// Bits that are no value of the enumeration, as programs may have them in a struct.
template <class Enum>
void set_raw(Enum& field, int value) {
  std::memcpy(&field, &value, sizeof field);
}

class VerbsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto list = get_device_list(nullptr);
    ASSERT_TRUE(list);
    for (ibv_device** device = *list; *device != nullptr; ++device) {
      if (std::strcmp((*device)->name, "iwarp_lo") == 0) device_ = *device;
    }
    free_device_list(*list);
    ASSERT_NE(device_, nullptr) << "the loopback interface is down";
    context_ = *open_device(device_);
    pd_ = *alloc_pd(context_);
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    EXPECT_EQ(error_of(close_device(context_)), 0);
  }

  ibv_cq* make_cq(int entries, ibv_comp_channel* channel = nullptr) {
    return *create_cq(context_, entries, nullptr, channel, 0);
  }
  static ibv_qp_init_attr wanted(ibv_cq* cq) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
    return attr;
  }
  ibv_qp* make_qp(ibv_cq* cq) {
    ibv_qp_init_attr attr = wanted(cq);
    return *create_qp(pd_, &attr);
  }
  static int to_init(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    return error_of(
        modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  }
  static int to_state(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return error_of(modify_qp(qp, &attr, IBV_QP_STATE));
  }
  static ibv_qp_state state_of(ibv_qp* qp) {
    ibv_qp_attr attr{};
    EXPECT_EQ(error_of(query_qp(qp, &attr, IBV_QP_STATE, nullptr)), 0);
    return attr.qp_state;
  }
  static int receive(ibv_qp* qp, uint64_t id) {
    ibv_recv_wr wr{};
    wr.wr_id = id;
    ibv_recv_wr* bad = nullptr;
    return post_recv(qp, &wr, &bad);
  }
  /// Everything that is on the queue.
  static std::vector<ibv_wc> drain(ibv_cq* cq) {
    std::vector<ibv_wc> all;
    ibv_wc wc{};
    while (poll_cq(cq, 1, &wc) == 1) all.push_back(wc);
    return all;
  }

  ibv_device* device_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
};

}  // namespace airdma::verbs
