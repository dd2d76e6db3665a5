// SPDX-License-Identifier: MIT
// Memory windows between two ends: bound, used, invalidated from either side.
#include <cerrno>
#include <thread>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

/// The passive side owns memory and windows into it; the client uses them.
class WindowTest : public CmTest {
 protected:
  void SetUp() override {
    establish_connection();
    constexpr int kRegion = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    region_ = verbs::reg_mr(passive_->pd, there_, sizeof there_, kRegion).value();
    local_ = verbs::reg_mr(client_->pd, here_, sizeof here_, IBV_ACCESS_LOCAL_WRITE).value();
  }
  void TearDown() override {
    if (window_ != nullptr) {
      EXPECT_TRUE(verbs::dealloc_mw(window_));
    }
    EXPECT_TRUE(verbs::dereg_mr(region_));
    EXPECT_TRUE(verbs::dereg_mr(local_));
    CmTest::TearDown();
  }

  static ibv_wc take(ibv_cq* cq) {
    ibv_wc wc{};
    while (verbs::poll_cq(cq, 1, &wc) == 0) std::this_thread::yield();
    return wc;
  }
  static int post(ibv_qp* qp, ibv_send_wr wr) {
    wr.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return verbs::post_send(qp, &wr, &bad);
  }
  ibv_mw_bind_info range(unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) {
    return {region_, reinterpret_cast<std::uint64_t>(there_) + 64, 64, access};
  }
  /// Type 2, by a work request of the owner.
  ibv_wc bind2(std::uint32_t key, ibv_mw_bind_info info) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {.mw = window_, .rkey = key, .bind_info = info};
    EXPECT_EQ(post(passive_->qp, wr), 0);
    return take(passive_->send_cq);
  }
  ibv_wc bind1(std::uint64_t length) {
    ibv_mw_bind bind{};
    bind.wr_id = 77;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = range();
    bind.bind_info.length = length;
    EXPECT_TRUE(verbs::bind_mw(passive_->qp, window_, &bind));
    return take(passive_->send_cq);
  }
  ibv_wc access(ibv_wr_opcode opcode, std::uint32_t key, std::size_t offset = 64) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(here_), 16, local_->lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {.remote_addr = reinterpret_cast<std::uint64_t>(there_) + offset, .rkey = key};
    EXPECT_EQ(post(client_->qp, wr), 0);
    return take(client_->send_cq);
  }
  ibv_wc invalidate(ibv_qp* qp, ibv_cq* cq, std::uint32_t key, ibv_wr_opcode opcode) {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.invalidate_rkey = key;
    EXPECT_EQ(post(qp, wr), 0);
    return take(cq);
  }
  void receive() {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_recv(passive_->qp, &wr, &bad), 0);
  }
  void expect_end() {
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  }

  std::byte there_[4096]{};
  std::byte here_[4096]{};
  ibv_mr* region_ = nullptr;
  ibv_mr* local_ = nullptr;
  ibv_mw* window_ = nullptr;
};

class Type2 : public WindowTest {
 protected:
  void SetUp() override {
    WindowTest::SetUp();
    window_ = verbs::alloc_mw(passive_->pd, IBV_MW_TYPE_2).value();
    key_ = ibv_inc_rkey(window_->rkey);
  }
  std::uint32_t key_ = 0;
};

TEST_F(Type2, IsBoundUsedAndInvalidatedByItsOwner) {
  const ibv_wc bound = bind2(key_, range());
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  here_[0] = std::byte{7};
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key_).status, IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, key_).status, IBV_WC_SUCCESS);
  EXPECT_EQ(there_[64], std::byte{7});
  EXPECT_EQ(verbs::dereg_mr(region_).error().code, EBUSY);
  EXPECT_EQ(
      verbs::rereg_mr(region_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0).error().code,
      EBUSY);
  const ibv_wc ended = invalidate(passive_->qp, passive_->send_cq, key_, IBV_WR_LOCAL_INV);
  EXPECT_EQ(ended.status, IBV_WC_SUCCESS);
  EXPECT_EQ(ended.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, key_).status, IBV_WC_REM_ACCESS_ERR);
  expect_end();
}

