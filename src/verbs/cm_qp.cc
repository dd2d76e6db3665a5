// SPDX-License-Identifier: MIT
// Queue pairs of an id, with the completion queues and channels it makes for them.
#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "verbs/api.h"
#include "verbs/cm_api.h"
#include "verbs/cm_ib.h"
#include "verbs/cm_state.h"
#include "verbs/internal.h"

namespace airdma::cm {
namespace {

constexpr model::AccessMask kPeerAccess =
    model::kAccessRemoteWrite | model::kAccessRemoteRead | model::kAccessRemoteAtomic;

/// What create_qp makes and destroy_qp takes away.
struct Parts {
  ibv_comp_channel* send_channel = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_comp_channel* receive_channel = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_qp* qp = nullptr;
};

void destroy(const Parts& parts) {
  // Failures are about objects that the program destroyed itself.
  [[maybe_unused]] Status status;
  if (parts.qp != nullptr) status = verbs::destroy_qp(parts.qp);
  if (parts.send_cq != nullptr) status = verbs::destroy_cq(parts.send_cq);
  if (parts.receive_cq != nullptr) status = verbs::destroy_cq(parts.receive_cq);
  if (parts.send_channel != nullptr) status = verbs::destroy_comp_channel(parts.send_channel);
  if (parts.receive_channel != nullptr) {
    status = verbs::destroy_comp_channel(parts.receive_channel);
  }
}

/// A CQ with a channel of its own and the id as context, as rdma_get_send_comp() expects.
Status make_cq(rdma_cm_id* id, std::uint32_t work_requests, ibv_comp_channel*& channel,
               ibv_cq*& cq) {
  auto made_channel = verbs::create_comp_channel(id->verbs);
  if (!made_channel) return std::unexpected(made_channel.error());
  channel = *made_channel;
  const int entries = static_cast<int>(std::clamp<std::uint32_t>(work_requests, 1, 1u << 30));
  auto made = verbs::create_cq(id->verbs, entries, id, channel, 0);
  if (!made) return std::unexpected(made.error());
  cq = *made;
  return {};
}

/// How many receives may complete at a time.
std::uint32_t receives(const ibv_qp_init_attr_ex& attr) {
  ibv_srq_attr shared{};
  if (attr.srq == nullptr || !verbs::query_srq(attr.srq, &shared)) return attr.cap.max_recv_wr;
  return std::max(attr.cap.max_recv_wr, shared.max_wr);
}

ibv_qp_init_attr_ex extended(const ibv_qp_init_attr& attr, ibv_pd* pd) {
  ibv_qp_init_attr_ex result{};
  result.qp_context = attr.qp_context;
  result.send_cq = attr.send_cq;
  result.recv_cq = attr.recv_cq;
  result.srq = attr.srq;
  result.cap = attr.cap;
  result.qp_type = attr.qp_type;
  result.sq_sig_all = attr.sq_sig_all;
  result.comp_mask = IBV_QP_INIT_ATTR_PD;
  result.pd = pd;
  return result;
}

/// What the program may have left out at the end, because its headers are older, is not read.
ibv_qp_init_attr_ex copy_of(const ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t kOldest = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
  const bool oldest = (attr.comp_mask & ~kOldest) == 0;
  ibv_qp_init_attr_ex copy{};
  std::memcpy(&copy, &attr, oldest ? offsetof(ibv_qp_init_attr_ex, create_flags) : sizeof copy);
  return copy;
}

bool of_xrc(ibv_qp_type type) { return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV; }

/// The target of an XRC connection has its receives in a domain: the device's own by default.
Status name_xrc_domain(const Device& device, ibv_qp_init_attr_ex& attr) {
  if (attr.qp_type != IBV_QPT_XRC_RECV) return {};
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && attr.xrcd != nullptr) return {};
  auto domain = xrc_domain_of(device);
  if (!domain) return std::unexpected(domain.error());
  attr.xrcd = *domain;
  attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  return {};
}

Status make_parts(rdma_cm_id* id, ibv_qp_init_attr_ex& attr, Parts& parts) {
  if (attr.send_cq == nullptr && attr.qp_type != IBV_QPT_XRC_RECV) {
    auto made = make_cq(id, attr.cap.max_send_wr, parts.send_channel, parts.send_cq);
    if (!made) return made;
    attr.send_cq = parts.send_cq;
  }
  if (attr.srq == nullptr && !of_xrc(attr.qp_type)) attr.srq = id->srq;
  if (attr.recv_cq == nullptr && !of_xrc(attr.qp_type)) {
    auto made = make_cq(id, receives(attr), parts.receive_channel, parts.receive_cq);
    if (!made) return made;
    attr.recv_cq = parts.receive_cq;
  }
  auto qp = verbs::create_qp_ex(id->verbs, &attr);
  if (!qp) return std::unexpected(qp.error());
  parts.qp = *qp;
  if (attr.qp_type == IBV_QPT_UD) return start_datagrams(parts.qp, kDefaultQkey);
  return verbs::init_queue_pair(parts.qp, kPeerAccess);
}

/// What an XRC shared receive queue needs and the program left out: a domain, and where its
/// receives complete, which then is the id's.
Status fill_xrc(Id& id, ibv_srq_init_attr_ex& attr) {
  const bool typed = (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  if (!typed || attr.srq_type != IBV_SRQT_XRC) return {};
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr) {
    auto domain = xrc_domain_of(*id.device);
    if (!domain) return std::unexpected(domain.error());
    attr.xrcd = *domain;
    attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
  }
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0 && attr.cq != nullptr) return {};
  if (id.pub.recv_cq == nullptr) {
    auto made = make_cq(&id.pub, attr.attr.max_wr, id.pub.recv_cq_channel, id.pub.recv_cq);
    if (!made) return made;
  }
  attr.cq = id.pub.recv_cq;
  attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
  return {};
}

