// SPDX-License-Identifier: MIT
// Enhanced connection establishment, which lets the makers of devices agree on options of their
// own, and the order in which a message's bytes are written.
#include <cerrno>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/state.h"

namespace airdma::verbs {

namespace {

/// The one option we have: that the other end is airdma too. Nothing depends on it. Programs (and
/// rdma_set_local_ece) take a device without any for one that cannot be asked.
constexpr std::uint32_t kSameMaker = 1;

}  // namespace

// Another maker's options are not accepted, which is no failure: programs pass on what the peer
// has sent.
Status set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (find_object(qp) == nullptr || ece == nullptr || ece->comp_mask != 0) return fail(EINVAL);
  const std::uint32_t accepted = ece->vendor_id == kVendorId ? ece->options & kSameMaker : 0;
  *ece = {.vendor_id = kVendorId, .options = accepted, .comp_mask = 0};
  return {};
}

Status query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (find_object(qp) == nullptr || ece == nullptr) return fail(EINVAL);
  *ece = {.vendor_id = kVendorId, .options = kSameMaker, .comp_mask = 0};
  return {};
}

// Messages are copied by the kernel and by memcpy(), which may begin anywhere.
bool query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) noexcept { return false; }

}  // namespace airdma::verbs