TEST_F(Type2, IsInvalidatedByThePeer) {
  ASSERT_EQ(bind2(key_, range()).status, IBV_WC_SUCCESS);
  receive();
  EXPECT_EQ(invalidate(client_->qp, client_->send_cq, key_, IBV_WR_SEND_WITH_INV).status,
            IBV_WC_SUCCESS);
  const ibv_wc received = take(passive_->recv_cq);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(received.invalidated_rkey, key_);
  EXPECT_EQ(bind2(ibv_inc_rkey(key_), range()).status, IBV_WC_SUCCESS) << "no longer bound";
  EXPECT_EQ(access(IBV_WR_RDMA_READ, ibv_inc_rkey(key_)).status, IBV_WC_SUCCESS);
}

TEST_F(Type2, APeerCannotInvalidateARegion) {
  receive();
  const ibv_wc sent =
      invalidate(client_->qp, client_->send_cq, region_->rkey, IBV_WR_SEND_WITH_INV);
  const ibv_wc received = take(passive_->recv_cq);
  EXPECT_NE(received.status, IBV_WC_SUCCESS);
  (void)sent;  // TCP may have taken it before the target objected
  expect_end();
}

TEST_F(Type2, InvalidatingWhatIsNoBoundWindowIsAnError) {
  EXPECT_EQ(invalidate(passive_->qp, passive_->send_cq, region_->rkey, IBV_WR_LOCAL_INV).status,
            IBV_WC_MW_BIND_ERR);
  expect_end();
}

TEST_F(Type2, BoundTwiceIsAnError) {
  ASSERT_EQ(bind2(key_, range()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(bind2(ibv_inc_rkey(key_), range()).status, IBV_WC_MW_BIND_ERR);
  expect_end();
}

TEST_F(Type2, LocalWriteIsNoRightOfAWindowAndNoMistake) {
  EXPECT_EQ(bind2(key_, range(IBV_ACCESS_LOCAL_WRITE)).status, IBV_WC_SUCCESS);
}

TEST_F(Type2, RightsThatAWindowCannotGive) {
  EXPECT_EQ(bind2(key_, range(IBV_ACCESS_MW_BIND)).status, IBV_WC_MW_BIND_ERR);
  expect_end();
}

TEST_F(Type2, HandlesAndKeysAreCheckedAtOnce) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw = {.mw = nullptr, .rkey = key_, .bind_info = range()};
  EXPECT_EQ(post(passive_->qp, wr), EINVAL);
  wr.bind_mw = {.mw = window_, .rkey = key_ ^ 0x100, .bind_info = range()};
  EXPECT_EQ(post(passive_->qp, wr), EINVAL);
  wr.bind_mw = {.mw = window_, .rkey = key_, .bind_info = range()};
  wr.bind_mw.bind_info.mr = nullptr;
  EXPECT_EQ(post(passive_->qp, wr), EINVAL);
  ibv_mw_bind bind{};
  bind.bind_info = range();
  EXPECT_EQ(verbs::bind_mw(passive_->qp, window_, &bind).error().code, EINVAL) << "type 2";
  EXPECT_EQ(verbs::alloc_mw(nullptr, IBV_MW_TYPE_2).error().code, EINVAL);
  EXPECT_EQ(verbs::alloc_mw(passive_->pd, static_cast<ibv_mw_type>(3)).error().code, EINVAL);
}

class Type1 : public WindowTest {
 protected:
  void SetUp() override {
    WindowTest::SetUp();
    window_ = verbs::alloc_mw(passive_->pd, IBV_MW_TYPE_1).value();
  }
};

TEST_F(Type1, EveryBindingHasAKeyOfItsOwn) {
  const std::uint32_t before = window_->rkey;
  const ibv_wc bound = bind1(64);
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.wr_id, 77u);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  const std::uint32_t first = window_->rkey;
  EXPECT_NE(first, before);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, first).status, IBV_WC_SUCCESS);
  // A WRITE is complete before it has arrived; what a READ finds behind it has.
  EXPECT_EQ(access(IBV_WR_RDMA_READ, first).status, IBV_WC_SUCCESS);
  EXPECT_EQ(bind1(64).status, IBV_WC_SUCCESS);
  EXPECT_NE(window_->rkey, first);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, window_->rkey).status, IBV_WC_SUCCESS);
  EXPECT_EQ(bind1(0).status, IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, window_->rkey).status, IBV_WC_REM_ACCESS_ERR);
  expect_end();
}

}  // namespace
}  // namespace airdma::cm
