// SPDX-License-Identifier: MIT
// The extended posting interface (ibv_wr_*): a queue pair that was made for it carries functions
// that fill slots of its send queue one by one. From ibv_wr_start to ibv_wr_complete or _abort the
// thread holds the queue's lock, so others that post wait. The first error is kept and ends the
// batch: nothing is posted then.
//
// A request is complete when its data is set, or when the next one begins or the batch ends.
#include "verbs/post_ex.h"

#include <cerrno>

#include "verbs/api.h"
#include "verbs/post.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

static_assert(IBV_QP_EX_WITH_RDMA_WRITE == 1 << IBV_WR_RDMA_WRITE);
static_assert(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM == 1 << IBV_WR_RDMA_WRITE_WITH_IMM);
static_assert(IBV_QP_EX_WITH_SEND == 1 << IBV_WR_SEND);
static_assert(IBV_QP_EX_WITH_SEND_WITH_IMM == 1 << IBV_WR_SEND_WITH_IMM);
static_assert(IBV_QP_EX_WITH_RDMA_READ == 1 << IBV_WR_RDMA_READ);
static_assert(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP == 1 << IBV_WR_ATOMIC_CMP_AND_SWP);
static_assert(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD == 1 << IBV_WR_ATOMIC_FETCH_AND_ADD);
static_assert(IBV_QP_EX_WITH_LOCAL_INV == 1 << IBV_WR_LOCAL_INV);
static_assert(IBV_QP_EX_WITH_BIND_MW == 1 << IBV_WR_BIND_MW);
static_assert(IBV_QP_EX_WITH_SEND_WITH_INV == 1 << IBV_WR_SEND_WITH_INV);
static_assert(IBV_QP_EX_WITH_TSO == 1 << IBV_WR_TSO);
constexpr std::uint32_t kOpcodes = IBV_WR_TSO + 1;

// Outside of a batch SendBatch::error is set, so a stray call, on a queue pair that is gone too,
// changes nothing. The inline functions of <infiniband/verbs.h> have read the handle to come here.
Qp& queue_pair_at(ibv_qp_ex* handle) {
  static_assert(offsetof(Qp, ex) == 0);
  return *reinterpret_cast<Qp*>(handle);
}

void keep_error(Qp& qp, int error) {
  if (qp.batch.error == 0) qp.batch.error = error;
}

bool has_room(Qp& qp) {
  SendBatch& batch = qp.batch;
  if (batch.taken < batch.room) return true;
  if (qp.cap.max_send_wr != 0) batch.room = qp.runtime->send_room();
  return batch.taken < batch.room;
}

/// Lets `place(slot)` write the request that was begun.
template <class Place>
void finish(Qp& qp, Place place) {
  SendBatch& batch = qp.batch;
  batch.begun = false;
  if (!has_room(qp)) return keep_error(qp, ENOMEM);
  model::SendWqe& wqe = qp.runtime->send_queue().slot(batch.taken);
  if (const int error = place(wqe); error != 0) return keep_error(qp, error);
  ++batch.taken;
  batch.bytes += wqe.length;
  if (!names_peer(qp.type) || batch.lacks_peer) return;
  if (const int error = place_peer(qp, batch.wr, wqe); error != 0) keep_error(qp, error);
}

/// The request that was begun, if any, gets no more.
void end_request(Qp& qp) {
  if (qp.batch.begun) {
    finish(qp, [&](model::SendWqe& wqe) { return place_send(qp, qp.batch.wr, wqe); });
  }
  if (qp.batch.lacks_peer) keep_error(qp, EINVAL);
}

/// The request to fill in; null when the batch has failed already.
ibv_send_wr* begin(ibv_qp_ex* handle, ibv_wr_opcode opcode) {
  Qp& qp = queue_pair_at(handle);
  SendBatch& batch = qp.batch;
  if (batch.error != 0) return nullptr;
  end_request(qp);
  if ((qp.send_ops >> opcode & 1) == 0) keep_error(qp, EINVAL);
  if (batch.error != 0) return nullptr;
  batch.begun = true;
  batch.lacks_peer = names_peer(qp.type);
  batch.wr.wr_id = handle->wr_id;
  batch.wr.opcode = opcode;
  // Whether data is inline is said by its setter.
  batch.wr.send_flags = handle->wr_flags & ~unsigned{IBV_SEND_INLINE};
  batch.wr.sg_list = nullptr;
  batch.wr.num_sge = 0;
  return &batch.wr;
}

