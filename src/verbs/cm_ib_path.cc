// SPDX-License-Identifier: MIT
// Paths of RoCE devices, and the attributes with which a connection moves its queue pair.
#include <endian.h>
#include <errno.h>

#include <cstring>
#include <random>

#include "verbs/api.h"
#include "verbs/cm_ib.h"
#include "verbs/gid_table.h"

namespace airdma::cm {
namespace {

constexpr std::uint8_t kHopLimit = 64;
/// 0.64 ms: what a peer waits when a receive was not posted yet. The kernel's RDMA CM leaves it at
/// 0, which means 655 ms.
constexpr std::uint8_t kMinRnrTimer = 12;
constexpr int kPeerAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool reliable(ibv_qp_type type) { return type != IBV_QPT_UC; }

// XRC has each half of a connection in a queue pair of its own.
bool sends(ibv_qp_type type) { return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND; }
bool receives(ibv_qp_type type) { return type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV; }

void fill_init(const Id& id, ibv_qp_type type, ibv_qp_attr& attr, int& mask) {
  attr.pkey_index = 0;
  attr.port_num = 1;
  mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (type == IBV_QPT_UD) {
    attr.qkey = kDefaultQkey;
    mask |= IBV_QP_QKEY;
  } else {
    attr.qp_access_flags = id.ib.id != ibcm::CommunicationId{} ? unsigned{kPeerAccess} : 0;
    mask |= IBV_QP_ACCESS_FLAGS;
  }
}

Status fill_rtr(const Id& id, ibv_qp_type type, ibv_qp_attr& attr, int& mask) {
  const auto path = ah_attr_of(id, id.ib.path);
  if (!path) return std::unexpected(path.error());
  attr.ah_attr = *path;
  attr.path_mtu = static_cast<ibv_mtu>(id.ib.path_mtu);
  attr.dest_qp_num = id.ib.remote_qpn.value();
  attr.rq_psn = id.ib.rq_psn.value();
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (!receives(type)) return {};
  attr.max_dest_rd_atomic = id.ib.responder_resources;
  attr.min_rnr_timer = kMinRnrTimer;
  mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return {};
}

void fill_rts(const Id& id, ibv_qp_type type, ibv_qp_attr& attr, int& mask) {
  attr.sq_psn = id.ib.sq_psn.value();
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (!reliable(type)) return;
  attr.timeout = id.ib.ack_timeout;
  mask |= IBV_QP_TIMEOUT;
  if (!sends(type)) return;
  attr.retry_cnt = id.ib.retry_count;
  attr.rnr_retry = id.ib.rnr_retry_count;
  attr.max_rd_atomic = id.ib.initiator_depth;
  mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

Status move(const Id& id, ibv_qp_state to) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = to;
  ibv_qp* qp = id.pub.qp;
  if (auto filled = fill_attributes(id, qp->qp_type, attr, mask); !filled) return filled;
  attr.qp_state = to;
  return verbs::modify_qp(qp, &attr, mask);
}

}  // namespace

Psn random_psn() {
  static thread_local std::minstd_rand random{std::random_device{}()};
  return Psn{static_cast<std::uint32_t>(random())};
}

model::AddressVector path_of(const Id& id) {
  const io::Address source = source_of(id).unmapped();
  const io::Address destination = destination_of(id).unmapped();
  model::AddressVector path;
  path.source.bytes = source.gid();
  path.destination.bytes = destination.gid();
  path.traffic_class = static_cast<std::uint8_t>(id.options.type_of_service.value_or(0));
  path.hop_limit = kHopLimit;
  if (const auto interface = id.device->device->look()) path.interface_index = interface->index;
  return path;
}

void show_path(Id& id) {
  constexpr std::uint8_t kExactly = 2;          // of a selector: no less and no more
  constexpr std::uint8_t kPacketLifeTime = 16;  // 4.096 us * 2^16
  const model::AddressVector path = path_of(id);
  ibv_sa_path_rec& record = id.path_record;
  record = {};
  std::memcpy(record.sgid.raw, path.source.bytes.data(), sizeof record.sgid.raw);
  std::memcpy(record.dgid.raw, path.destination.bytes.data(), sizeof record.dgid.raw);
  record.hop_limit = path.hop_limit;
  record.traffic_class = path.traffic_class;
  record.sl = path.service_level;
  record.reversible = 1;
  record.numb_path = 1;
  record.pkey = htobe16(verbs::kDefaultPkey);
  record.mtu_selector = record.rate_selector = record.packet_life_time_selector = kExactly;
  record.mtu = static_cast<std::uint8_t>(verbs::active_mtu(*id.device->device));
  record.rate = static_cast<std::uint8_t>(IBV_RATE_10_GBPS);
  record.packet_life_time = kPacketLifeTime;
  id.pub.route.path_rec = &record;
  id.pub.route.num_paths = 1;
}

io::Address address_of(const model::Gid& gid, std::uint32_t scope) {
  if (gid.is_v4()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    const auto bytes = gid.v4();
    std::memcpy(&v4.sin_addr, bytes.data(), bytes.size());
    return io::Address::from(reinterpret_cast<const sockaddr*>(&v4)).value_or(io::Address{});
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  std::memcpy(&v6.sin6_addr, gid.bytes.data(), gid.bytes.size());
  if (gid.is_link_local()) v6.sin6_scope_id = scope;
  return io::Address::from(reinterpret_cast<const sockaddr*>(&v6)).value_or(io::Address{});
}

Result<ibv_ah_attr> ah_attr_of(const Id& id, const model::AddressVector& path) {
  const auto index = verbs::gid_index(*id.device->device, path.source);
  if (!index) return fail(ENODEV);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.sl = path.service_level;
  attr.grh.sgid_index = static_cast<std::uint8_t>(*index);
  attr.grh.hop_limit = path.hop_limit;
  attr.grh.traffic_class = path.traffic_class;
  attr.grh.flow_label = path.flow_label;
  std::memcpy(attr.grh.dgid.raw, path.destination.bytes.data(), sizeof attr.grh.dgid.raw);
  return attr;
}

Status fill_attributes(const Id& id, ibv_qp_type type, ibv_qp_attr& attr, int& mask) {
  switch (attr.qp_state) {
    case IBV_QPS_INIT:
      fill_init(id, type, attr, mask);
      return {};
    case IBV_QPS_RTR:
      if (type == IBV_QPT_UD || id.ib.remote_qpn == Qpn{}) return fail(EINVAL);
      return fill_rtr(id, type, attr, mask);
    case IBV_QPS_RTS:
      if (type == IBV_QPT_UD || id.ib.remote_qpn == Qpn{}) return fail(EINVAL);
      fill_rts(id, type, attr, mask);
      return {};
    default:
      return fail(EINVAL);
  }
}

Status start_queue_pair(Id& id) {
  if (auto moved = move(id, IBV_QPS_RTR); !moved) return moved;
  return move(id, IBV_QPS_RTS);
}

Status start_datagrams(ibv_qp* qp, std::uint32_t qkey) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey;
  const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  if (auto moved = verbs::modify_qp(qp, &attr, init); !moved) return moved;
  attr.qp_state = IBV_QPS_RTR;
  if (auto moved = verbs::modify_qp(qp, &attr, IBV_QP_STATE); !moved) return moved;
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 0;
  return verbs::modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

void flush_queue_pair(Id& id) {
  if (id.pub.qp == nullptr) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  // The program may have destroyed it.
  [[maybe_unused]] const auto moved = verbs::modify_qp(id.pub.qp, &attr, IBV_QP_STATE);
}

}  // namespace airdma::cm
