// SPDX-License-Identifier: MIT
// What the programs of this folder say again and again.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstdint>

namespace small {

/// An RC queue pair of `depth` requests each way, one piece of memory each.
inline ibv_qp_init_attr rc_attributes(ibv_cq* cq, std::uint32_t depth) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = depth;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  return attr;
}

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline ibv_sge piece(ibv_mr* mr, void* at, std::size_t bytes) {
  return {reinterpret_cast<std::uint64_t>(at), static_cast<std::uint32_t>(bytes), mr->lkey};
}

/// 0 or errno.
inline int post_receive(ibv_qp* qp, ibv_mr* mr, void* at, std::size_t bytes, std::uint64_t wr_id) {
  ibv_sge sge = piece(mr, at, bytes);
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &wr, &bad);
}

/// A signaled SEND. 0 or errno.
inline int post_send(ibv_qp* qp, ibv_mr* mr, void* at, std::size_t bytes, std::uint64_t wr_id) {
  ibv_sge sge = piece(mr, at, bytes);
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

}  // namespace small
