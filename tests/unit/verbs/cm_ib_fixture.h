// SPDX-License-Identifier: MIT
// What tests of the connection manager over RoCE devices share.
#pragma once

#include <stdlib.h>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {

class CmIbFixture : public CmTest {
 protected:
  void SetUp() override {
    ::unsetenv("AIRDMA_CM");
    control().has_roce.reset();
  }
  void TearDown() override {
    CmTest::TearDown();
    control().has_roce.reset();
  }
  static bool on_roce(const rdma_cm_id* id) {
    return id->verbs->device->transport_type == IBV_TRANSPORT_IB;
  }
  static ibv_qp_attr attributes(ibv_qp* qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_TRUE(verbs::query_qp(qp, &attr, 0, &init));
    return attr;
  }
};

}  // namespace airdma::cm