/// Whether there is a request that still wants its data.
bool wants_data(Qp& qp) {
  if (qp.batch.error != 0) return false;
  if (!qp.batch.begun) qp.batch.error = EINVAL;
  return qp.batch.begun;
}

// --- Requests ---

void wr_send(ibv_qp_ex* qp) noexcept { begin(qp, IBV_WR_SEND); }

void wr_send_imm(ibv_qp_ex* qp, __be32 imm_data) noexcept {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_SEND_WITH_IMM)) wr->imm_data = imm_data;
}

void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) noexcept {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_SEND_WITH_INV)) wr->invalidate_rkey = rkey;
}

void remote(ibv_send_wr& wr, uint32_t rkey, uint64_t remote_addr) {
  wr.wr.rdma.remote_addr = remote_addr;
  wr.wr.rdma.rkey = rkey;
}

void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) noexcept {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_RDMA_READ)) remote(*wr, rkey, remote_addr);
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) noexcept {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_RDMA_WRITE)) remote(*wr, rkey, remote_addr);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                       __be32 imm_data) noexcept {
  ibv_send_wr* wr = begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
  if (wr == nullptr) return;
  remote(*wr, rkey, remote_addr);
  wr->imm_data = imm_data;
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
                       uint64_t swap) noexcept {
  ibv_send_wr* wr = begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP);
  if (wr != nullptr) wr->wr.atomic = {remote_addr, compare, swap, rkey};
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                         uint64_t add) noexcept {
  ibv_send_wr* wr = begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
  if (wr != nullptr) wr->wr.atomic = {remote_addr, add, 0, rkey};
}

void wr_bind_mw(ibv_qp_ex* handle, ibv_mw* mw, uint32_t rkey,
                const ibv_mw_bind_info* bind_info) noexcept {
  ibv_send_wr* wr = begin(handle, IBV_WR_BIND_MW);
  if (wr == nullptr) return;
  if (bind_info == nullptr) return keep_error(queue_pair_at(handle), EINVAL);
  wr->bind_mw.mw = mw;
  wr->bind_mw.rkey = rkey;
  wr->bind_mw.bind_info = *bind_info;
}

void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) noexcept {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_LOCAL_INV)) wr->invalidate_rkey = rkey;
}

void wr_send_tso(ibv_qp_ex* qp, void*, uint16_t, uint16_t) noexcept {
  keep_error(queue_pair_at(qp), EOPNOTSUPP);
}

void wr_atomic_write(ibv_qp_ex* qp, uint32_t, uint64_t, const void*) noexcept {
  keep_error(queue_pair_at(qp), EOPNOTSUPP);
}

// --- What belongs to a request ---

/// Whom the request goes to: before its data is set or after. `set(request)` writes it down.
template <class Set>
void set_peer(Qp& qp, model::QpType type, Set set) {
  SendBatch& batch = qp.batch;
  if (batch.error != 0) return;
  if (qp.type != type || !batch.lacks_peer) return keep_error(qp, EINVAL);
  set(batch.wr);
  batch.lacks_peer = false;
  if (batch.begun) return;
  model::SendWqe& wqe = qp.runtime->send_queue().at_slot(batch.taken - 1);
  if (const int error = place_peer(qp, batch.wr, wqe); error != 0) keep_error(qp, error);
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) noexcept {
  set_peer(queue_pair_at(qp), model::QpType::kUd, [&](ibv_send_wr& wr) {
    wr.wr.ud = {.ah = ah, .remote_qpn = remote_qpn, .remote_qkey = remote_qkey};
  });
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, uint32_t remote_srqn) noexcept {
  set_peer(queue_pair_at(qp), model::QpType::kXrcSend,
           [&](ibv_send_wr& wr) { wr.qp_type.xrc.remote_srqn = remote_srqn; });
}

void set_sges(Qp& qp, const ibv_sge* sges, std::size_t count) {
  if (!wants_data(qp)) return;
  if (count > qp.cap.max_send_sge) return keep_error(qp, EINVAL);
  ibv_send_wr& wr = qp.batch.wr;
  wr.sg_list = const_cast<ibv_sge*>(sges);  // which the C struct wants, and nobody writes
  wr.num_sge = static_cast<int>(count);
  finish(qp, [&](model::SendWqe& wqe) { return place_send(qp, wr, wqe); });
}

