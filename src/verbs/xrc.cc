// SPDX-License-Identifier: MIT
// XRC domains, and what belongs to them: targets that several handles name, numbers of shared
// receive queues.
// Limit: a domain that processes open by the same file is shared by the handles of one process;
// each process has shared receive queues and targets of its own in it.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <mutex>

#include "verbs/api.h"
#include "verbs/queue_pair.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kKnownParts = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
constexpr std::uint32_t kOpenParts =
    IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;
constexpr int kNoFile = -1;

/// The domain of a file, or a new one. ENOENT, EEXIST as open(2) has them.
Result<std::shared_ptr<runtime::XrcDomain>> find_domain(State& all,
                                                        const ibv_xrcd_init_attr& attr) {
  if (attr.fd == kNoFile) {
    if ((attr.oflags & O_CREAT) == 0) return fail(EINVAL);
    return std::make_shared<runtime::XrcDomain>();
  }
  struct stat file{};
  if (::fstat(attr.fd, &file) < 0) return fail(errno, "fstat");
  auto& known = all.xrc_files[{file.st_dev, file.st_ino}];
  auto domain = known.lock();
  if (domain == nullptr && (attr.oflags & O_CREAT) == 0) return fail(ENOENT);
  if (domain != nullptr && (attr.oflags & O_EXCL) != 0) return fail(EINVAL);
  if (domain == nullptr) known = domain = std::make_shared<runtime::XrcDomain>();
  return domain;
}

}  // namespace

Result<ibv_xrcd*> open_xrcd(ibv_context* handle, ibv_xrcd_init_attr* attr) {
  const Context* known = find_object(handle);
  if (known == nullptr || attr == nullptr) return fail(EINVAL);
  if (!known->device->roce()) return fail(EOPNOTSUPP);
  if (attr->comp_mask != kKnownParts) return fail(EINVAL);
  if ((attr->oflags & ~(O_CREAT | O_EXCL)) != 0) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Context* context = all.contexts.find(handle);
  if (context == nullptr) return fail(EINVAL);
  auto domain = find_domain(all, *attr);
  if (!domain) return std::unexpected(domain.error());
  Xrcd* xrcd = all.xrcds.create();
  if (xrcd == nullptr) return fail(ENOMEM);
  xrcd->context = context;
  xrcd->domain = std::move(*domain);
  xrcd->pub.context = handle;
  return &xrcd->pub;
}

bool tear_down(Xrcd& xrcd) {
  State& all = state();
  std::lock_guard lock(all.control);
  if (xrcd.users != 0) return false;
  all.xrcds.destroy(&xrcd);
  std::erase_if(all.xrc_files, [](const auto& file) { return file.second.expired(); });
  return true;
}

Status close_xrcd(ibv_xrcd* handle) {
  Xrcd* xrcd = find_object(handle);
  if (xrcd == nullptr) return fail(EINVAL);
  return tear_down(*xrcd) ? Status{} : fail(EBUSY);
}

Status get_srq_num(ibv_srq* handle, uint32_t* srq_num) {
  const Srq* srq = find_object(handle);
  if (srq == nullptr || srq_num == nullptr) return fail(EINVAL);
  if (srq->xrcd == nullptr) return fail(srq->context->device->roce() ? EINVAL : EOPNOTSUPP);
  *srq_num = srq->number.value();
  return {};
}

Result<ibv_qp*> open_qp(ibv_context* handle, ibv_qp_open_attr* attr) {
  const Context* known = find_object(handle);
  if (known == nullptr || attr == nullptr) return fail(EINVAL);
  if (!known->device->roce()) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & ~kOpenParts) != 0) return fail(EINVAL);
  constexpr std::uint32_t kNeeded = kOpenParts & ~std::uint32_t{IBV_QP_OPEN_ATTR_CONTEXT};
  if ((attr->comp_mask & kNeeded) != kNeeded) return fail(EINVAL);
  if (attr->qp_type != IBV_QPT_XRC_RECV) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Context* context = all.contexts.find(handle);
  Xrcd* xrcd = all.xrcds.find(attr->xrcd);
  const auto target = all.xrc_targets.find(attr->qp_num);
  if (context == nullptr || xrcd == nullptr || target == all.xrc_targets.end()) return fail(EINVAL);
  if (target->second.domain != xrcd->domain) return fail(EINVAL);
  const bool named = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0;
  return add_target_handle(all, *context, *xrcd, Qpn(attr->qp_num),
                           named ? attr->qp_context : nullptr);
}

}  // namespace airdma::verbs