void publish(rdma_cm_id& id, const Parts& parts) {
  id.qp = parts.qp;
  id.send_cq = parts.send_cq;
  id.send_cq_channel = parts.send_channel;
  if (parts.receive_cq == nullptr) return;  // an XRC shared receive queue may have made one
  id.recv_cq = parts.receive_cq;
  id.recv_cq_channel = parts.receive_channel;
}

Parts withdraw(rdma_cm_id& id) {
  return {.send_channel = std::exchange(id.send_cq_channel, nullptr),
          .send_cq = std::exchange(id.send_cq, nullptr),
          .receive_channel = std::exchange(id.recv_cq_channel, nullptr),
          .receive_cq = std::exchange(id.recv_cq, nullptr),
          .qp = std::exchange(id.qp, nullptr)};
}

}  // namespace

Status create_qp(rdma_cm_id* handle, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (attr == nullptr) return fail(EINVAL);
  ibv_qp_init_attr_ex wanted = extended(*attr, pd);
  auto made = create_qp_ex(handle, &wanted);
  if (!made) return made;
  attr->cap = wanted.cap;
  attr->send_cq = wanted.send_cq;
  attr->recv_cq = wanted.recv_cq;
  attr->srq = wanted.srq;
  return {};
}

Status create_qp_ex(rdma_cm_id* handle, ibv_qp_init_attr_ex* attr) {
  if (attr == nullptr) return fail(EINVAL);
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || id->pub.verbs == nullptr || id->pub.qp != nullptr) return fail(EINVAL);
  if (id->datagram() != (attr->qp_type == IBV_QPT_UD)) return fail(EINVAL);
  ibv_qp_init_attr_ex granted = copy_of(*attr);
  const bool names_pd = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 && attr->pd != nullptr;
  granted.pd = names_pd ? attr->pd : id->pub.pd;
  granted.comp_mask |= IBV_QP_INIT_ATTR_PD;
  if (granted.pd == nullptr || granted.pd->context != id->pub.verbs) return fail(EINVAL);
  if (auto named = name_xrc_domain(*id->device, granted); !named) return named;
  Parts parts;
  if (auto made = make_parts(&id->pub, granted, parts); !made) {
    destroy(parts);
    return made;
  }
  attr->comp_mask = granted.comp_mask;
  attr->pd = granted.pd;
  attr->cap = granted.cap;
  attr->send_cq = granted.send_cq;
  attr->recv_cq = granted.recv_cq;
  attr->srq = granted.srq;
  publish(id->pub, parts);
  if (id->state == IdState::kRequested) note_handover();
  return {};
}