void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) noexcept {
  const ibv_sge sge{.addr = addr, .length = length, .lkey = lkey};
  set_sges(queue_pair_at(qp), &sge, 1);
}

void wr_set_sge_list(ibv_qp_ex* qp, size_t num_sge, const ibv_sge* sg_list) noexcept {
  set_sges(queue_pair_at(qp), sg_list, num_sge);
}

void wr_set_inline_data_list(ibv_qp_ex* handle, size_t num_buf,
                             const ibv_data_buf* buf_list) noexcept {
  Qp& qp = queue_pair_at(handle);
  if (!wants_data(qp)) return;
  finish(qp, [&](model::SendWqe& wqe) {
    return place_inline(qp, qp.batch.wr, buf_list, num_buf, wqe);
  });
}

void wr_set_inline_data(ibv_qp_ex* qp, void* addr, size_t length) noexcept {
  const ibv_data_buf buffer{.addr = addr, .length = length};
  wr_set_inline_data_list(qp, 1, &buffer);
}

// --- Batches ---

Qp* find_extended(ibv_qp_ex* handle) {
  Qp* qp = find_object(reinterpret_cast<ibv_qp*>(handle));
  return qp != nullptr && qp->extended ? qp : nullptr;
}

void wr_start(ibv_qp_ex* handle) noexcept {
  Qp* qp = find_extended(handle);
  if (qp == nullptr) return;
  SendBatch& batch = qp->batch;
  if (batch.is_of_this_thread()) return keep_error(*qp, EINVAL);
  qp->runtime->send_lock().lock();
  batch.owner.store(::pthread_self(), std::memory_order_relaxed);
  batch.error = 0;
  batch.begun = batch.lacks_peer = false;
  batch.taken = 0;
  batch.bytes = 0;
  batch.room = qp->cap.max_send_wr == 0 ? 0 : qp->runtime->send_room();
}

/// Ends the batch. The lock is free afterwards.
void close(Qp& qp) {
  qp.batch.error = SendBatch::kClosed;
  qp.batch.owner.store(0, std::memory_order_relaxed);
  qp.runtime->send_lock().unlock();
}

int wr_complete(ibv_qp_ex* handle) noexcept {
  Qp* qp = find_extended(handle);
  if (qp == nullptr || !qp->batch.is_of_this_thread()) return EINVAL;
  SendBatch& batch = qp->batch;
  if (batch.error == 0) end_request(*qp);
  if (batch.error == 0 && !takes_sends(*qp)) batch.error = EINVAL;
  const int error = batch.error;
  const std::uint32_t posted = error == 0 ? batch.taken : 0;
  const std::uint64_t bytes = batch.bytes;
  if (posted != 0) qp->runtime->send_queue().publish(posted);
  close(*qp);
  if (posted != 0) qp->runtime->sends_posted(posted, bytes);
  return error;
}

void wr_abort(ibv_qp_ex* handle) noexcept {
  Qp* qp = find_extended(handle);
  if (qp != nullptr && qp->batch.is_of_this_thread()) close(*qp);
}

/// All of them, whatever operations were asked for: an unwanted one is an error and no crash.
void fill_functions(ibv_qp_ex& qp) {
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_tso = wr_send_tso;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_atomic_write = wr_atomic_write;
}

}  // namespace

bool knows_send_ops(ibv_qp_type type, std::uint64_t send_ops) {
  for (std::uint32_t opcode = 0; opcode < kOpcodes; ++opcode) {
    const std::uint64_t bit = std::uint64_t{1} << opcode;
    if ((send_ops & bit) != 0 && can_post(static_cast<model::QpType>(type), opcode))
      send_ops &= ~bit;
  }
  return send_ops == 0;
}

void extend(Qp& qp, std::uint64_t send_ops) {
  qp.extended = true;
  qp.send_ops = send_ops;
  fill_functions(qp.ex);
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* handle) noexcept {
  Qp* qp = find_object(handle);
  return qp != nullptr && qp->extended ? &qp->ex : nullptr;
}

}  // namespace airdma::verbs
