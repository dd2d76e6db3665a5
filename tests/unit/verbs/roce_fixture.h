// SPDX-License-Identifier: MIT
// A context on the loopback interface's RoCEv2 device, and queue pairs of every type that are
// connected with each other over it, by hand as programs without a connection manager do it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/unit/verbs/fixture.h"
#include "verbs/api.h"
#include "verbs/state.h"

namespace airdma::verbs {

inline constexpr std::uint32_t kTestQkey = 0x11;

/// How a queue pair is set up.
struct PathOptions {
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t reads = 4;
  std::uint8_t min_rnr_timer = 12;  // 0.64 ms
  std::uint8_t timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC;
};

class RoceTest : public testing::Test {
 protected:
  static constexpr std::size_t kMemory = 1 << 20;

  /// One end: a queue pair and registered memory.
  struct End {
    ibv_qp* qp = nullptr;
    ibv_cq* cq = nullptr;
    std::vector<std::uint8_t> memory;
    ibv_mr* mr = nullptr;
  };

  void SetUp() override {
    const auto list = get_device_list(nullptr);
    ASSERT_TRUE(list);
    for (ibv_device** device = *list; *device != nullptr; ++device) {
      if (std::strcmp((*device)->name, "roce_lo") == 0) device_ = *device;
    }
    free_device_list(*list);
    ASSERT_NE(device_, nullptr) << "the loopback interface is down";
    context_ = *open_device(device_);
    pd_ = *alloc_pd(context_);
    for (End* end : {&a_, &b_}) {
      end->memory.resize(kMemory);
      end->mr = *reg_mr(pd_, end->memory.data(), kMemory,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC);
      end->cq = *create_cq(context_, 1024, nullptr, nullptr, 0);
    }
  }
  void TearDown() override {
    if (context_ != nullptr) {
      EXPECT_EQ(error_of(close_device(context_)), 0);
    }
  }

  // --- Making ---