void destroy_qp(rdma_cm_id* handle) {
  Parts parts;
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr || id->pub.qp == nullptr) return;
    kind_of(*id).lose_queue_pair(*id);
    detach_groups(*id);
    parts = withdraw(id->pub);
  }
  destroy(parts);  // may wait for acknowledgements
}

Status create_srq(rdma_cm_id* handle, ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (attr == nullptr) return fail(EINVAL);
  ibv_srq_init_attr_ex wanted{};
  wanted.srq_context = attr->srq_context;
  wanted.attr = attr->attr;
  wanted.pd = pd;
  if (pd != nullptr) wanted.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  {
    std::lock_guard lock(control().mutex);
    const Id* id = find_id(handle);
    if (id == nullptr) return fail(EINVAL);
    if (id->pub.qp_type == IBV_QPT_XRC_RECV) {
      wanted.srq_type = IBV_SRQT_XRC;
      wanted.comp_mask |= IBV_SRQ_INIT_ATTR_TYPE;
    }
  }
  auto made = create_srq_ex(handle, &wanted);
  if (made) attr->attr = wanted.attr;
  return made;
}

Status create_srq_ex(rdma_cm_id* handle, ibv_srq_init_attr_ex* attr) {
  std::lock_guard lock(control().mutex);
  Id* id = find_id(handle);
  if (id == nullptr || id->pub.verbs == nullptr || id->pub.srq != nullptr) return fail(EINVAL);
  if (attr == nullptr) return fail(EINVAL);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->pd = id->pub.pd;
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  }
  if (auto filled = fill_xrc(*id, *attr); !filled) return filled;
  auto srq = verbs::create_srq_ex(id->pub.verbs, attr);
  if (!srq) return std::unexpected(srq.error());
  id->pub.srq = *srq;
  return {};
}

void destroy_srq(rdma_cm_id* handle) {
  ibv_srq* srq = nullptr;
  {
    std::lock_guard lock(control().mutex);
    Id* id = find_id(handle);
    if (id == nullptr) return;
    srq = std::exchange(id->pub.srq, nullptr);
  }
  if (srq != nullptr) [[maybe_unused]]
    const auto status = verbs::destroy_srq(srq);
}

Status init_qp_attr(rdma_cm_id* handle, ibv_qp_attr* attr, int* attr_mask) {
  if (attr == nullptr || attr_mask == nullptr) return fail(EINVAL);
  std::lock_guard lock(control().mutex);
  const Id* id = find_id(handle);
  if (id == nullptr || id->pub.verbs == nullptr) return fail(EINVAL);
  return kind_of(*id).init_qp_attr(*id, *attr, *attr_mask);
}

// MPA carries no vendor options: the peer's are none, and ours stay here.
Status set_local_ece(rdma_cm_id* handle, ibv_ece* ece) {
  std::lock_guard lock(control().mutex);
  const Id* id = find_id(handle);
  const bool usable = id != nullptr && id->pub.qp == nullptr && ece != nullptr;
  if (!usable || ece->vendor_id == 0 || ece->options == 0) return fail(EINVAL);
  return {};
}

Status get_remote_ece(rdma_cm_id* handle, ibv_ece* ece) {
  std::lock_guard lock(control().mutex);
  const Id* id = find_id(handle);
  if (id == nullptr || id->pub.qp != nullptr || ece == nullptr) return fail(EINVAL);
  *ece = {};
  return {};
}

}  // namespace airdma::cm
