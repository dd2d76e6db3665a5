// SPDX-License-Identifier: MIT
// ibv_create_qp_ex: which of the extended attributes this device can mean anything with.
#include <cerrno>
#include <cstddef>

#include "verbs/api.h"
#include "verbs/post_ex.h"
#include "verbs/queue_pair.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kKnownAttributes =
    IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH |
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
// What raw packets can have.
constexpr std::uint32_t kOfOtherTypes = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;

// The extended attributes begin with the plain ones.
static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) == offsetof(ibv_qp_init_attr, sq_sig_all));
static_assert(offsetof(ibv_qp_init_attr_ex, cap) == offsetof(ibv_qp_init_attr, cap));

Status check(const ibv_qp_init_attr_ex& attr, const Device& device) {
  const auto has = [&](std::uint32_t bits) { return (attr.comp_mask & bits) != 0; };
  if (has(~kKnownAttributes)) return fail(EINVAL);
  if (has(kOfOtherTypes)) return fail(EOPNOTSUPP);
  if (has(IBV_QP_INIT_ATTR_XRCD) && !device.roce()) return fail(EOPNOTSUPP);
  const bool target = device.roce() && attr.qp_type == IBV_QPT_XRC_RECV;
  if (!has(target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD)) return fail(EINVAL);
  if (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0) return fail(EOPNOTSUPP);
  if (has(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr.max_tso_header != 0) return fail(EOPNOTSUPP);
  if (has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && !knows_send_ops(attr.qp_type, attr.send_ops_flags)) {
    return fail(EOPNOTSUPP);
  }
  return {};
}

}  // namespace

Result<ibv_qp*> create_qp_ex(ibv_context* handle, ibv_qp_init_attr_ex* attr) {
  const Context* context = find_object(handle);
  if (context == nullptr || attr == nullptr) return fail(EINVAL);
  if (Status legal = check(*attr, *context->device); !legal) return std::unexpected(legal.error());
  const bool target = context->device->roce() && attr->qp_type == IBV_QPT_XRC_RECV;
  ibv_qp_init_attr& plain = *reinterpret_cast<ibv_qp_init_attr*>(attr);
  if (target) {
    const Xrcd* xrcd = find_object(attr->xrcd);
    if (xrcd == nullptr || xrcd->context != context) return fail(EINVAL);
    return make_queue_pair(nullptr, attr->xrcd, plain);
  }
  const Pd* pd = find_object(attr->pd);
  if (pd == nullptr || pd->pub.context != handle) return fail(EINVAL);
  auto qp = create_qp(attr->pd, &plain);
  if (qp && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    extend(*find_object(*qp), attr->send_ops_flags);
  }
  return qp;
}

}  // namespace airdma::verbs