  ibv_qp_init_attr wanted(ibv_qp_type type, const End& end, ibv_srq* srq = nullptr) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = end.cq;
    attr.srq = srq;
    attr.qp_type = type;
    attr.cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 256};
    return attr;
  }
  void make(End& end, ibv_qp_type type, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr attr = wanted(type, end, srq);
    const auto qp = create_qp(pd_, &attr);
    ASSERT_TRUE(qp) << qp.error().code;
    end.qp = *qp;
  }
  static ibv_ah_attr path(ibv_context* context, std::uint8_t index) {
    ibv_ah_attr attr{};
    EXPECT_EQ(error_of(query_gid(context, 1, index, &attr.grh.dgid)), 0);
    attr.grh.sgid_index = index;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = 1;
    return attr;
  }
  static int to_init(ibv_qp* qp, const PathOptions& options = {}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = options.access;
    attr.qkey = kTestQkey;
    const int rights = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return error_of(modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | rights));
  }
  int to_rtr(ibv_qp* qp, std::uint32_t peer, const PathOptions& options = {}) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = path(context_, gid_index_);
    attr.path_mtu = options.mtu;
    attr.dest_qp_num = peer;
    attr.rq_psn = 0xfffffa;  // it wraps soon
    attr.max_dest_rd_atomic = options.reads;
    attr.min_rnr_timer = options.min_rnr_timer;
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD) {
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV) {
      mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    return error_of(modify_qp(qp, &attr, mask));
  }
  static int to_rts(ibv_qp* qp, const PathOptions& options = {}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retry_count;
    attr.rnr_retry = options.rnr_retry;
    attr.sq_psn = 0xfffffa;
    attr.max_rd_atomic = options.reads;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND) {
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    if (qp->qp_type == IBV_QPT_XRC_RECV) mask |= IBV_QP_TIMEOUT;
    return error_of(modify_qp(qp, &attr, mask));
  }
  static int to_state(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return error_of(modify_qp(qp, &attr, IBV_QP_STATE));
  }
  void connect(ibv_qp* one, ibv_qp* other, const PathOptions& options = {}) const {
    for (ibv_qp* qp : {one, other}) ASSERT_EQ(to_init(qp, options), 0);
    ASSERT_EQ(to_rtr(one, other->qp_num, options), 0);
    ASSERT_EQ(to_rtr(other, one->qp_num, options), 0);
    for (ibv_qp* qp : {one, other}) ASSERT_EQ(to_rts(qp, options), 0);
  }
  void make_pair(ibv_qp_type type, const PathOptions& options = {}, ibv_srq* srq = nullptr) {
    ASSERT_NO_FATAL_FAILURE(make(a_, type));
    ASSERT_NO_FATAL_FAILURE(make(b_, type, srq));
    ASSERT_NO_FATAL_FAILURE(connect(a_.qp, b_.qp, options));
  }

  // --- Posting ---

  static ibv_sge piece(const End& end, std::size_t offset, std::uint32_t bytes) {
    return {.addr = reinterpret_cast<std::uintptr_t>(end.memory.data()) + offset,
            .length = bytes,
            .lkey = end.mr->lkey};
  }
  static int post(ibv_qp* qp, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return post_send(qp, &wr, &bad);
  }
  static ibv_send_wr request(std::uint64_t id, ibv_wr_opcode opcode, ibv_sge& sge) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return wr;
  }
  static int receive(ibv_qp* qp, std::uint64_t id, ibv_sge sge) {
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return post_recv(qp, &wr, &bad);
  }
  static int receive(ibv_srq* srq, std::uint64_t id, ibv_sge sge) {
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return post_srq_recv(srq, &wr, &bad);
  }
  /// SEND of the first bytes of a_'s memory.
  int send(std::uint64_t id, std::uint32_t bytes) {
    ibv_sge sge = piece(a_, 0, bytes);
    return post(a_.qp, request(id, IBV_WR_SEND, sge));
  }
  /// A one-sided operation between the beginnings of the two memories.
  int remote(std::uint64_t id, ibv_wr_opcode opcode, std::uint32_t bytes, std::uint32_t rkey) {
    ibv_sge sge = piece(a_, 0, bytes);
    ibv_send_wr wr = request(id, opcode, sge);
    wr.wr.rdma = {.remote_addr = reinterpret_cast<std::uintptr_t>(b_.memory.data()), .rkey = rkey};
    return post(a_.qp, wr);
  }

  // --- Waiting ---

  /// The next completion; GENERAL_ERR with an impossible id when none comes for long.
  static ibv_wc next(ibv_cq* cq) {
    ibv_wc wc{};
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < limit) {
      if (poll_cq(cq, 1, &wc) == 1) return wc;
    }
    wc.wr_id = ~std::uint64_t{0};
    wc.status = IBV_WC_GENERAL_ERR;
    return wc;
  }
  static void expect(ibv_cq* cq, std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS) {
    const ibv_wc wc = next(cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, status) << ibv_wc_status{wc.status};
  }
  static ibv_qp_state state_of(ibv_qp* qp) {
    ibv_qp_attr attr{};
    EXPECT_EQ(error_of(query_qp(qp, &attr, IBV_QP_STATE, nullptr)), 0);
    return attr.qp_state;
  }
  void expect_event(ibv_event_type type, const ibv_qp* qp) const {
    pollfd entry{context_->async_fd, POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 20'000), 1);
    ibv_async_event event{};
    ASSERT_TRUE(get_async_event(context_, &event));
    EXPECT_EQ(event.event_type, type);
    EXPECT_EQ(event.element.qp, qp);
    ack_async_event(&event);
  }
  static void fill(End& end, std::uint8_t seed) {
    for (std::size_t i = 0; i < end.memory.size(); ++i) {
      end.memory[i] = static_cast<std::uint8_t>(seed + i * 7 + (i >> 8));
    }
  }
  [[nodiscard]] bool same(std::size_t bytes, std::size_t offset = 0) const {
    return std::memcmp(a_.memory.data(), b_.memory.data() + offset, bytes) == 0;
  }

  ibv_device* device_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::uint8_t gid_index_ = 0;
  End a_;
  End b_;
};

}  // namespace airdma::verbs
