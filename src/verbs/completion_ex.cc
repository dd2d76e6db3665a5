// SPDX-License-Identifier: MIT
// Extended completion queues: ibv_create_cq_ex, and the functions that its queues carry for
// ibv_start_poll and ibv_wc_read_*. The completion that is being read is a copy in the queue's
// object, so nothing that happens to its queue pair meanwhile touches it. One thread at a time has
// a batch open; ibv_poll_cq does not care for batches.
#include <cerrno>
#include <limits>

#include "verbs/api.h"
#include "verbs/completion_queue.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint64_t kTimeFlags =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
// Not those of raw packets (CVLAN, FLOW_TAG) and of tag matching.
constexpr std::uint64_t kKnownFields = IBV_WC_STANDARD_FLAGS | kTimeFlags;
constexpr std::uint32_t kKnownAttributes = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
constexpr std::uint32_t kKnownFlags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

Cq* find_extended(const ibv_cq_ex* handle) {
  return find_object(reinterpret_cast<const ibv_cq*>(handle));
}

// The inline functions of <infiniband/verbs.h> have read the handle to come here, so it is memory
// of ours, which stays mapped; a look-up per field would cost more than the field.
const Cq& current_of(const ibv_cq_ex* handle) {
  static_assert(offsetof(Cq, ex) == 0);
  return *reinterpret_cast<const Cq*>(handle);
}

/// Takes the next completion for the batch: 0, ENOENT, or EIO from a queue that was overrun.
int advance(Cq& cq) {
  const int got = cq.queue->poll(1, &cq.current, &cq.current_time);
  if (got == 0) return ENOENT;
  if (got < 0) return EIO;
  cq.ex.wr_id = cq.current.wr_id;
  cq.ex.status = static_cast<ibv_wc_status>(cq.current.status);
  return 0;
}

int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attr) noexcept {
  Cq* cq = find_extended(handle);
  if (cq == nullptr || attr == nullptr || attr->comp_mask != 0) return EINVAL;
  if (!cq->batch.acquire()) return EBUSY;
  const int error = advance(*cq);
  if (error != 0) cq->batch.release();
  return error;
}

int next_poll(ibv_cq_ex* handle) noexcept {
  Cq* cq = find_extended(handle);
  if (cq == nullptr || !cq->batch.held()) return EINVAL;
  return advance(*cq);
}

void end_poll(ibv_cq_ex* handle) noexcept {
  if (Cq* cq = find_extended(handle)) cq->batch.release();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) noexcept {
  return static_cast<ibv_wc_opcode>(current_of(cq).current.opcode);
}
uint32_t read_vendor_err(ibv_cq_ex* cq) noexcept { return current_of(cq).current.vendor_error; }
uint32_t read_byte_len(ibv_cq_ex* cq) noexcept { return current_of(cq).current.byte_len; }
/// Or the invalidated key: the header reads both here.
__be32 read_imm_data(ibv_cq_ex* cq) noexcept { return current_of(cq).current.immediate; }
uint32_t read_qp_num(ibv_cq_ex* cq) noexcept { return current_of(cq).current.qpn.value(); }
uint32_t read_src_qp(ibv_cq_ex* cq) noexcept { return current_of(cq).current.source_qpn.value(); }
unsigned read_wc_flags(ibv_cq_ex* cq) noexcept {
  return current_of(cq).current.flags & model::kWcFlags;
}
uint8_t read_sl(ibv_cq_ex* cq) noexcept {
  return static_cast<uint8_t>(current_of(cq).current.flags >> model::kWcServiceLevelShift);
}
uint64_t read_completion_ts(ibv_cq_ex* cq) noexcept {
  return current_of(cq).current_time.device_ns;
}
uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) noexcept {
  return current_of(cq).current_time.wallclock_ns;
}
/// What there is not on Ethernet without VLANs, as in an ibv_wc.
template <class Field>
Field read_zero(ibv_cq_ex*) noexcept {
  return 0;
}
void read_tm_info(ibv_cq_ex*, ibv_wc_tm_info* info) noexcept {
  if (info != nullptr) *info = {};
}

/// All of them, whatever fields were asked for: a program that reads another gets no crash.
void fill_functions(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_wc_flags = read_wc_flags;
  cq.read_slid = read_zero<uint32_t>;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_zero<uint8_t>;
  cq.read_completion_ts = read_completion_ts;
  cq.read_cvlan = read_zero<uint16_t>;
  cq.read_flow_tag = read_zero<uint32_t>;
  cq.read_tm_info = read_tm_info;
  cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

int to_int(std::uint32_t value) {
  constexpr auto kMost = static_cast<std::uint32_t>(std::numeric_limits<int>::max());
  return value > kMost ? -1 : static_cast<int>(value);
}

Status check(const ibv_cq_init_attr_ex& attr, std::uint32_t flags) {
  if ((attr.comp_mask & ~kKnownAttributes) != 0) return fail(EINVAL);
  if ((attr.wc_flags & ~kKnownFields) != 0) return fail(EOPNOTSUPP);
  if ((flags & ~kKnownFlags) != 0) return fail(EOPNOTSUPP);
  const bool with_domain = (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  if (with_domain && attr.parent_domain == nullptr) return fail(EINVAL);
  return {};
}

}  // namespace

Result<ibv_cq_ex*> create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  if (find_object(context) == nullptr || attr == nullptr) return fail(EINVAL);
  const bool with_flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  const std::uint32_t flags = with_flags ? attr->flags : 0;
  if (Status legal = check(*attr, flags); !legal) return std::unexpected(legal.error());
  const bool with_domain = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  const auto cq = make_cq(
      context, {.cqe = to_int(attr->cqe),
                .cq_context = attr->cq_context,
                .channel = attr->channel,
                .comp_vector = to_int(attr->comp_vector),
                .options = {.timed = (attr->wc_flags & kTimeFlags) != 0,
                            .ignores_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0},
                .parent_domain = with_domain ? attr->parent_domain : nullptr});
  if (!cq) return std::unexpected(cq.error());
  fill_functions((*cq)->ex);
  return &(*cq)->ex;
}

}  // namespace airdma::verbs
